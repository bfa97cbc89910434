"""A story has what concerns the violation: faults, decisions about its partition, the very record, and their places."""

from leadline.model import TopicPartition
from leadline.simulation.trace import TraceEvent, story_of

ORDERS, OTHERS = TopicPartition("records", 1), TopicPartition("records", 2)


def test_a_story_leaves_out_other_partitions_and_records() -> None:
    events = [
        TraceEvent(1.0, "producer-0", "records-1 @ 4 is acknowledged", tp=ORDERS, offset=4),
        TraceEvent(1.5, "producer-0", "records-1 @ 5 is acknowledged", tp=ORDERS, offset=5),
        TraceEvent(2.0, "broker-2", "is killed"),
        TraceEvent(2.1, "broker-1", "decides: broker-1 leads records-1", "controller/controller.py:7", ORDERS),
        TraceEvent(2.2, "broker-1", "decides: broker-1 leads records-2", "controller/controller.py:7", OTHERS),
        TraceEvent(2.3, "broker-3", "an idle remark", "log/log.py:1"),
        TraceEvent(2.4, "broker-3", "records-1: truncating from 6 to 5", "log/log.py:409", ORDERS),
        TraceEvent(2.4, "broker-3", "records-1: truncating from 6 to 5", "log/log.py:409", ORDERS),
    ]
    assert list(story_of(events, "lost write: records-1 @ 5 is None")) == [
        "   1.500 s  producer-0   records-1 @ 5 is acknowledged",
        "   2.000 s  broker-2     is killed",
        "   2.100 s  broker-1     decides: broker-1 leads records-1  [controller/controller.py:7]",
        "   2.400 s  broker-3     records-1: truncating from 6 to 5  [log/log.py:409]",
    ]


def test_a_long_story_keeps_its_end() -> None:
    events = [TraceEvent(float(n), "broker-1", f"fault {n}") for n in range(100)]
    lines = list(story_of(events, "stalled"))
    assert lines[0].endswith("40 earlier lines")
    assert lines[-1].endswith("fault 99")

"""A story has what concerns the violation: faults, decisions about its partition, the very record, and their places."""

import pytest

from leadline.model import TopicPartition
from leadline.simulation.trace import MOST_LINES, TraceEvent, story_of

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


@pytest.mark.parametrize(
    ("violation", "shown"),
    [
        ("lost write: records-1 @ 5 is None", 7),
        ("inconsistent epochs: records-1 on broker 1 @ 8 has 6, not 5", 9),
        ("stalled: nothing was acknowledged in records-1 since 1.0 s", 12),
    ],
    ids=["by the batch of the record", "wherever it is named", "the last one"],
)
def test_one_acknowledgement_is_told(violation: str, shown: int) -> None:
    """That of a batch has the offset of its last record."""
    events = [TraceEvent(1.0, "p", f"up to {n}", tp=ORDERS, offset=n) for n in (4, 7, 9, 12)]
    assert list(story_of(events, violation)) == [f"   1.000 s  p            up to {shown}"]


def test_a_long_story_keeps_its_faults_and_its_end() -> None:
    faults = [TraceEvent(float(n), "broker-1", f"fault {n}") for n in range(10)]
    decisions = [TraceEvent(20.0 + n, "broker-2", f"decision {n}", "controller.py:7", ORDERS) for n in range(80)]
    details = [TraceEvent(n + 0.5, "broker-3", f"detail {n}", "log.py:7", ORDERS, is_detail=True) for n in range(100)]
    events = sorted([*faults, *decisions, *details], key=lambda event: event.at_s)
    lines = list(story_of(events, "stalled: records-1"))
    assert len(lines) == MOST_LINES + 1
    assert lines[0].endswith("130 other lines")
    assert [line.split()[-1] for line in lines[1:11]] == [str(n) for n in range(10)]
    assert lines[11].endswith("decision 30  [controller.py:7]")
    assert lines[-1].endswith("decision 79  [controller.py:7]")


def test_of_too_many_faults_the_last_ones_are_told() -> None:
    events = [TraceEvent(float(n), "broker-1", f"fault {n}") for n in range(100)]
    lines = list(story_of(events, "stalled"))
    assert lines[0].endswith("40 other lines")
    assert lines[-1].endswith("fault 99")

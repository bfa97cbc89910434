"""A broker is killed, and an old segment is damaged or gone: the records of all other segments are served, and counted.

What was flushed is not read again after a crash, so one wrong byte in it costs no other record.
"""

import os
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from leadline import model
from leadline.log.checkpoints import read_offsets
from leadline.log.names import RECOVERY_POINTS_FILE
from leadline.records.batch import walk
from leadline.runtime.ports import OsFiles
from tests.support import in_memory
from tests.support.broker import RunningBroker, leadline
from tests.support.commands import leadline as run_command
from tests.support.waiting import PATIENCE_S, until

TP = model.TopicPartition("orders", 0)
RECORDS, BATCH_RECORDS = 6000, 20
SEGMENT_BYTES = 40_000


def value(number: int) -> bytes:
    return b"record %05d " % number + b"x" * 80


@pytest.fixture
def killed() -> Iterator[RunningBroker]:
    """With six thousand records in several segments, all but the active one flushed."""
    for path in in_memory.directory():
        with leadline(path / "data") as broker:
            config = f"segment.bytes={SEGMENT_BYTES}"
            run_command(broker, "topics", "create", TP.topic, "--partitions", "1", "--config", config)
            producer = Producer(
                {"bootstrap.servers": broker.bootstrap, "batch.num.messages": BATCH_RECORDS, "linger.ms": 1000}
            )
            for number in range(RECORDS):
                producer.produce(TP.topic, value(number), partition=0)
            assert producer.flush(PATIENCE_S) == 0
            until(lambda: recovery_point(broker) >= offset_of(segments(broker)[-1]), "the old segments are flushed")
            broker.kill()
            assert len(segments(broker)) > 8
            yield broker


def recovery_point(broker: RunningBroker) -> int:
    return read_offsets(OsFiles(), str(broker.directory / RECOVERY_POINTS_FILE)).get(TP, 0)


def segments(broker: RunningBroker) -> list[Path]:
    return sorted((broker.directory / str(TP)).glob("*.log"))


def offset_of(segment: Path) -> int:
    return int(segment.stem)


def offsets_in(segment: Path) -> range:
    last = max(header.last_offset for _, header in walk(segment.read_bytes()))
    return range(offset_of(segment), last + 1)


def served(broker: RunningBroker) -> dict[int, bytes]:
    """All records that a consumer gets, by offset."""
    properties: dict[str, str | int | float | bool] = {
        "bootstrap.servers": broker.bootstrap,
        "group.id": "reader",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    records: dict[int, bytes] = {}
    with closing(Consumer(properties)) as consumer:
        consumer.assign([TopicPartition(TP.topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing follows {max(records, default=None)}"
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return records
            offset, content = message.offset(), message.value()
            assert offset is not None
            assert content is not None
            records[offset] = content


def restarted(broker: RunningBroker) -> str:
    """What it prints."""
    before = len(broker.output())
    broker.start()
    return broker.output()[before:]


def test_one_wrong_byte_in_an_old_segment_costs_no_other_record(killed: RunningBroker) -> None:
    old = segments(killed)[3]
    data = bytearray(old.read_bytes())
    changed = data.index(b"record ", len(data) // 2)
    number = int(data[changed + 7 : changed + 12])
    data[changed] ^= 0x20  # an r becomes an R
    old.write_bytes(data)
    printed = restarted(killed)
    records = served(killed)
    assert len(records) == RECORDS
    assert {offset for offset, content in records.items() if content != value(offset)} == {number}
    assert number in offsets_in(old)
    assert "cut off" not in printed
    assert "Removed" not in printed
    assert killed.stop() == 0


def test_a_missing_segment_in_the_middle_costs_its_own_records_which_are_counted(killed: RunningBroker) -> None:
    lost = segments(killed)[4]
    gone = offsets_in(lost)
    for file in lost.parent.glob(f"{lost.stem}.*"):
        os.unlink(file)
    printed = restarted(killed)
    records = served(killed)
    assert len(records) == RECORDS - len(gone)
    assert records == {offset: value(offset) for offset in range(RECORDS) if offset not in gone}
    lines = [line for line in printed.splitlines() if "are missing" in line]
    assert len(lines) == 1, printed
    assert f"{TP}: the records from offset {gone[0]} to {gone[-1]} are missing" in lines[0]
    assert f"restore {lost}" in lines[0]
    assert re.search(r"holds +\d+ partitions?", printed)
    assert killed.stop() == 0

"""What must hold at rest: all faults are over, and the cluster had time to settle."""

from collections.abc import Iterator, Sequence

from leadline.broker.broker import Broker
from leadline.log.log import Log
from leadline.model import Buffer, TopicPartition
from leadline.records.batch import walk
from leadline.records.record import records_of
from leadline.simulation.client_history import ClientHistory

Stored = dict[TopicPartition, dict[int, bytes]]  # values by offset


def violations(history: ClientHistory, stored: Stored, brokers: Sequence[Broker]) -> Iterator[str]:
    yield from lost_writes(history, stored)
    yield from doubled_writes(history, stored)
    yield from unordered_writes(stored)
    yield from different_replicas(brokers)


def lost_writes(history: ClientHistory, stored: Stored) -> Iterator[str]:
    for attempt in history.attempts:
        if attempt.offset is not None:
            there = stored[attempt.tp].get(attempt.offset)
            if there != attempt.value:
                yield f"lost write: {attempt.tp} @ {attempt.offset} is {there!r}, acknowledged was {attempt.value!r}"


def doubled_writes(history: ClientHistory, stored: Stored) -> Iterator[str]:
    for tp, values in stored.items():
        offsets: dict[bytes, int] = {}
        for offset, value in values.items():
            if value in offsets:
                yield f"doubled write: {tp} has {value!r} at {offsets[value]} and at {offset}"
            offsets[value] = offset


def unordered_writes(stored: Stored) -> Iterator[str]:
    """Of one producer, in one partition."""
    for tp, values in stored.items():
        last: dict[bytes, int] = {}
        for offset in sorted(values):
            producer, _, number = values[offset].rpartition(b" ")
            if int(number) <= last.get(producer, -1):
                yield f"unordered write: {tp} @ {offset} has {values[offset]!r} behind number {last[producer]}"
            last[producer] = int(number)


def different_replicas(brokers: Sequence[Broker]) -> Iterator[str]:
    """Below the smallest high watermark all replicas have the same bytes."""
    partitions = {tp for broker in brokers for tp in broker.replicas.hosted}
    for tp in sorted(partitions):
        logs = [(b.metadata.me.id, b.replicas.hosted[tp].log) for b in brokers if tp in b.replicas.hosted]
        end = min(log.high_watermark for _, log in logs)
        start = max(log.log_start for _, log in logs)
        contents = {}
        for id, log in logs:
            contents[id] = log_bytes(log, start, end)
        if len(set(contents.values())) > 1:
            sizes = {id: len(content) for id, content in contents.items()}
            yield f"different replicas: {tp} between {start} and {end}: bytes by broker {sizes}"


def log_bytes(log: Log, start: int, end: int) -> bytes:
    """The batches from the one that holds `start` up to the high watermark `end`."""
    data, offset = bytearray(), start
    while offset < end:
        part = log.read(offset, 1 << 20).slice
        if part is None:
            break
        for position, header in walk(part.file.pread(part.length, part.position)):
            if header.base_offset >= end:
                return bytes(data)
            data += part.file.pread(header.size, part.position + position)
            offset = header.last_offset + 1
    return bytes(data)


def values_in(data: Buffer) -> dict[int, bytes]:
    values: dict[int, bytes] = {}
    for position, header in walk(data):
        if not header.is_control:
            for record in records_of(data, position, header):
                values[record.offset] = record.value or b""
    return values


def end_of(data: Buffer, offset: int) -> int:
    """The offset behind the last whole batch."""
    for _, header in walk(data):
        offset = header.last_offset + 1
    return offset

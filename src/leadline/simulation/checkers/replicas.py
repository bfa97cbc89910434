"""The replicas of each partition, on the brokers themselves."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from leadline.broker.broker import Broker
from leadline.log.log import Log
from leadline.records.batch import walk


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


def open_transactions(brokers: Sequence[Broker]) -> Iterator[str]:
    """At rest every transaction has ended: no last stable offset is below its high watermark."""
    for broker in brokers:
        for tp, hosted in sorted(broker.replicas.hosted.items()):
            log = hosted.log
            if hosted.leader_state is not None and log.last_stable_offset < log.high_watermark:
                yield (
                    f"open transaction: {tp} is stable up to {log.last_stable_offset} of {log.high_watermark} "
                    f"on broker {broker.metadata.me.id}"
                )


def inconsistent_epochs(brokers: Sequence[Broker]) -> Iterator[str]:
    """The leader epochs of a log are strictly increasing, and each batch has the epoch of its offset."""
    for broker in brokers:
        for tp, hosted in sorted(broker.replicas.hosted.items()):
            log, replica = hosted.log, f"{tp} on broker {broker.metadata.me.id}"
            entries = list(log.epochs.entries)
            if any(b.epoch <= a.epoch or b.start_offset <= a.start_offset for a, b in pairwise(entries)):
                yield f"inconsistent epochs: {replica} has {entries}"
            for _, header in walk(log_bytes(log, log.log_start, log.high_watermark)):
                first = max(header.base_offset, log.log_start)
                epoch = next((e.epoch for e in reversed(entries) if e.start_offset <= first), None)
                if epoch != header.leader_epoch:
                    at = f"{replica} @ {header.base_offset}"
                    yield f"inconsistent epochs: {at} has {header.leader_epoch}, not {epoch}"
                    break

"""A task of a mirror: it copies the batches of ranges.

Most batches are copied byte for byte: keys, values, headers, times and compression stay. A batch is decoded and built
again if another cluster would refuse or change it: if compaction removed records, if the broker set its time, or if it
is only partly in the range. Markers and records of aborted transactions are not copied.
    a batch with a wrong checksum is an error: it never gets a new checksum
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from leadline.errors import CorruptMessage
from leadline.log.txn_index import AbortedTxn
from leadline.model import NO_TIMESTAMP, Buffer, Offset, TopicPartition
from leadline.records.batch import Header, crc_of, walk
from leadline.records.build import BatchFields, build
from leadline.records.control import ControlType, read_end_marker
from leadline.records.record import records_of
from leadline.spark.batches.encode import EncodedBatch
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.range_fetch import FetchedBatches, FetchOptions, fetch
from leadline.spark.ranges import Range, Task
from leadline.spark.topics.staging import StagedFile, Staging

Span = tuple[Offset, int]  # records with consecutive offsets: the first offset, and the count


@dataclass(frozen=True, slots=True)
class CopyTask:
    source: Mapping[str, str]  # properties of a client
    task: Task
    prefix: str  # of the topic names in the target cluster
    fetch_options: FetchOptions
    staging: Staging


@dataclass(frozen=True, slots=True)
class CopyOutput:
    staged: StagedFile
    spans: tuple[tuple[Span, ...], ...]  # of each staged piece: the source offsets of its records
    newest_ms: int


def run_copy_task(job: CopyTask) -> CopyOutput:
    spans: list[tuple[Span, ...]] = []
    newest_ms = NO_TIMESTAMP

    def batches() -> Iterator[EncodedBatch]:
        nonlocal newest_ms
        for range_ in job.task:
            target = TopicPartition(job.prefix + range_.tp.topic, range_.tp.partition)
            for fetched in fetch(cluster, range_, job.fetch_options):
                for position, header in committed(fetched.data, fetched.aborted or ()):
                    data, copied_spans = copied_batch(fetched, position, header, range_)
                    if copied_spans:
                        newest_ms = max(newest_ms, header.max_timestamp)
                        spans.append(copied_spans)
                        yield EncodedBatch(target, data, sum(length for _, length in copied_spans))

    with ClusterClient(job.source) as cluster:
        staged = job.staging.write(batches())
    return CopyOutput(staged, tuple(spans), newest_ms)


def committed(data: Buffer, aborted: tuple[AbortedTxn, ...]) -> Iterator[tuple[int, Header]]:
    """The batches with records, except those of aborted transactions, each with its position."""
    pending = sorted(aborted, key=lambda txn: txn.first_offset, reverse=True)
    under_way: set[int] = set()  # producers whose transaction at this position was aborted
    for position, header in walk(data):
        _check(data, position, header)
        while pending and pending[-1].first_offset <= header.last_offset:
            under_way.add(pending.pop().producer_id)
        if header.is_control:
            marker = read_end_marker(data, position, header)
            if marker is not None and marker.type is ControlType.ABORT:
                under_way.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in under_way):
            yield position, header


def _check(data: Buffer, position: int, header: Header) -> None:
    if (crc := crc_of(data, position, header.size)) != header.crc:
        raise CorruptMessage(
            f"the batch at offset {header.base_offset}: its CRC is {crc}, but its header has {header.crc}"
        )


def copied_batch(
    fetched: FetchedBatches, position: int, header: Header, range_: Range
) -> tuple[bytearray, tuple[Span, ...]]:
    """The batch to send and the source offsets of its records; empty if it has no record in the range."""
    first = max(fetched.first, range_.first)
    inside = first <= header.base_offset and header.last_offset < range_.until
    gapless = header.record_count == header.last_offset_delta + 1
    if inside and gapless and not header.is_log_append_time and header.delete_horizon_ms is None:
        data = bytearray(fetched.data[position : position + header.size])
        return data, ((header.base_offset, header.record_count),)
    records = [r for r in records_of(fetched.data, position, header) if first <= r.offset < range_.until]
    if not records:
        return bytearray(), ()
    fields = BatchFields(codec=header.codec, transactional=True, producer_id=0, producer_epoch=0, base_sequence=0)
    data = build([record._replace(offset=n) for n, record in enumerate(records)], fields)
    return data, tuple(_spans([record.offset for record in records]))


def _spans(offsets: list[Offset]) -> Iterator[Span]:
    start = 0
    for n in range(1, len(offsets) + 1):
        if n == len(offsets) or offsets[n] != offsets[n - 1] + 1:
            yield offsets[start], n - start
            start = n

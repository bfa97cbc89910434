"""Ranges fetched from brokers: raw fetches from the leader of a partition, its bytes unchanged.

The next fetch is sent while the caller works on the last answer. The fetch waits for leaders that move and brokers that
are down. Offsets that are gone raise DataLoss with their numbers, or are skipped.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from leadline.errors import OffsetOutOfRange
from leadline.log.txn_index import AbortedTxn
from leadline.model import Buffer, Offset
from leadline.records.batch import walk
from leadline.spark.batches.decode import END_UNKNOWN, RecordFilter, pieces
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import BlockingConnection, Unreachable
from leadline.spark.client.failures import NoSuchTopic, RequestFailed
from leadline.spark.client.retries import Retries
from leadline.spark.positions import Loss, data_loss
from leadline.spark.ranges import Range
from leadline.wire.messages import FetchRequest, FetchResponse

FETCH_BYTES = 4 << 20  # of one response, unless max.partition.fetch.bytes is set
WAIT_MS = 500


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """How ranges are fetched."""

    committed: bool = False
    fail_on_data_loss: bool = True
    fetch_bytes: int = FETCH_BYTES


@dataclass(frozen=True, slots=True)
class FetchedBatches:
    data: Buffer  # whole batches, and perhaps the start of another; valid until the next fetch
    first: Offset  # records before it in the data were not requested
    aborted: tuple[AbortedTxn, ...] | None  # None: read_uncommitted


def rows(cluster: ClusterClient, range_: Range, options: FetchOptions, *, headers: bool) -> Iterator[pa.RecordBatch]:
    """The records of a range, as `decode` gives them."""
    for fetched in fetch(cluster, range_, options):
        filter_ = RecordFilter(fetched.first, range_.until, headers, fetched.aborted)
        yield from (batch for batch in pieces(fetched.data, filter_) if batch.num_rows)


def fetch(cluster: ClusterClient, range_: Range, options: FetchOptions) -> Iterator[FetchedBatches]:
    """All batches of a range, in order. DataLoss if some are gone, unless the options allow that."""
    yield from _Fetch(cluster, range_, options).run()


class _Fetch:
    def __init__(self, cluster: ClusterClient, range_: Range, how: FetchOptions) -> None:
        self.cluster, self.tp, self.until, self.options = cluster, range_.tp, range_.until, how
        self.position = range_.first
        self._connection: BlockingConnection | None = None
        self._due: int | None = None  # the version of a request whose answer has not been taken yet
        self._spare: bytearray | None = None
        self._patience = Retries(cluster.timeout_s)

    def run(self) -> Iterator[FetchedBatches]:
        try:
            while self.position < self.until:
                try:
                    part = self._answer()
                except (Unreachable, RequestFailed, NoSuchTopic) as error:
                    self._recover(error)
                    continue
                next_offset = _next_offset(part, self.position)
                if next_offset is not None:
                    yield self._move_on(part, next_offset)
                elif self._has_no_more(part):
                    return
        finally:
            self._close()

    def _answer(self) -> FetchResponse.PartitionData:
        """The leader's answer from the position on, requested before or now."""
        if self._due is None:
            self._connection = self.cluster.leader(self.tp)
            self._ask()
        assert self._connection is not None
        assert self._due is not None
        answer = self._connection.answer(self._due, FetchResponse)
        self._due = None
        if answer.error_code:
            raise RequestFailed(f"fetch of {self.tp}", answer.error_code)
        ((part,),) = [topic.partitions for topic in answer.responses]
        if part.error_code:
            raise RequestFailed(f"fetch of {self.tp} from offset {self.position}", part.error_code)
        return part

    def _ask(self) -> None:
        assert self._connection is not None
        part = FetchRequest.FetchPartition(
            partition=self.tp.partition, fetch_offset=self.position, partition_max_bytes=self.options.fetch_bytes
        )
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=self.options.fetch_bytes,
            isolation_level=int(self.options.committed),
            topics=[FetchRequest.FetchTopic(topic=self.tp.topic, partitions=[part])],
        )
        self._due = self._connection.send(request)

    def _move_on(self, part: FetchResponse.PartitionData, next_offset: Offset) -> FetchedBatches:
        """Requests the next data into another buffer, and returns the current data."""
        assert self._connection is not None
        assert isinstance(part.records, memoryview)
        self._patience = Retries(self.cluster.timeout_s)
        fetched = FetchedBatches(part.records, self.position, _aborted(part) if self.options.committed else None)
        self.position = next_offset
        if next_offset < self.until:
            self._spare = self._connection.swap_buffer(self._spare)
            with suppress(Unreachable):  # then `_answer` requests it again
                self._ask()
        return fetched

    def _has_no_more(self, part: FetchResponse.PartitionData) -> bool:
        """Whether the range holds no more records, as after compaction. Otherwise waits for them."""
        end = part.last_stable_offset if self.options.committed else part.high_watermark
        if end >= self.until:
            return True
        what = "its last stable offset (a transaction is open)" if self.options.committed else "its high watermark"
        self._patience.wait(Unreachable(f"{self.tp} cannot be read up to {self.until}: {what} is {end}"))
        return False

    def _recover(self, error: Exception) -> None:
        """Prepares another try; raises if a retry cannot help."""
        if isinstance(error, NoSuchTopic):
            self._lose(self.until, "the topic or the partition no longer exists")
        elif isinstance(error, RequestFailed) and error.code == OffsetOutOfRange.code:
            self._look_for_the_rest()
        elif isinstance(error, RequestFailed) and not error.retriable:
            raise error
        else:
            if isinstance(error, Unreachable) and self._connection is not None:
                self.cluster.forget(self._connection.address)
                self._due = None
            self._patience.wait(error)
            self.cluster.forget_leaders(self.tp.topic)

    def _look_for_the_rest(self) -> None:
        earliest = self.cluster.earliest([self.tp])[self.tp]
        latest = self.cluster.latest([self.tp], committed=False)[self.tp]
        if self.position < earliest:
            resume_at = min(earliest, self.until)
            self._lose(resume_at, f"the log now starts at {earliest} (retention, or records were deleted)")
        elif self.position > latest:
            self._lose(self.until, f"the log now ends at {latest} (truncated, or another topic of that name)")
        else:
            text = f"{self.tp}: the leader refuses offset {self.position}, which lies within the log"
            self._patience.wait(Unreachable(text))

    def _lose(self, until: Offset, why: str) -> None:
        if self.options.fail_on_data_loss:
            raise data_loss([Loss(Range(self.tp, self.position, until), why)])
        self.position = until

    def _close(self) -> None:
        """Closes a connection with an unread answer: the next request would take it for its own."""
        if self._connection is not None and self._due is not None:
            self.cluster.forget(self._connection.address)


def _next_offset(part: FetchResponse.PartitionData, position: Offset) -> Offset | None:
    """The offset after the whole batches; None if none of them reaches the position."""
    assert part.records is None or isinstance(part.records, bytes | memoryview)
    last = None
    for _, header in walk(part.records or b""):
        last = header.last_offset
    return last + 1 if last is not None and last >= position else None


def _aborted(part: FetchResponse.PartitionData) -> tuple[AbortedTxn, ...]:
    return tuple(
        AbortedTxn(txn.producer_id, txn.first_offset, END_UNKNOWN, END_UNKNOWN)
        for txn in part.aborted_transactions or ()
    )

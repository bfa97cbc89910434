"""Two logs side by side: Leadline's and Kafka's own, given the same operations at the same time by the clock.

Every operation is done to both; their answers must be equal, or both must refuse with the same error code.
What they know (`assert_same_state`) and what lies on disk (`assert_same_files`) can be compared at any step.
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from struct import Struct
from typing import TypeVar

from leadline.errors import LogDirFailed, RecordsRefused, UnexpectedAppendOffset, WireError
from leadline.log.log import MAX_TIMESTAMP, Isolation, Log
from leadline.log.names import REMOVED
from leadline.log.producer_entry import ProducerEntry
from leadline.log.producer_state import AppendOrigin
from leadline.log.recovery import Opening, open_log
from leadline.log.segment import Segment
from leadline.model import Offset, format_id, parse_id
from leadline.records.batch import HEADER_BYTES, header_at, walk
from tests.conformance.kafka.answers import Isolation as KafkaIsolation
from tests.conformance.kafka.answers import KafkaError, State
from tests.conformance.kafka.answers import Producer as KafkaProducer
from tests.conformance.kafka.answers import Segment as KafkaSegment
from tests.conformance.kafka.oracle import Oracle
from tests.support.inline_background import InlineBackground
from tests.support.logs import LogBench, bytes_of

T = TypeVar("T")

DAY_MS = 86_400_000
DELETE_DELAY_MS = 60_000  # file.delete.delay.ms, unless a test sets it
EXPIRY_TASK = "PeriodicProducerExpirationCheck"

ISOLATION: dict[Isolation, KafkaIsolation] = {
    Isolation.LOG_END: "LOG_END",
    Isolation.HIGH_WATERMARK: "HIGH_WATERMARK",
    Isolation.COMMITTED: "TXN_COMMITTED",
}

_TIME_ENTRY = Struct(">qi")


@dataclass(frozen=True, slots=True)
class Refused:
    """An error as a client would see it: its code, and the places of the records to blame."""

    code: int
    records: tuple[int, ...] = ()


def answer_of(call: Callable[[], object]) -> object:
    """What a call returned, or how it was refused; by Leadline or by Kafka alike."""
    try:
        return call()
    except RecordsRefused as error:
        return Refused(error.code, tuple(record.batch_index for record in error.records))
    except WireError as error:
        return Refused(error.code)
    except UnexpectedAppendOffset:
        return Refused(-1)  # Kafka has no code for it: no client ever sees it
    except KafkaError as error:
        return Refused(error.code, tuple(index for index, _ in error.record_errors))


class RepeatedCallbacks(InlineBackground):
    """A background whose jobs run at once, as in Kafka. Their callbacks are called again when the call is over.

    What a roll behind a gap has flushed lies past the log's end until the append that caused it is over. Leadline
    counts it then, when the thread of the disk would have told it; Kafka has counted it before.
    """

    def __init__(self, directory: str, failed: Callable[[LogDirFailed], None]) -> None:
        super().__init__(directory, failed)
        self.done: list[Callable[[], None]] = []

    def run(
        self, doing: str, job: Callable[[], T], then: Callable[[T], None], short: Callable[[], None] | None = None
    ) -> None:
        def tell(result: T) -> None:
            then(result)
            self.done.append(partial(then, result))

        super().run(doing, job, tell, short)

    def call_back(self) -> None:
        done, self.done = self.done, []
        for call in done:
            call()


class Pair:
    def __init__(self, oracle: Oracle, parent: Path, settings: Mapping[str, str] | None = None) -> None:
        self.oracle, self.settings = oracle, dict(settings or {})
        for side in ("leadline", "kafka"):
            (parent / side).mkdir(exist_ok=True)
        self.bench = LogBench(parent / "leadline", self.settings)
        self.ours, self.theirs = self.bench.directory, parent / "kafka" / self.bench.directory.name
        self.background = self.bench.background = RepeatedCallbacks(str(parent), self.bench.failures.append)
        self.bench.context = replace(self.bench.context, background=self.background)
        self.expiration_ms = DAY_MS
        self.dropped: set[str] = set()  # what Kafka put aside when it opened the log; Leadline removes it at once
        self.done: list[str] = []  # what was asked so far, for the message of a failure

    # The life of a log

    def open(
        self, *, clean: bool = True, recovery_point: Offset = 0, log_start: Offset = 0, topic_id: str | None = None
    ) -> None:
        self.note("open", clean, recovery_point, log_start)
        opening = Opening(
            self.bench.tp, str(self.ours), self.bench.config, clean, recovery_point, log_start, self.expiration_ms
        )
        self.log = open_log(opening, self.bench.context)
        self.oracle.open(
            self.theirs,
            self.settings,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            topic_id=topic_id,
            producer_id_expiration_ms=self.expiration_ms,
        )
        if topic_id is not None:
            self.log.assign_topic_id(parse_id(topic_id))
        self.dropped = {name for name in os.listdir(self.theirs) if name.endswith(".deleted")}

    def close(self) -> None:
        """As a controlled shutdown does. What was for later is lost."""
        self.note("close")
        self.log.close()
        self.bench.background.postponed.clear()
        self.oracle.close()

    def reopen(self) -> None:
        """Stop and start again."""
        log_start, log_end = self.log.log_start, self.log.log_end
        self.close()
        self.assert_same_files()
        self.open(recovery_point=log_end, log_start=log_start)

    def abandon(self) -> None:
        """As after kill -9: nothing is closed, nothing is flushed."""
        self.note("abandon")
        del self.log
        self.bench.background.postponed.clear()
        self.oracle.abandon()

    def give(self, source: Path) -> None:
        """Both sides open a copy of this directory next."""
        for target in (self.ours, self.theirs):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)

    # Doing the same to both

    def note(self, what: str, *arguments: object) -> None:
        self.done.append(f"{what}{arguments}")

    def compare_answers(
        self, what: str, ours: Callable[[], object], theirs: Callable[[], object], *details: object
    ) -> object:
        self.note(what, *details)
        mine, kafkas = answer_of(ours), answer_of(theirs)
        self.background.call_back()
        assert mine == kafkas, self.failure(f"{what}{details}: Leadline answers {mine}, Kafka {kafkas}")
        return mine

    def failure(self, what: str) -> str:
        return "\n".join([what, "after:", *self.done])

    def append(self, batch: bytes, epoch: int = 0, origin: AppendOrigin = AppendOrigin.CLIENT) -> object:
        def ours() -> object:
            done = self.log.append_as_leader(bytearray(batch), epoch, origin)
            return done.first_offset, done.last_offset, done.log_append_time_ms

        def theirs() -> object:
            kafka_origin = "CLIENT" if origin is AppendOrigin.CLIENT else "COORDINATOR"
            done = self.oracle.append_leader(batch, epoch, kafka_origin)  # type: ignore[arg-type]
            return done.first_offset, done.last_offset, done.log_append_time

        return self.compare_answers("append", ours, theirs, _brief(batch), epoch, origin.name)

    def replicate(self, batches: bytes) -> object:
        """As a follower."""

        def ours() -> object:
            done = self.log.append_as_follower(bytearray(batches), any_size=False)
            return (-1, -1) if done is None else (done.first_offset, done.last_offset)

        def theirs() -> object:
            done = self.oracle.append_follower(batches)
            return done.first_offset, done.last_offset

        return self.compare_answers("replicate", ours, theirs, *map(_brief, batches_in(batches)))

    def roll(self) -> object:
        return self.compare_answers("roll", lambda: self.log.roll().base_offset, self.oracle.roll)

    def flush(self) -> object:
        def theirs() -> None:
            self.oracle.flush()

        return self.compare_answers("flush", self.log.flush, theirs)

    def truncate_to(self, offset: Offset) -> object:
        """Kafka looks for the first unstable offset again only when it is next told a high watermark: it is, at once.

        And it forgets the largest timestamp of a segment that it has not yet asked for: it is asked first.
        """
        self.offset_for_time(MAX_TIMESTAMP)

        def theirs() -> bool:
            truncated = self.oracle.truncate_to(offset)
            self.oracle.high_watermark(self.log.high_watermark)
            return truncated

        return self.compare_answers("truncate_to", lambda: self.log.truncate_to(offset), theirs, offset)

    def truncate_fully_and_start_at(self, offset: Offset, log_start: Offset | None = None) -> None:
        self.compare_answers(
            "truncate_fully_and_start_at",
            lambda: self.log.truncate_fully_and_start_at(offset, log_start),
            lambda: self.oracle.truncate_fully_and_start_at(offset, log_start),
            offset,
            log_start,
        )

    def high_watermark(self, offset: Offset) -> object:
        def ours() -> Offset:
            self.log.set_high_watermark(offset)
            return self.log.high_watermark

        return self.compare_answers("high_watermark", ours, lambda: self.oracle.high_watermark(offset), offset)

    def delete_records(self, before: Offset) -> object:
        return self.compare_answers(
            "delete_records",
            lambda: self.log.delete_records(before),
            lambda: self.oracle.delete_records(before),
            before,
        )

    def delete_old_segments(self) -> object:
        return self.compare_answers(
            "delete_old_segments",
            lambda: len(self.log.delete_old_segments().segments),
            self.oracle.delete_old_segments,
        )

    def update_config(self, settings: Mapping[str, str]) -> None:
        """Replaces the whole configuration."""
        self.note("update_config", settings)
        self.settings = dict(settings)
        self.bench.config = type(self.bench.config).parse(self.settings)
        self.log.update_config(self.bench.config)
        self.oracle.update_config(self.settings)

    def expire_producers(self) -> None:
        self.note("expire_producers")
        self.log.expire_producers()
        self.oracle.remove_expired_producers()

    def time(self, ms: int) -> None:
        self.note("time", ms)
        self.bench.clock.ms = ms
        self.oracle.time(ms)

    def advance(self, ms: int) -> None:
        self.time(self.bench.clock.ms + ms)

    def run_due(self, advance_ms: int = DELETE_DELAY_MS) -> None:
        """The delay is over: files that were renamed away go."""
        self.note("run_due", advance_ms)
        self.bench.clock.ms += advance_ms
        if EXPIRY_TASK in self.oracle.run_scheduled(advance_ms):
            self.log.expire_producers()
        self.bench.background.run_due()

    # Asking both the same

    def read(self, offset: Offset, max_bytes: int, isolation: Isolation, *, min_one: bool = True) -> object:
        def ours() -> object:
            read = self.log.read(offset, max_bytes, isolation, min_one=min_one)
            return _with_aborted(bytes_of(read), [(txn.producer_id, txn.first_offset) for txn in read.aborted])

        def theirs() -> object:
            read = self.oracle.read(offset, max_bytes, ISOLATION[isolation], min_one=min_one)
            return _with_aborted(read.data, read.aborted or [])

        return self.compare_answers("read", ours, theirs, offset, max_bytes, isolation.name, min_one)

    def offset_for_time(self, timestamp: int) -> object:
        def ours() -> object:
            position = self.log.offset_for_time(timestamp)
            return None if position is None else tuple(position)

        return self.compare_answers(
            "offset_for_time", ours, lambda: self.oracle.offset_for_timestamp(timestamp), timestamp
        )

    def assert_same_state(self) -> None:
        ours, theirs = state_of(self.log), _comparable(self.oracle.state())
        for key in theirs:
            assert ours[key] == theirs[key], self.failure(f"{key}: Leadline has {ours[key]}, Kafka {theirs[key]}")

    def assert_same_names(self) -> None:
        """While the logs are open."""
        ours, theirs = _names(self.ours), [name for name in _names(self.theirs) if name not in self.dropped]
        assert ours == theirs, self.failure(f"Leadline has the files {ours}, Kafka {theirs}")

    def assert_same_files(self) -> None:
        """After a clean close: each file, byte for byte, except files to be deleted, which are not truncated."""
        self.assert_same_names()
        ours, theirs = files_in(self.ours), files_in(self.theirs)
        assert ours.keys() == theirs.keys(), self.failure(f"Leadline has the files {list(ours)}, Kafka {list(theirs)}")
        for name in ours:
            if ours[name] != theirs[name]:
                raise AssertionError(self.failure(_difference(name, ours[name], theirs[name])))


def files_in(directory: Path) -> dict[str, bytes]:
    names = sorted(name for name in os.listdir(directory) if not name.endswith((".deleted", REMOVED)))
    return {name: (directory / name).read_bytes() for name in names}


def _names(directory: Path) -> list[str]:
    """Without the indexes of segments that have no records: Kafka makes them when it is first asked about them.

    And without what recovery removed, which Leadline alone keeps.
    """
    empty = {path.stem for path in directory.glob("*.log") if path.stat().st_size == 0}
    names = (name for name in os.listdir(directory) if not name.endswith(("index.deleted", REMOVED)))
    return sorted(name for name in names if not (name.endswith("index") and name.partition(".")[0] in empty))


def _difference(name: str, ours: bytes, theirs: bytes) -> str:
    at = next((n for n, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    around = slice(max(at - 16, 0), at + 48)
    return (
        f"{name}: {len(ours)} bytes by Leadline, {len(theirs)} by Kafka, different from byte {at} on:\n"
        f"  {ours[around].hex(' ')}\n  {theirs[around].hex(' ')}"
    )


def _with_aborted(data: bytes, aborted: list[tuple[int, Offset]]) -> object:
    return data, within(data, aborted)


def within(data: bytes, aborted: list[tuple[int, Offset]]) -> list[tuple[int, Offset]]:
    """The aborted transactions, by producer and first offset, that matter to who got these bytes.

    Kafka's list may go on: where the bytes end at the position of a segment's first index entry, it looks one further.
    """
    end = max((header.last_offset for _, header in walk(data)), default=-1)
    return [(producer, first) for producer, first in aborted if first <= end]


def _brief(batch: bytes) -> str:
    """A batch in one line."""
    if len(batch) < HEADER_BYTES:
        return f"{len(batch)} bytes"
    header = header_at(batch)
    marks = [word for word, on in (("transactional", header.is_transactional), ("control", header.is_control)) if on]
    producer = f" producer {header.producer_id}/{header.producer_epoch}@{header.base_sequence}"
    where = f"{header.base_offset}+{header.last_offset_delta} epoch {header.leader_epoch}"
    return " ".join([f"<{where}{producer if header.producer_id >= 0 else ''}", *marks, f"{len(batch)} bytes>"])


def state_of(log: Log) -> dict[str, object]:
    """What a log knows, under the names of the oracle; looks without touching, as loading an index leaves a trace."""
    first_unstable = log._first_unstable
    return {
        "log_start_offset": log.log_start,
        "log_end_offset": log.log_end,
        "high_watermark": log.high_watermark,
        "last_stable_offset": log.last_stable_offset,
        "first_unstable_offset": first_unstable,
        "recovery_point": log.recovery_point,
        "producer_state_end_offset": log.producer_state.end_offset,
        "topic_id": None if log.topic_id is None else format_id(log.topic_id),
        "segments": [_segment(segment) for segment in log.segments],
        "epochs": [tuple(entry) for entry in log.epochs.entries],
        "producers": {id: _producer(id, entry) for id, entry in log.producer_state.by_id.items()},
    }


def _comparable(state: State) -> dict[str, object]:
    return {
        **state,
        "segments": [_kafka_segment(segment) for segment in state["segments"]],
        "producers": {producer["id"]: producer for producer in state["producers"]},
    }


def _segment(segment: Segment) -> tuple[Offset, int, int, Offset]:
    timestamp, offset = segment._newest or _last_time(segment)
    return segment.base_offset, segment.size, timestamp, offset


def _last_time(segment: Segment) -> tuple[int, Offset]:
    path = Path(segment.path(".timeindex"))
    data = path.read_bytes() if path.exists() else b""
    if len(data) < _TIME_ENTRY.size:
        return -1, segment.base_offset
    timestamp, relative = _TIME_ENTRY.unpack_from(data, (len(data) // _TIME_ENTRY.size - 1) * _TIME_ENTRY.size)
    return timestamp, segment.base_offset + relative


def _kafka_segment(segment: KafkaSegment) -> tuple[Offset, int, int, Offset]:
    return (
        segment["base_offset"],
        segment["size"],
        segment["max_timestamp"],
        segment["max_timestamp_offset"],
    )


def _producer(id: int, entry: ProducerEntry) -> KafkaProducer:
    first = entry.batches[0].first_sequence if entry.batches else -1
    return {
        "id": id,
        "epoch": entry.epoch,
        "first_sequence": first,
        "last_sequence": entry.last_sequence,
        "last_offset": entry.last_offset,
        "last_timestamp": entry.last_timestamp,
        "coordinator_epoch": entry.coordinator_epoch,
        "current_txn_first_offset": entry.txn_first_offset,
        "batches": [
            {
                "last_sequence": batch.last_sequence,
                "last_offset": batch.last_offset,
                "offset_delta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
            for batch in entry.batches
        ],
    }


def batches_in(data: bytes) -> Iterator[bytes]:
    """Each whole batch."""
    while len(data) >= 12 and len(data) >= (size := 12 + int.from_bytes(data[8:12], "big")):
        yield data[:size]
        data = data[size:]

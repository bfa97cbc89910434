"""Kafka's own storage classes as an oracle: what would the real thing write, answer, or refuse?

One long-lived JVM holds at most one open log. There is no ZooKeeper, no network, no thread of Kafka's and no clock
but ours: time stands still until `time` or `run_scheduled` moves it, and delayed work waits for `run_scheduled`.
Only the modification times of files are the machine's.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self, cast

from .answers import (
    AbortedTransaction,
    Appended,
    Batch,
    Cleaned,
    Codec,
    Header,
    Isolation,
    Origin,
    Producer,
    Read,
    Record,
    State,
    TimestampType,
)
from .channel import Channel, channel, from_text, to_text

START_MS = 1_700_000_000_000  # what the clock shows at first

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3  # for offset_for_timestamp


class Oracle:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[Self]:
        with channel() as to_jvm:
            yield cls(to_jvm)

    def reset(self) -> None:
        """As after start: no log is open, the clock shows START_MS."""
        self.abandon()
        self.time(START_MS)

    def warnings(self) -> str:
        """What Kafka logged so far, warnings and above."""
        return self._channel.warnings()

    def ask(self, op: str, **arguments: object) -> Any:
        """For tests that use other parts of Kafka through the same JVM."""
        return self._channel.ask(op, **arguments)

    # The clock and the life of a log

    def time(self, ms: int) -> None:
        self._channel.ask("time", ms=ms)

    def run_scheduled(self, advance_ms: int = 0) -> list[str]:
        """Moves the clock, then runs the delayed tasks that are due; their names, in order."""
        return cast(list[str], self._channel.ask("run_scheduled", advance_ms=advance_ms))

    def open(
        self,
        dir: Path,
        config: Mapping[str, str] | None = None,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        topic_id: str | None = None,
        producer_id_expiration_ms: int = 86_400_000,
        verify_transactions: bool = False,
    ) -> None:
        """Loads the log in a folder named TOPIC-PARTITION; recovers it unless `clean`. One still open is abandoned."""
        self._channel.ask(
            "open",
            dir=str(dir),
            config=dict(config or {}),
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            topic_id=topic_id,
            producer_id_expiration_ms=producer_id_expiration_ms,
            verify_transactions=verify_transactions,
        )

    def close(self) -> None:
        """Flush all, then close, as a controlled shutdown does. Delayed tasks are lost."""
        self._channel.ask("close")

    def abandon(self) -> None:
        """Let go of the log without closing it. The files stay as a killed process leaves them."""
        self._channel.ask("abandon")

    # Changes

    def append_leader(
        self, batches: bytes, epoch: int, origin: Origin = "CLIENT", *, verified: bool = False
    ) -> Appended:
        """`verified`: the coordinator confirmed the transaction; matters only if opened with verify_transactions."""
        answer = self._channel.ask(
            "append_leader", batches=to_text(batches), epoch=epoch, origin=origin, verified=verified
        )
        return Appended(**answer)

    def append_follower(self, batches: bytes) -> Appended:
        return Appended(**self._channel.ask("append_follower", batches=to_text(batches)))

    def roll(self) -> int:
        """The base offset of the new active segment."""
        return cast(int, self._channel.ask("roll"))

    def flush(self) -> int:
        """Flushes up to the log's end, as the periodic flush does; the new recovery point."""
        return cast(int, self._channel.ask("flush"))

    def truncate_to(self, offset: int) -> bool:
        """Whether there was anything to truncate."""
        return cast(bool, self._channel.ask("truncate_to", offset=offset))

    def truncate_fully_and_start_at(self, offset: int, log_start_offset: int | None = None) -> None:
        self._channel.ask("truncate_fully_and_start_at", offset=offset, log_start_offset=log_start_offset)

    def high_watermark(self, offset: int) -> int:
        """Sets it, up or down, within the log's start and end; what it became."""
        return cast(int, self._channel.ask("high_watermark", offset=offset))

    def delete_records(self, offset: int) -> bool:
        """Moves the log's start offset as DeleteRecords does; whether it moved."""
        return cast(bool, self._channel.ask("delete_records", offset=offset))

    def delete_old_segments(self) -> int:
        """Retention by time, size and log start offset; how many segments went. Files go after file.delete.delay.ms."""
        return cast(int, self._channel.ask("delete_old_segments"))

    def update_config(self, config: Mapping[str, str]) -> None:
        """Replaces the whole configuration; what is not named has Kafka's default."""
        self._channel.ask("update_config", config=dict(config))

    def remove_expired_producers(self) -> None:
        self._channel.ask("remove_expired_producers")

    # Questions

    def state(self) -> State:
        state = self._channel.ask("state")
        state["epochs"] = [tuple(entry) for entry in state["epochs"]]
        return cast(State, state)

    def read(self, offset: int, max_bytes: int, isolation: Isolation = "LOG_END", *, min_one: bool = True) -> Read:
        answer = self._channel.ask("read", offset=offset, max_bytes=max_bytes, isolation=isolation, min_one=min_one)
        aborted = answer["aborted"]
        pairs = None if aborted is None else [tuple(pair) for pair in aborted]
        return Read(**answer | {"data": base64.b64decode(answer["data"]), "aborted": pairs})

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int, int | None] | None:
        """Timestamp, offset and leader epoch. Also takes LATEST, EARLIEST and MAX_TIMESTAMP."""
        answer = self._channel.ask("offset_for_timestamp", timestamp=timestamp)
        return None if answer is None else (answer[0], answer[1], answer[2])

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The largest epoch up to this one, and where it ends."""
        answer = self._channel.ask("end_offset_for_epoch", epoch=epoch)
        return None if answer is None else (answer[0], answer[1])

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        return [AbortedTransaction(**aborted) for aborted in self._channel.ask("aborted", start=start, end=end)]

    # Compaction

    def cleanable_offsets(self, last_clean_offset: int | None = None) -> tuple[int, int]:
        """First dirty and first uncleanable offset, as the cleaner would choose them now."""
        first_dirty, first_uncleanable = self._channel.ask("cleanable_offsets", last_clean_offset=last_clean_offset)
        return first_dirty, first_uncleanable

    def clean(
        self,
        first_dirty_offset: int,
        first_uncleanable_offset: int,
        *,
        dedupe_buffer_size: int = 1 << 20,
        io_buffer_size: int = 256 << 10,
        max_io_buffer_size: int = 1_048_588,
        now: int | None = None,
    ) -> Cleaned:
        """One run of the cleaner. `now` also moves the clock.

        A key takes 24 bytes of the dedupe buffer, of which a tenth stays free.
        """
        answer = self._channel.ask(
            "clean",
            first_dirty_offset=first_dirty_offset,
            first_uncleanable_offset=first_uncleanable_offset,
            dedupe_buffer_size=dedupe_buffer_size,
            io_buffer_size=io_buffer_size,
            max_io_buffer_size=max_io_buffer_size,
            now=now,
        )
        return Cleaned(**answer)

    # Batches, without a log

    def build(
        self,
        codec: Codec,
        records: Iterable[Record | tuple[int, bytes | None, bytes | None, Iterable[Header]]],
        *,
        base_offset: int = 0,
        last_offset: int | None = None,
        leader_epoch: int = -1,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        timestamp_type: TimestampType = "CreateTime",
        log_append_time: int = -1,
        delete_horizon_ms: int = -1,
        magic: int = 2,
    ) -> bytes:
        """One batch. For gaps, give records an offset, or a last_offset beyond them.

        Without records, last_offset is a must, and log_append_time is the timestamp of either type.
        """
        answer = self._channel.ask(
            "build",
            codec=codec,
            records=[_record_json(Record(*record)) for record in records],
            base_offset=base_offset,
            last_offset=last_offset,
            leader_epoch=leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
            control=control,
            timestamp_type=timestamp_type,
            log_append_time=log_append_time,
            delete_horizon_ms=delete_horizon_ms,
            magic=magic,
        )
        return base64.b64decode(answer)

    def end_transaction_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        timestamp: int = START_MS,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        answer = self._channel.ask(
            "end_transaction_marker",
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=timestamp,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )
        return base64.b64decode(answer)

    def parse(self, data: bytes) -> list[Batch]:
        """The whole batches in these bytes."""
        batches = self._channel.ask("parse", data=to_text(data))
        return [Batch(**batch | {"records": [_record(record) for record in batch["records"]]}) for batch in batches]

    # The files of a log directory

    def checkpoint_write(self, path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
        """Offsets by topic and partition, written in the order given."""
        entries = [(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._channel.ask("checkpoint_write", file=str(path), offsets=entries)

    def checkpoint_read(self, path: Path) -> dict[tuple[str, int], int]:
        entries = self._channel.ask("checkpoint_read", file=str(path))
        return {(topic, partition): offset for topic, partition, offset in entries}

    def clean_shutdown_file(self, dir: Path, broker_epoch: int) -> None:
        self._channel.ask("clean_shutdown_file", dir=str(dir), broker_epoch=broker_epoch)

    def meta_properties(self, dir: Path, cluster_id: str, broker_id: int) -> None:
        """Version 0, as ZooKeeper mode has it."""
        self._channel.ask("meta_properties", dir=str(dir), cluster_id=cluster_id, broker_id=broker_id)

    def producer_snapshot(self, path: Path) -> list[Producer]:
        return cast(list[Producer], self._channel.ask("producer_snapshot", file=str(path)))

    def dump(self, *arguments: str | Path) -> str:
        """DumpLogSegments without a JVM of its own: `dump("--files", path)`. Has what it prints on stderr, too."""
        return cast(str, self._channel.ask("dump", arguments=[str(argument) for argument in arguments]))


def _record_json(record: Record) -> dict[str, object]:
    return {
        "timestamp": record.timestamp,
        "key": to_text(record.key),
        "value": to_text(record.value),
        "headers": [(key, to_text(value)) for key, value in record.headers],
        "offset": record.offset,
    }


def _record(answer: dict[str, Any]) -> Record:
    return Record(
        answer["timestamp"],
        from_text(answer["key"]),
        from_text(answer["value"]),
        tuple((key, from_text(value)) for key, value in answer["headers"]),
        answer["offset"],
    )

"""The same operations leave the same files, byte for byte: logs, indexes, snapshots, epochs and metadata."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from leadline.log.producer_state import AppendOrigin
from tests.conformance.kafka.answers import Codec, Record
from tests.conformance.kafka.oracle import START_MS, Oracle
from tests.conformance.pair import Pair

pytestmark = pytest.mark.conformance

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAKg"
NOBODY = (-1, -1, -1)


class LogPair:
    """A pair of logs and short ways to what producers and coordinators send."""

    def __init__(self, oracle: Oracle, parent: Path, settings: Mapping[str, str] | None = None) -> None:
        self.oracle, self.pair = oracle, Pair(oracle, parent, settings)
        self.pair.open()

    def batch(
        self,
        count: int = 3,
        size: int = 50,
        codec: Codec = "none",
        *,
        at: int | None = 0,
        producer: tuple[int, int, int] = NOBODY,
        transactional: bool = False,
        base_offset: int = 0,
        leader_epoch: int = -1,
    ) -> bytes:
        """`at`: milliseconds since the start; None: the records carry no time. `producer`: id, epoch, sequence."""
        times = [-1 if at is None else START_MS + at + n for n in range(count)]
        return self.oracle.build(
            codec,
            [Record(time, f"k{n}".encode(), b"v" * size) for n, time in enumerate(times)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )

    def append(self, epoch: int = 0, *, count: int = 3, size: int = 50, at: int | None = 0) -> None:
        self.pair.append(self.batch(count, size, at=at), epoch)

    def send(
        self, producer: int, sequence: int, *, epoch: int = 0, transactional: bool = False, count: int = 2
    ) -> None:
        self.pair.append(self.batch(count, producer=(producer, epoch, sequence), transactional=transactional))

    def end(self, producer: int, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0) -> None:
        marker = self.oracle.end_transaction_marker(
            producer,
            epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=self.pair.bench.clock.ms,
        )
        self.pair.append(marker, 0, AppendOrigin.COORDINATOR)

    def close_and_compare(self) -> list[str]:
        """Close both and compare every byte; the names of the files."""
        self.pair.assert_same_state()
        self.pair.close()
        self.pair.assert_same_files()
        return sorted(path.name for path in self.pair.ours.iterdir())


@pytest.fixture
def logs(oracle: Oracle, tmp_path: Path) -> Callable[..., LogPair]:
    def make(**settings: object) -> LogPair:
        return LogPair(oracle, tmp_path, {name.replace("_", "."): str(value) for name, value in settings.items()})

    return make


NewLogs = Callable[..., LogPair]


def kinds(names: Iterable[str]) -> set[str]:
    return {name.partition(".")[2] if name[0].isdigit() else name for name in names}


def test_a_log_that_was_only_opened_has_the_same_files(logs: NewLogs) -> None:
    assert len(logs().close_and_compare()) == 4


def test_the_topic_id_is_written_the_same(oracle: Oracle, tmp_path: Path) -> None:
    pair = Pair(oracle, tmp_path)
    pair.open(topic_id=TOPIC_ID)
    pair.append(oracle.build("none", [Record(START_MS, None, b"v")]))
    pair.assert_same_state()
    pair.close()
    pair.assert_same_files()
    assert "partition.metadata" in {path.name for path in pair.ours.iterdir()}


def test_batches_of_every_codec_are_stored_the_same(logs: NewLogs) -> None:
    at = logs()
    for codec in CODECS:
        at.pair.append(at.batch(20, 300, codec))
    at.close_and_compare()


def test_many_small_batches_fill_the_same_index_entries_and_segments(logs: NewLogs) -> None:
    at = logs(segment_bytes=10_000, index_interval_bytes=1000)
    for n in range(150):
        at.append(count=1 + n % 3, at=(n * 7919) % 1000)
    names = at.close_and_compare()
    assert sum(name.endswith(".log") for name in names) > 2


def test_an_interval_of_zero_indexes_the_same_batches(logs: NewLogs) -> None:
    at = logs(index_interval_bytes=0)
    for n in range(40):
        at.append(at=n * 10)
    at.close_and_compare()


def test_large_batches_past_the_index_interval_are_indexed_the_same(logs: NewLogs) -> None:
    at = logs(segment_bytes=100_000)
    for n in range(30):
        at.append(size=3000, at=n)
    at.close_and_compare()


@pytest.mark.parametrize("by", ["record time", "broker time"])
def test_a_log_rolls_by_age_where_kafkas_does(logs: NewLogs, by: str) -> None:
    at = logs(segment_ms=1000, index_interval_bytes=100)
    for n in range(12):
        at.append(at=n * 300 if by == "record time" else None)
        at.pair.advance(300)
    names = at.close_and_compare()
    assert sum(name.endswith(".log") for name in names) > 2


def test_a_log_rolls_at_a_full_index_where_kafkas_does(logs: NewLogs) -> None:
    at = logs(segment_index_bytes=64, index_interval_bytes=0)
    for n in range(40):
        at.append(at=n)
    names = at.close_and_compare()
    assert sum(name.endswith(".log") for name in names) > 4


def test_a_log_rolls_where_four_bytes_cannot_hold_the_relative_offset(logs: NewLogs) -> None:
    at = logs()
    for base in (0, 3, (1 << 31) - 1, (1 << 31) + 5, 1 << 33):
        at.pair.replicate(at.batch(base_offset=base, leader_epoch=1))
    names = at.close_and_compare()
    assert sum(name.endswith(".log") for name in names) == 3


def test_log_append_times_are_written_the_same(logs: NewLogs) -> None:
    at = logs(message_timestamp_type="LogAppendTime", index_interval_bytes=200, segment_bytes=3000)
    for codec in CODECS * 4:
        at.pair.advance(7)
        at.pair.append(at.batch(4, codec=codec, producer=(5, 0, 0)))
        at.pair.append(at.batch(4, codec=codec))
    at.close_and_compare()


def test_records_without_timestamps_are_stored_the_same(logs: NewLogs) -> None:
    at = logs(index_interval_bytes=100)
    for _ in range(5):
        at.append(at=None)
    at.close_and_compare()


def test_several_leader_epochs_are_written_the_same(logs: NewLogs) -> None:
    at = logs(segment_bytes=500)
    for n, epoch in enumerate((0, 0, 1, 4, 4, 9)):
        at.append(epoch, at=n)
    at.pair.high_watermark(18)
    at.pair.delete_records(10)
    at.close_and_compare()


def test_a_follower_takes_several_batches_at_once(logs: NewLogs) -> None:
    at = logs(index_interval_bytes=150)
    offset = 0
    for round in range(8):
        together = b""
        for n in range(4):
            together += at.batch(
                base_offset=offset,
                leader_epoch=round // 3,
                at=100 * round - n,
                producer=(n, 0, 3 * round),
            )
            offset += 3 + n
        at.pair.replicate(together)
    at.close_and_compare()


def test_idempotent_producers_and_their_duplicates_leave_the_same_files(logs: NewLogs) -> None:
    at = logs(segment_bytes=700)
    for n in range(7):
        for producer in (3, 19, 1 << 40):
            at.send(producer, 2 * n)
    for n in range(7):
        at.send(19, 2 * n)  # only the last five are known as duplicates
    at.pair.assert_same_state()
    at.close_and_compare()


def test_expired_producers_leave_the_same_files(logs: NewLogs) -> None:
    at = logs(segment_bytes=900)
    for producer in range(40):
        at.send(producer * 24, 0)
        at.pair.advance(3_600_000)
        if producer % 5 == 4:
            at.pair.expire_producers()
            at.pair.assert_same_state()
    at.pair.roll()
    at.send(24, 7)
    at.close_and_compare()


def test_a_producer_whose_sequence_numbers_start_over_leaves_the_same_files(logs: NewLogs) -> None:
    at = logs()
    at.send(7, (1 << 31) - 3, count=2)
    at.send(7, (1 << 31) - 1, count=3)
    at.send(7, 2)
    at.close_and_compare()


def test_interleaved_transactions_leave_the_same_files(logs: NewLogs) -> None:
    at = logs(segment_bytes=600)
    at.send(1, 0, transactional=True)
    at.send(2, 0, transactional=True)
    at.end(1, commit=False)
    at.send(3, 0, transactional=True)
    at.send(1, 2, transactional=True)
    at.append()
    at.end(2, commit=False)
    at.end(1, commit=True)
    at.send(2, 2, transactional=True, epoch=0)
    at.end(3, commit=False, coordinator_epoch=4)
    at.end(2, commit=False, epoch=3)
    names = at.close_and_compare()
    assert sum(name.endswith(".txnindex") for name in names) >= 2


@pytest.mark.parametrize("offset", [0, 3, 4, 15, 21, 29])
def test_a_truncated_log_has_the_same_files(logs: NewLogs, offset: int) -> None:
    at = logs(segment_bytes=600, index_interval_bytes=150)
    for n in range(3):
        at.append(n)
        at.send(9, 2 * n, transactional=True)
        at.end(9, commit=n % 2 == 0)
        at.send(11, 2 * n)
        at.append(n)
    at.pair.high_watermark(offset)
    at.pair.truncate_to(offset)
    at.pair.assert_same_state()
    at.append(7)
    at.send(11, 0, epoch=1)
    at.close_and_compare()


@pytest.mark.parametrize("log_start", [None, 40])
def test_a_fully_truncated_log_has_the_same_files(logs: NewLogs, log_start: int | None) -> None:
    at = logs(segment_bytes=400)
    for n in range(5):
        at.send(9, 2 * n)
    at.pair.truncate_fully_and_start_at(50, log_start)
    at.pair.assert_same_state()
    at.append(3)
    at.close_and_compare()


def test_deleted_records_leave_the_same_files(logs: NewLogs) -> None:
    at = logs(segment_bytes=400)
    for n in range(10):
        at.send(9, 2 * n)
    at.pair.high_watermark(20)
    at.pair.delete_records(9)
    at.pair.delete_old_segments()
    at.pair.assert_same_names()
    at.pair.run_due()
    at.pair.reopen()
    at.append(1)
    at.close_and_compare()


@pytest.mark.parametrize(
    "settings",
    [{"retention_ms": 1000}, {"retention_bytes": 900}, {"retention_bytes": 0}, {"retention_ms": 0}],
    ids=str,
)
def test_the_same_old_segments_are_deleted(logs: NewLogs, settings: Mapping[str, int]) -> None:
    at = logs(segment_bytes=400, **settings)
    for n in range(10):
        at.append(n // 4, at=500 * n)
        at.send(9, 2 * n)
    at.pair.high_watermark(45)
    at.pair.advance(3000)
    at.pair.delete_old_segments()
    at.pair.assert_same_state()
    at.pair.assert_same_names()
    at.pair.run_due()
    at.pair.assert_same_names()
    at.append(5)
    at.close_and_compare()


def test_settings_that_change_meanwhile_leave_the_same_files(logs: NewLogs) -> None:
    at = logs()
    for settings in ({"segment.bytes": "500"}, {"message.timestamp.type": "LogAppendTime"}, {"segment.ms": "10"}):
        at.append()
        at.pair.update_config(settings)
        for _ in range(4):
            at.pair.advance(20)
            at.append()
    at.close_and_compare()


def test_a_log_that_is_stopped_and_started_repeatedly_has_the_same_files(logs: NewLogs) -> None:
    at = logs(segment_bytes=800, index_interval_bytes=200)
    for n in range(6):
        at.pair.reopen()
        at.pair.assert_same_state()
        at.append(n)
        at.send(4, 4 * n)
        at.send(4, 4 * n + 2, transactional=n % 2 == 0)
        at.end(4, commit=False)
    assert kinds(at.close_and_compare()) >= {
        "log",
        "index",
        "timeindex",
        "txnindex",
        "snapshot",
        "leader-epoch-checkpoint",
    }


def test_an_empty_segment_is_replaced_by_the_next_roll(logs: NewLogs) -> None:
    at = logs()
    at.append()
    at.pair.roll()
    at.pair.roll()
    at.pair.assert_same_state()
    at.pair.run_due()
    at.append()
    at.close_and_compare()

"""A directory left behind by a crash, by a bad disk or by the other broker: Leadline and Kafka make the same of it.

Each gets a copy. What they know afterwards must agree, and after a clean close so must every file.
The seeds are fixed: the same damage every time.
"""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.log.log import Log
from leadline.log.producer_state import AppendOrigin
from leadline.model import TopicPartition
from tests.conformance.kafka.answers import Codec, Producer, Record
from tests.conformance.kafka.oracle import START_MS, Oracle
from tests.conformance.pair import Pair, files_in
from tests.support.logs import LogBench

pytestmark = pytest.mark.conformance

SETTINGS = {"segment.bytes": "1600", "index.interval.bytes": "250", "segment.index.bytes": "4000"}
CODECS: tuple[Codec, ...] = ("none", "none", "gzip", "lz4")
TXN_ENTRY_BYTES = 34


class History:
    """A random past: the batches that a leader was given, with the epoch and the origin of each."""

    def __init__(self, oracle: Oracle, seed: int, batches: int = 40) -> None:
        self.random = random.Random(seed)
        self.oracle = oracle
        self.sequences = dict.fromkeys((5, 21, 37), 0)
        self.open: set[int] = set()
        self.entries = [self._next(n) for n in range(batches)]

    def _next(self, n: int) -> tuple[bytes, int, AppendOrigin]:
        chosen = self.random
        epoch, now = n // 12, START_MS + 100 * n
        producer = chosen.choice([None, *self.sequences])
        if producer in self.open and chosen.random() < 0.5:
            self.open.discard(producer)
            commit = chosen.random() < 0.4
            return (
                self.oracle.end_transaction_marker(producer, 0, commit=commit, timestamp=now),
                epoch,
                AppendOrigin.COORDINATOR,
            )
        records = [
            Record(now + chosen.randint(-150, 50), f"k{i}".encode(), bytes(chosen.choices(b"xyz", k=60)))
            for i in range(chosen.randint(1, 5))
        ]
        codec = chosen.choice(CODECS)
        if producer is None:
            return self.oracle.build(codec, records), epoch, AppendOrigin.CLIENT
        transactional = producer in self.open or chosen.random() < 0.6
        if transactional:
            self.open.add(producer)
        sequence = self.sequences[producer]
        self.sequences[producer] += len(records)
        batch = self.oracle.build(
            codec,
            records,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
        )
        return batch, epoch, AppendOrigin.CLIENT

    def by_kafka(self, directory: Path, end: str) -> None:
        self.oracle.open(directory, SETTINGS, clean=True)
        for batch, epoch, origin in self.entries:
            self.oracle.append_leader(batch, epoch, "CLIENT" if origin is AppendOrigin.CLIENT else "COORDINATOR")
        self.oracle.close() if end == "close" else self.oracle.abandon()

    def by_leadline(self, directory: Path, end: str) -> None:
        bench = LogBench(directory.parent, SETTINGS)
        log = bench.open()
        for batch, epoch, origin in self.entries:
            log.append_as_leader(bytearray(batch), epoch, origin)
        if end == "close":
            log.close()
        bench.directory.rename(directory)


Writer = Callable[[History, Path, str], None]
WRITERS: dict[str, Writer] = {"kafka": History.by_kafka, "leadline": History.by_leadline}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source" / "topic-0"


def logs_in(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def base_of(path: Path) -> int:
    return int(path.name.partition(".")[0])


def open_and_compare(pair: Pair, source: Path, *, clean: bool, recovery_point: int) -> Log:
    """Both open a copy, agree on all they know, and leave the same files."""
    pair.give(source)
    pair.open(clean=clean, recovery_point=recovery_point)
    pair.assert_same_state()
    end = pair.log.log_end
    pair.compare_answers(
        "aborted",
        lambda: [tuple(txn) for txn in pair.log.aborted_between(0, end)],
        lambda: [
            (txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for txn in pair.oracle.aborted(0, end)
        ],
    )
    log = pair.log
    pair.close()
    pair.assert_same_files()
    return log


@pytest.mark.parametrize("writer", WRITERS)
def test_a_log_after_a_clean_stop_is_opened_the_same(oracle: Oracle, tmp_path: Path, source: Path, writer: str) -> None:
    WRITERS[writer](History(oracle, 1), source, "close")
    log = open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=True, recovery_point=0)
    assert log.recovery_point == log.log_end > 0


@pytest.mark.parametrize("part", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("writer", WRITERS)
def test_a_log_after_a_crash_is_recovered_the_same(
    oracle: Oracle, tmp_path: Path, source: Path, writer: str, part: float
) -> None:
    WRITERS[writer](History(oracle, 2), source, "abandon")
    bases = [base_of(path) for path in logs_in(source)]
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=False, recovery_point=int(bases[-1] * part))


def cut(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.truncate(at)


def flip(path: Path, at: int, mask: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ mask]))


@pytest.mark.parametrize("seed", range(20))
def test_after_a_crash_with_a_torn_or_corrupt_log(oracle: Oracle, tmp_path: Path, source: Path, seed: int) -> None:
    chosen = random.Random(seed)
    WRITERS["kafka"](History(oracle, seed), source, "abandon")
    logs = logs_in(source)
    recovered = chosen.randrange(len(logs))
    victim = chosen.choice(logs[recovered:])
    size = victim.stat().st_size
    match chosen.randrange(4):
        case 0:
            cut(victim, chosen.randrange(size))
        case 1:
            flip(victim, chosen.randrange(size), 1 << chosen.randrange(8))
        case 2:
            with victim.open("ab") as file:
                file.write(bytes(chosen.randrange(1, 100)))
        case 3:
            with victim.open("ab") as file:
                file.write(chosen.randbytes(chosen.randrange(1, 200)))
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=False, recovery_point=base_of(logs[recovered]))


def damage(path: Path, chosen: random.Random) -> None:
    size = path.stat().st_size
    how = chosen.randrange(3)
    if how == 0:
        path.unlink()
    elif how == 1:
        cut(path, max(size - chosen.randrange(1, 8), 0))
    elif size:
        at = chosen.randrange(size)
        if path.suffix == ".txnindex" and at % TXN_ENTRY_BYTES < 2:
            at += 2  # a version that does not exist is noticed by Leadline alone; Kafka fails on it when it is read
        flip(path, at, 1 << chosen.randrange(8))


@pytest.mark.parametrize("seed", range(20))
def test_after_a_crash_with_missing_or_damaged_indexes_and_snapshots(
    oracle: Oracle, tmp_path: Path, source: Path, seed: int
) -> None:
    """Of the segments from the recovery point on; of the others, those that Kafka looks at."""
    chosen = random.Random(seed)
    WRITERS[chosen.choice(list(WRITERS))](History(oracle, seed), source, "abandon")
    recovery_point = base_of(chosen.choice(logs_in(source)))
    for kind in chosen.sample(["index", "timeindex", "txnindex", "snapshot"], 2):
        looked_at = kind in ("txnindex", "snapshot")
        files = [path for path in sorted(source.glob(f"*.{kind}")) if looked_at or base_of(path) >= recovery_point]
        if files:
            damage(chosen.choice(files), chosen)
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=False, recovery_point=recovery_point)


@pytest.mark.parametrize("kind", ["index", "txnindex"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_below_the_recovery_point_a_segment_without_an_index_is_recovered(
    oracle: Oracle, tmp_path: Path, source: Path, kind: str, clean: bool
) -> None:
    WRITERS["kafka"](History(oracle, 5), source, "close" if clean else "abandon")
    victim = next(path for path in sorted(source.glob(f"*.{kind}")) if base_of(path) > 0)
    if kind == "index":
        victim.unlink()
    else:  # a transaction that ended before the segment began
        victim.write_bytes(victim.read_bytes()[:18] + bytes(16))
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=clean, recovery_point=base_of(logs_in(source)[-1]))


@pytest.mark.parametrize("how", ["missing time index", "torn time index", "torn index", "entry past the end"])
def test_leadline_also_notices_damage_that_kafka_leaves_alone(
    oracle: Oracle, tmp_path: Path, source: Path, how: str
) -> None:
    """Kafka 3.8 does not look at these after a clean stop: what it then knows of the segment's times is wrong."""
    WRITERS["kafka"](History(oracle, 6), source, "close")
    whole = files_in(source)
    time_index, index = sorted(source.glob("*.timeindex"))[1], sorted(source.glob("*.index"))[1]
    match how:
        case "missing time index":
            time_index.unlink()
        case "torn time index":
            cut(time_index, time_index.stat().st_size - 5)
        case "torn index":
            cut(index, index.stat().st_size - 3)
        case _:
            flip(index, index.stat().st_size - 4, 0x10)
    after = opened_and_closed(source)
    newest = max(name for name in whole if name.endswith(".snapshot"))
    assert {name for name in after if name.endswith(".snapshot")} >= {newest}
    assert all(after[name] == whole[name] for name in whole if name == newest or not name.endswith(".snapshot"))


def test_leadline_learns_of_producers_again_where_kafka_starts_from_nothing(
    oracle: Oracle, tmp_path: Path, source: Path
) -> None:
    """Without any snapshot after a clean stop, Kafka takes it that there never were producers: what they wrote again
    would be there twice, and transactions that are open would count as done."""
    WRITERS["kafka"](History(oracle, 7), source, "close")
    newest = sorted(source.glob("*.snapshot"))[-1]
    producers = producers_in(oracle, newest)
    for path in source.glob("*.snapshot"):
        path.unlink()
    opened_and_closed(source)
    assert producers_in(oracle, newest) == producers != {}


def producers_in(oracle: Oracle, snapshot: Path) -> dict[int, Producer]:
    return {producer["id"]: producer for producer in oracle.producer_snapshot(snapshot)}


def opened_and_closed(directory: Path) -> dict[str, bytes]:
    """The files after Leadline started and stopped on them."""
    bench = LogBench(directory.parent, SETTINGS, tp=TopicPartition("topic", 0))
    bench.open().close()
    return files_in(directory)


@pytest.mark.parametrize("writer", WRITERS)
def test_without_any_file_but_the_logs(oracle: Oracle, tmp_path: Path, source: Path, writer: str) -> None:
    WRITERS[writer](History(oracle, 3), source, "abandon")
    for path in source.iterdir():
        if path.suffix != ".log":
            path.unlink()
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=False, recovery_point=0)


def test_recovering_what_was_recovered_changes_nothing(oracle: Oracle, tmp_path: Path, source: Path) -> None:
    WRITERS["kafka"](History(oracle, 4), source, "abandon")
    cut(logs_in(source)[-2], 700)
    pair = Pair(oracle, tmp_path, SETTINGS)
    open_and_compare(pair, source, clean=False, recovery_point=0)
    shutil.rmtree(source)
    pair.ours.rename(source)
    open_and_compare(pair, source, clean=False, recovery_point=0)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "crash"])
def test_a_compacted_segment_that_was_ready_takes_its_place(
    oracle: Oracle, tmp_path: Path, source: Path, clean: bool
) -> None:
    WRITERS["kafka"](History(oracle, 8), source, "close")
    first, second, third, *_ = logs_in(source)
    (source / f"{first.name}.swap").write_bytes(first.read_bytes() + second.read_bytes())
    for kind in ("index", "timeindex"):
        shutil.copy(first.with_suffix(f".{kind}"), source / f"{first.stem}.{kind}.swap")
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=clean, recovery_point=base_of(third))


@pytest.mark.parametrize("suffix", ["cleaned", "deleted"])
def test_leftovers_of_interrupted_work_go(oracle: Oracle, tmp_path: Path, source: Path, suffix: str) -> None:
    WRITERS["kafka"](History(oracle, 9), source, "close")
    for path in [*source.glob("*.log"), *source.glob("*.index")]:
        shutil.copy(path, source / f"{path.name}.{suffix}")
    (source / "00000000000000000000.timeindex.swap").write_bytes(b"")  # void beside a .cleaned
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=True, recovery_point=0)


def test_an_index_without_its_log_goes(oracle: Oracle, tmp_path: Path, source: Path) -> None:
    WRITERS["kafka"](History(oracle, 10), source, "close")
    for kind in ("index", "timeindex", "txnindex"):
        (source / f"00000000000000000777.{kind}").write_bytes(b"")
    open_and_compare(Pair(oracle, tmp_path, SETTINGS), source, clean=True, recovery_point=0)


def test_leadline_keeps_a_log_that_kafka_deletes_for_a_log_start_past_its_end(
    oracle: Oracle, tmp_path: Path, source: Path
) -> None:
    """One wrong number in log-start-offset-checkpoint, and Kafka deletes every segment."""
    WRITERS["kafka"](History(oracle, 11), source, "close")
    pair = Pair(oracle, tmp_path, SETTINGS)
    pair.give(source)
    pair.open(clean=True, log_start=1000)
    state = pair.oracle.state()
    assert (state["log_start_offset"], state["log_end_offset"]) == (1000, 1000)
    assert pair.log.log_start == 0 < pair.log.log_end < 1000


@pytest.mark.parametrize("log_start", [10, 60])
def test_the_log_starts_where_the_checkpoint_says(oracle: Oracle, tmp_path: Path, source: Path, log_start: int) -> None:
    WRITERS["leadline"](History(oracle, 11), source, "abandon")
    pair = Pair(oracle, tmp_path, SETTINGS)
    pair.give(source)
    pair.open(clean=False, log_start=log_start)
    pair.assert_same_state()
    pair.assert_same_names()
    pair.close()
    pair.assert_same_files()

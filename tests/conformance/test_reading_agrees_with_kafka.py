"""Reading and looking up: the same bytes from the same place, the same aborted transactions, times and epochs."""

import random
from functools import partial
from pathlib import Path

import pytest

from leadline.log.log import Isolation
from leadline.log.producer_state import AppendOrigin
from tests.conformance.kafka.answers import Codec, Record
from tests.conformance.kafka.oracle import START_MS, Oracle
from tests.conformance.pair import ISOLATION, Pair, within
from tests.support.logs import bytes_of

pytestmark = pytest.mark.conformance

SETTINGS = {"segment.bytes": "3000", "index.interval.bytes": "300", "segment.index.bytes": "4000"}
CODECS: tuple[Codec, ...] = ("none", "none", "zstd")
LATEST, EARLIEST, MAX, EARLIEST_LOCAL = -1, -2, -3, -4


def written(oracle: Oracle, parent: Path, seed: int, *, times: str = "CreateTime") -> Pair:
    """A log of a follower: many segments, gaps, transactions, several epochs, times that go back."""
    chosen = random.Random(seed)
    pair = Pair(oracle, parent, {**SETTINGS, "message.timestamp.type": times})
    pair.open()
    offset, sequences, open = 0, dict.fromkeys((3, 8, 11), 0), set[int]()
    for n in range(100):
        offset += chosen.choice((0, 0, 0, 0, 3))
        producer, epoch = chosen.choice([None, *sequences]), n // 21
        if producer in open and chosen.random() < 0.4:
            open.discard(producer)
            data = oracle.end_transaction_marker(
                producer, 0, commit=chosen.random() < 0.3, base_offset=offset, leader_epoch=epoch
            )
            pair.replicate(data)
            offset += 1
            continue
        count = chosen.randint(1, 6)
        records = [
            Record(START_MS + 50 * n + chosen.randint(-200, 60), b"k", bytes(chosen.choices(b"pq", k=40)))
            for _ in range(count)
        ]
        transactional, sequence = False, -1
        if producer is not None:
            transactional, sequence = producer in open or chosen.random() < 0.5, sequences[producer]
            sequences[producer] += count
            open |= {producer} if transactional else set()
        pair.replicate(
            oracle.build(
                chosen.choice(CODECS),
                records,
                base_offset=offset,
                leader_epoch=epoch,
                transactional=transactional,
                timestamp_type="LogAppendTime" if times == "LogAppendTime" else "CreateTime",
                log_append_time=START_MS + 50 * n if times == "LogAppendTime" else -1,
                producer_id=-1 if producer is None else producer,
                producer_epoch=-1 if producer is None else 0,
                base_sequence=sequence,
            )
        )
        offset += count
    pair.high_watermark(offset * 3 // 4)
    pair.delete_records(17)
    pair.assert_same_state()
    return pair


def read(pair: Pair, offset: int, max_bytes: int, isolation: Isolation, *, min_one: bool) -> bytes:
    """The same on both sides: the bytes, where they lie, and what was aborted among them."""

    def ours() -> object:
        fetched = pair.log.read(offset, max_bytes, isolation, min_one=min_one)
        if fetched.slice is None:
            return b""
        where = int(Path(fetched.slice.file.path).name.partition(".")[0]), fetched.slice.position
        aborted = [(txn.producer_id, txn.first_offset) for txn in fetched.aborted]
        return bytes_of(fetched), where, fetched.first_incomplete, within(bytes_of(fetched), aborted)

    def theirs() -> object:
        fetched = pair.oracle.read(offset, max_bytes, ISOLATION[isolation], min_one=min_one)
        if not fetched.data:
            return b""
        where = fetched.segment_base_offset, fetched.position
        return fetched.data, where, fetched.first_entry_incomplete, within(fetched.data, fetched.aborted or [])

    answer = pair.compare_answers("read", ours, theirs, offset, max_bytes, isolation.name, min_one)
    return answer[0] if isinstance(answer, tuple) else b""


@pytest.mark.parametrize("isolation", Isolation)
@pytest.mark.parametrize("seed", [1, 2])
def test_reads_at_random_offsets_return_the_same_bytes(
    oracle: Oracle, tmp_path: Path, seed: int, isolation: Isolation
) -> None:
    pair = written(oracle, tmp_path, seed)
    chosen = random.Random(seed)
    for _ in range(250):
        offset = chosen.randint(-2, pair.log.log_end + 2)
        max_bytes = chosen.choice((0, 1, 60, 61, 100, 500, 3000, 100_000))
        read(pair, offset, max_bytes, isolation, min_one=chosen.random() < 0.5)


def test_a_consumer_of_committed_records_walks_through_it_all(oracle: Oracle, tmp_path: Path) -> None:
    pair = written(oracle, tmp_path, 3)
    pair.high_watermark(pair.log.log_end)
    offset = pair.log.log_start
    steps = 0
    while data := read(pair, offset, 700, Isolation.COMMITTED, min_one=True):
        offset = pair.oracle.parse(data)[-1].last_offset + 1
        steps += 1
    assert steps > 10
    assert offset == pair.log.last_stable_offset


def test_offsets_out_of_range_are_refused_by_both(oracle: Oracle, tmp_path: Path) -> None:
    pair = written(oracle, tmp_path, 4)
    for offset in (-1, 0, 16, pair.log.log_end + 1, 1 << 40):
        for isolation in Isolation:
            assert read(pair, offset, 100, isolation, min_one=True) == b""
            assert "Refused(code=1" in repr(pair.read(offset, 100, isolation))


@pytest.mark.parametrize("times", ["CreateTime", "LogAppendTime"])
def test_times_lead_to_the_same_offsets(oracle: Oracle, tmp_path: Path, times: str) -> None:
    pair = written(oracle, tmp_path, 5, times=times)
    for timestamp in (LATEST, EARLIEST, MAX, EARLIEST_LOCAL, 0, 1, START_MS + 10_000):
        pair.offset_for_time(timestamp)
    for timestamp in range(START_MS - 300, START_MS + 5200, 13):
        pair.offset_for_time(timestamp)


def test_offsets_by_time_after_a_restart(oracle: Oracle, tmp_path: Path) -> None:
    pair = written(oracle, tmp_path, 6)
    pair.reopen()
    for timestamp in (MAX, LATEST, EARLIEST, *range(START_MS - 300, START_MS + 5200, 97)):
        pair.offset_for_time(timestamp)


def test_offsets_by_time_in_an_empty_log(oracle: Oracle, tmp_path: Path) -> None:
    pair = Pair(oracle, tmp_path)
    pair.open()
    for timestamp in (LATEST, EARLIEST, EARLIEST_LOCAL, 0, START_MS):
        pair.offset_for_time(timestamp)
    assert pair.offset_for_time(MAX) is None


def test_offsets_by_time_among_records_that_carry_none(oracle: Oracle, tmp_path: Path) -> None:
    pair = Pair(oracle, tmp_path, SETTINGS)
    pair.open()
    pair.append(oracle.build("none", [Record(-1, None, b"v"), Record(-1, None, b"v")]))
    for timestamp in (MAX, LATEST, 0):
        pair.offset_for_time(timestamp)


def test_the_largest_time_outlives_a_truncation(oracle: Oracle, tmp_path: Path) -> None:
    """Kafka forgets it without a lookup since the start, if the cut leaves no entry in the time index."""
    pair = Pair(oracle, tmp_path)
    pair.open()
    for n in range(3):
        pair.append(oracle.build("none", [Record(START_MS + n, b"k", b"v")]))
    pair.reopen()
    pair.log.truncate_to(2)
    oracle.truncate_to(2)
    assert oracle.offset_for_timestamp(MAX) is None
    position = pair.log.offset_for_time(MAX)
    assert position is not None
    assert (position.timestamp, position.offset) == (START_MS + 1, 1)


def test_epochs_end_at_the_same_offsets(oracle: Oracle, tmp_path: Path) -> None:
    pair = written(oracle, tmp_path, 7)

    def ours(epoch: int) -> object:
        end = pair.log.end_of_epoch(epoch)
        return None if end is None else tuple(end)

    for epoch in range(-1, 9):
        pair.compare_answers(
            "end_of_epoch", partial(ours, epoch), partial(pair.oracle.end_offset_for_epoch, epoch), epoch
        )


def test_aborted_transactions_between_any_two_offsets(oracle: Oracle, tmp_path: Path) -> None:
    """Kafka's lookup always starts at the log start; hence the test reads all of them."""
    pair = written(oracle, tmp_path, 8)
    pair.high_watermark(pair.log.log_end)
    chosen = random.Random(8)
    ranges = 0
    for _ in range(100):
        start = chosen.randint(pair.log.log_start, pair.log.log_end)
        answer = read(pair, start, chosen.randint(1, 5000), Isolation.COMMITTED, min_one=True)
        ranges += bool(answer)
    assert ranges > 50
    end = pair.log.log_end
    pair.compare_answers(
        "aborted",
        lambda: [tuple(txn) for txn in pair.log.aborted_between(pair.log.log_start, end)],
        lambda: [
            (txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset)
            for txn in pair.oracle.aborted(pair.log.log_start, end)
        ],
    )


def test_a_leaders_markers_are_read_as_they_were_written(oracle: Oracle, tmp_path: Path) -> None:
    pair = Pair(oracle, tmp_path)
    pair.open()
    batch = oracle.build(
        "none", [Record(START_MS, b"k", b"v")], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
    )
    pair.append(batch)
    pair.append(oracle.end_transaction_marker(1, 0, commit=False), 0, AppendOrigin.COORDINATOR)
    pair.high_watermark(2)
    data = read(pair, 0, 1000, Isolation.COMMITTED, min_one=True)
    assert [batch.control for batch in oracle.parse(data)] == [False, True]

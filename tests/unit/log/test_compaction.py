"""One pass over a log: what stays, what goes, and when; in this process."""

import random
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile
from leadline.log import compaction
from leadline.log.cleaner import cleanable, request_for
from leadline.log.compaction import CleanerThrottle
from leadline.log.compaction_request import CompactionRequest, LastRecord
from leadline.log.log import Log
from leadline.log.producer_state import AppendOrigin
from leadline.log.skimpy_offset_map import KEY_BYTES
from leadline.log.txn_index import AbortedTxn
from leadline.model import Buffer
from leadline.records import python_walker, walker
from leadline.records.batch import Header, header_at
from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader, body_of
from tests.support.logs import START_MS, LogBench, at_offset, batch, compact, listing, marker, records_in, whole_log

DAY_MS = 86_400_000


@pytest.fixture(params=["compiled", "python"], autouse=True)
def walk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it with the compiled walk over records and with the one in Python."""
    is_compiled = request.param == "compiled"
    chosen = request.getfixturevalue("compiled_walker") if is_compiled else python_walker
    use_walk(chosen, monkeypatch, is_compiled=is_compiled)


def use_walk(chosen: ModuleType, monkeypatch: pytest.MonkeyPatch, *, is_compiled: bool) -> None:
    monkeypatch.setattr(walker, "IS_COMPILED", is_compiled)
    for name in ("learn_keys", "retained", "joined", "whole_batches", "learn_plain", "clean_plain", "clean_packed"):
        monkeypatch.setattr(walker, name, getattr(chosen, name))


@pytest.fixture
def bench(tmp_path: Path) -> LogBench:
    return LogBench(tmp_path, {"cleanup.policy": "compact", "segment.bytes": "1000"})


def put(log: Log, key: str, value: str | None) -> None:
    data = build([Record(0, START_MS, key.encode(), None if value is None else value.encode())])
    log.append_as_leader(data, 0)
    log.advance_high_watermark(log.log_end)


def request(log: Log, bench: LogBench, cleaned_to: int = 0) -> CompactionRequest:
    target = cleanable(log, cleaned_to, bench.clock.ms)
    assert target is not None
    return request_for(target, StorageConfig(), bench.clock.ms)


def left(log: Log) -> dict[int, tuple[str, str | None]]:
    return {
        record.offset: ((record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in records_in(whole_log(log))
    }


def test_of_each_key_the_last_record_stays_at_its_offset(bench: LogBench) -> None:
    log = bench.open()
    for key, value in [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1"), ("b", "2")]:
        put(log, key, value)
    log.roll()
    put(log, "a", "3")  # in the active segment, which is not touched
    (group,) = compact(log, request(log, bench))
    assert left(log) == {2: ("a", "2"), 3: ("c", "1"), 4: ("b", "2"), 5: ("a", "3")}
    assert (group.bases, group.end_offset) == ([0], 5)
    assert (group.stats.records_read, group.stats.records_written, group.stats.keys) == (5, 3, 3)
    assert log.log_end == 6


def test_small_segments_become_one_and_large_ones_do_not(bench: LogBench) -> None:
    log = bench.open()
    for n in range(6):
        put(log, f"k{n}", "v" * 250)
        log.roll()
    groups = compact(log, request(log, bench))
    assert [group.bases for group in groups] == [[0, 1, 2], [3, 4, 5]]
    assert log.segments.bases == [0, 3, 6]
    assert sorted(left(log)) == [0, 1, 2, 3, 4, 5]


def test_a_tombstone_stays_for_its_time_and_then_goes(bench: LogBench) -> None:
    log = bench.open()
    put(log, "a", "1")
    put(log, "a", None)
    put(log, "b", "1")
    log.roll()
    compact(log, request(log, bench))
    assert left(log) == {1: ("a", None), 2: ("b", "1")}
    assert header_at(whole_log(log)).delete_horizon_ms == START_MS + DAY_MS
    put(log, "c", "1")
    log.roll()
    bench.clock.ms += DAY_MS - 1
    compact(log, request(log, bench, 3))
    assert 1 in left(log)
    put(log, "d", "1")
    log.roll()
    bench.clock.ms += 1
    compact(log, request(log, bench, 4))
    assert left(log) == {2: ("b", "1"), 3: ("c", "1"), 4: ("d", "1")}


def transaction(log: Log, producer_id: int, sequence: int, key: str, *, commit: bool, roll: bool = False) -> None:
    log.append_as_leader(batch(key=key, producer_id=producer_id, sequence=sequence, transactional=True), 0)
    if roll:
        log.roll()
    log.append_as_leader(marker(producer_id, commit=commit), 0, AppendOrigin.COORDINATOR)
    log.advance_high_watermark(log.log_end)


def keys(log: Log) -> list[str]:
    return [record.key.decode() for record in records_in(whole_log(log)) if record.key and len(record.key) == 2]


def test_aborted_records_go_and_do_not_count_as_the_last_of_their_key(bench: LogBench) -> None:
    log = bench.open()
    put(log, "a0", "kept")
    transaction(log, 1, 0, "a", commit=False)
    transaction(log, 2, 0, "b", commit=True)
    log.roll()
    compact(log, request(log, bench))
    assert keys(log) == ["a0", "b0"]


def test_an_abort_whose_marker_lies_in_the_active_segment_counts_too(bench: LogBench) -> None:
    log = bench.open()
    put(log, "a0", "kept")
    transaction(log, 1, 0, "a", commit=False, roll=True)
    compaction = request(log, bench)
    assert compaction.bases == [0]
    assert [txn.last_offset for txn in compaction.aborted_later] == [2]
    compact(log, compaction)
    assert keys(log) == ["a0"]


def test_a_commit_marker_outlives_the_pass_also_if_its_records_lie_in_another_group(bench: LogBench) -> None:
    bench.config = LogConfig.parse({"cleanup.policy": "compact", "segment.bytes": "200", "delete.retention.ms": "0"})
    log = bench.open()
    transaction(log, 1, 0, "a", commit=True, roll=True)
    for n in range(3):
        put(log, f"x{n}", "v" * 90)
    log.roll()
    for cleaned_to in (0, 1):
        bench.clock.ms += DAY_MS
        compact(log, request(log, bench, cleaned_to))
    assert any(header.is_control for segment in log.segments for _, header in segment.headers())
    assert "a0" in keys(log)
    again = bench.open(clean=False)
    assert again.producer_state.first_unstable_offset() is None


def test_a_marker_goes_once_nothing_of_its_transaction_is_left_and_its_time_is_over(bench: LogBench) -> None:
    log = bench.open()
    transaction(log, 1, 0, "a", commit=False)
    put(log, "x", "1")
    log.roll()
    sizes = []
    for cleaned_to in (0, 3, 3):
        compaction = replace(request(log, bench, 0), producers={}, first_dirty=0)
        compact(log, compaction)
        sizes.append(len(list(log.segments.first.batches())))
        bench.clock.ms += DAY_MS + cleaned_to
    assert sizes[0] == 2, "the marker is still there, with a horizon"
    assert sizes[-1] == 1


def test_the_last_batch_of_a_live_producer_stays_as_a_header(bench: LogBench) -> None:
    log = bench.open()
    log.append_as_leader(batch(key="a", producer_id=7, sequence=4), 0)
    put(log, "a0", "newer")
    log.roll()
    compaction = request(log, bench)
    assert compaction.producers == {7: LastRecord(0, 0)}
    compact(log, compaction)
    assert left(log) == {1: ("a0", "newer")}
    assert header_at(whole_log(log)).record_count == 0
    again = bench.open(clean=False)
    assert again.producer_state.by_id[7].last_sequence == 4


def test_as_many_keys_are_learnt_as_memory_allows_and_the_rest_waits(bench: LogBench) -> None:
    log = bench.open()
    for n in range(6):
        put(log, f"k{n}", "1")
    for n in range(6):
        put(log, f"k{n}", "2")
    log.roll()
    compaction = request(log, bench)
    small = replace(compaction, dedupe_bytes=4 * KEY_BYTES, load_factor=1.0)
    (group,) = compact(log, small)
    assert group.end_offset == 4
    assert len(left(log)) == 12, "nothing was replaced below offset 4"
    assert all(group.end_offset == 12 for group in compact(log, compaction))
    assert sorted(left(log)) == [6, 7, 8, 9, 10, 11]


@pytest.mark.parametrize(("dedupe_bytes", "unpacked"), [(1_000_000, 3), (1_500, 6)], ids=["room", "no room"])
def test_a_batch_is_unpacked_once_if_there_is_room_for_what_was_in_it(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch, dedupe_bytes: int, unpacked: int
) -> None:
    log = bench.open()
    for n in range(3):
        records = [Record(at, START_MS, key, b"%d" % n * 500) for at, key in enumerate([b"a", b"b", b"%d" % n])]
        log.append_as_leader(build(records, BatchFields(codec=Codec.LZ4)), 0)
    log.advance_high_watermark(log.log_end)
    log.roll()
    calls: list[int] = []

    def counted(data: bytes, position: int, header: Header) -> Buffer:
        calls.append(header.base_offset)
        return body_of(data, position, header)

    monkeypatch.setattr(compaction, "body_of", counted)
    compact(log, replace(request(log, bench), dedupe_bytes=dedupe_bytes))
    assert [offset for offset, (key, _) in left(log).items()] == [2, 5, 6, 7, 8]
    assert len(calls) == unpacked


def test_memory_for_no_key_at_all_is_refused_by_name(bench: LogBench) -> None:
    log = bench.open()
    put(log, "a", "1")
    log.roll()
    with pytest.raises(ValueError, match=r"log.cleaner.dedupe.buffer.size=1 cannot hold a single key"):
        compact(log, replace(request(log, bench), dedupe_bytes=1))


@pytest.mark.parametrize(("at", "reason"), [(16, "there is no whole batch here"), (65, "the CRC of a batch does not")])
def test_a_damaged_batch_is_named_with_its_place_and_not_rewritten(bench: LogBench, at: int, reason: str) -> None:
    log = bench.open()
    for key in "aab":
        put(log, key, "1")
    log.roll()
    compaction = request(log, bench)
    segment = Path(log.segments.first.file.path)
    second = list(log.segments.first.batches())[1].position
    data = bytearray(segment.read_bytes())
    data[second + at] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(CorruptFile, match=f"00000000000000000000.log: at byte {second}: {reason}"):
        compact(log, compaction)
    assert segment.read_bytes() == data
    assert not any(name.endswith(".swap") for name in listing(bench.directory))


def test_a_request_survives_its_way_to_the_process(bench: LogBench) -> None:
    log = bench.open()
    put(log, "a", "1")
    log.append_as_leader(batch(producer_id=5), 0)
    log.advance_high_watermark(log.log_end)
    log.roll()
    compaction = replace(request(log, bench), aborted_later=[AbortedTxn(1, 2, 3, 4)])
    assert CompactionRequest.from_json(compaction.to_json()) == compaction


@pytest.mark.parametrize("seed", range(6))
def test_both_walks_leave_the_same_bytes(
    tmp_path: Path, seed: int, compiled_walker: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, draw = list[bytes](), random.Random(seed)
    codecs = draw.choices((Codec.NONE, Codec.LZ4), (9, 1), k=120)
    retention_ms, times = draw.choice(("0", "86400000")), draw.choice(("CreateTime", "LogAppendTime"))
    for name, chosen in (("compiled", compiled_walker), ("python", python_walker)):
        use_walk(chosen, monkeypatch, is_compiled=name == "compiled")
        (tmp_path / name).mkdir()
        bench = LogBench(
            tmp_path / name,
            {
                "cleanup.policy": "compact", "segment.bytes": "3000", "delete.retention.ms": retention_ms,
                "message.timestamp.type": times,
            },
        )  # fmt: skip
        log, draw = bench.open(), random.Random(seed)
        for codec in codecs:
            some = [random_record(draw, n) for n in range(draw.randint(1, 5))]
            producer = draw.choice((-1, -1, 5))
            fields = BatchFields(codec=codec, producer_id=producer, producer_epoch=0 if producer >= 0 else -1)
            log.append_as_follower(at_offset(build(some, fields), log.log_end))
            log.advance_high_watermark(log.log_end)
        log.roll()
        cleaned_to = 0
        for io_bytes in (1024, 200_000):
            compaction = replace(request(log, bench, cleaned_to), io_buffer_bytes=io_bytes)
            cleaned_to = compact(log, compaction)[-1].end_offset
            bench.clock.ms += DAY_MS // 2
            put(log, "k1", "again")
            log.roll()
        logs.append(whole_log(log))
    assert logs[0] == logs[1]
    assert logs[0]


def random_record(draw: random.Random, offset: int) -> Record:
    key = draw.choice((None, b"", *(b"k%d" % n for n in range(9)), b"a key of more than sixteen bytes"))
    value = draw.choice((None, b"", b"v" * 70, b"w" * 400))
    headers = draw.choice(((), (RecordHeader("h", None),)))
    return Record(offset, START_MS + draw.randint(-100, 10**6), key, value, headers)


def test_a_throttle_sleeps_what_is_missing() -> None:
    slept = list[float]()
    throttle = CleanerThrottle(1000, lambda: 5.0, slept.append)
    throttle.used(5)
    throttle.used(495)
    assert slept == [0.5]

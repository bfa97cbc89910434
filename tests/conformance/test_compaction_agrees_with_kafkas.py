"""Compaction: the same log, cleaned by Kafka's cleaner and by Leadline's, is the same afterwards, byte for byte.

Pass after pass. Where batches are compressed, all but what depends on how well: Leadline has other compressors.
"""

import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from leadline.config.storage import StorageConfig
from leadline.log import segment_removal
from leadline.log.cleaner import cleanable, request_for
from leadline.log.compaction import CleanerThrottle, Compaction
from leadline.log.producer_state import AppendOrigin
from leadline.log.skimpy_offset_map import KEY_BYTES
from tests.conformance.kafka.answers import Batch, Codec, Record
from tests.conformance.kafka.oracle import Oracle
from tests.conformance.pair import Pair

pytestmark = pytest.mark.conformance

SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1000",
    "index.interval.bytes": "150",
    "segment.index.bytes": "2000",
    "delete.retention.ms": "10000",
}
IO_BYTES = 256 * 1024
KAFKA_KEY_BYTES, KAFKA_LOAD = 24, 0.9


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


class CompactedPair:
    """A pair of compacted logs. They are followers': there, records may lack a key, as from before the compaction."""

    def __init__(self, oracle: Oracle, parent: Path, settings: Mapping[str, str]) -> None:
        self.oracle = oracle
        self.pair = Pair(oracle, parent, {**SETTINGS, **settings})
        self.pair.open()
        self.cleaned_to: int | None = None
        self.io_bytes = IO_BYTES
        self.most_keys = 10_000  # in one pass, for Leadline and for Kafka
        self.sequences: dict[int, int] = {}

    # Writing

    def put(
        self,
        *pairs: tuple[str | None, str | None],
        codec: Codec = "none",
        producer: tuple[int, int, int] = (-1, -1, -1),
        transactional: bool = False,
    ) -> None:
        """`producer`: id, epoch, sequence."""
        now = self.pair.bench.clock.ms
        batch = self.oracle.build(
            codec,
            [Record(now + n, encoded(key), encoded(value)) for n, (key, value) in enumerate(pairs)],
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
            base_offset=self.pair.log.log_end,
            leader_epoch=0,
        )
        if self.pair.bench.config.log_append_time:
            self.pair.append(bytes(8) + batch[8:])
        else:
            self.pair.replicate(batch)

    def send(
        self, producer: int, *pairs: tuple[str, str | None], transactional: bool = False, codec: Codec = "none"
    ) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + len(pairs)
        self.put(*pairs, codec=codec, producer=(producer, 0, sequence), transactional=transactional)

    def end(self, producer: int, *, commit: bool) -> None:
        now = self.pair.bench.clock.ms
        self.pair.append(
            self.oracle.end_transaction_marker(producer, 0, commit=commit, timestamp=now), 0, AppendOrigin.COORDINATOR
        )

    # Cleaning

    def clean(self) -> None:
        """One pass on both sides, over the same offsets and to the same end."""
        pair = self.pair
        pair.high_watermark(pair.log.log_end)
        pair.note("clean", self.cleaned_to)
        target = cleanable(pair.log, self.cleaned_to, pair.bench.clock.ms)
        if target is None:
            return
        first_dirty, uncleanable = self.oracle.cleanable_offsets(self.cleaned_to)
        active = pair.log.segments.active.base_offset
        held = pair.log.segments.between(uncleanable, active)
        assert target.first_dirty == first_dirty
        assert target.first_uncleanable == (held[0].base_offset if held else active)
        if target.first_uncleanable <= first_dirty:
            return
        end = self._clean_ours()
        cleaned = self.oracle.clean(
            first_dirty,
            uncleanable,
            io_buffer_size=self.io_bytes,
            dedupe_buffer_size=int(self.most_keys / KAFKA_LOAD) * KAFKA_KEY_BYTES,
        )
        assert end == cleaned.end_offset, pair.failure(f"Leadline cleaned to {end}, Kafka to {cleaned.end_offset}")
        self.cleaned_to = end
        pair.run_due()
        pair.assert_same_state()
        pair.assert_same_names()

    def _clean_ours(self) -> int:
        log = self.pair.log
        target = cleanable(log, self.cleaned_to, self.pair.bench.clock.ms)
        assert target is not None
        settings = {
            "log.cleaner.io.buffer.size": str(2 * self.io_bytes),
            "log.cleaner.dedupe.buffer.size": str(int(self.most_keys * KEY_BYTES / KAFKA_LOAD) + KEY_BYTES),
        }
        request = request_for(target, StorageConfig.parse(settings), self.pair.bench.clock.ms)
        end = target.first_dirty
        throttle = CleanerThrottle(request.max_bytes_per_second, lambda: 0.0, lambda _: None)
        bench = self.pair.bench
        for group in Compaction(request, bench.files, bench.clock, throttle, bytes(range(16))).run():
            new = segment_removal.cleaned_segment(log, group.bases[0])
            old = [segment for segment in log.segments if segment.base_offset in group.bases]
            log.flush()
            segment_removal.ready_to_swap(log, new)
            segment_removal.swap_in(log, new, old)
            segment_removal.swapped_in(log, new)
            self.pair.background.call_back()
            end = group.end_offset
        self.oracle.flush()
        return end

    def roll(self) -> None:
        self.pair.roll()

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """What is left of data."""
        return [(record.key, record.value) for batch in self.batches() if not batch.control for record in batch.records]

    def batches(self, side: str = "ours") -> list[Batch]:
        directory = self.pair.ours if side == "ours" else self.pair.theirs
        return [batch for path in sorted(directory.glob("*.log")) for batch in self.oracle.parse(path.read_bytes())]

    def close_and_compare(self) -> None:
        self.pair.assert_same_state()
        self.pair.close()
        self.pair.assert_same_files()


NewLogs = Callable[..., CompactedPair]


@pytest.fixture
def logs(oracle: Oracle, tmp_path: Path) -> NewLogs:
    return lambda **settings: CompactedPair(
        oracle, tmp_path, {name.replace("_", "."): str(value) for name, value in settings.items()}
    )


def test_of_many_segments_the_last_value_of_each_key_stays(logs: NewLogs) -> None:
    at = logs()
    for n in range(60):
        at.put((f"k{n % 7}", f"{n}" * 20), (f"x{n % 3}", "v"))
    at.clean()
    at.close_and_compare()
    assert len(at.records()) < 40


def test_kafkas_dump_reads_what_is_left(logs: NewLogs) -> None:
    at = logs()
    for n in range(40):
        at.put((f"k{n % 7}", f"{n}" * 20), (f"x{n % 3}", None))
        at.send(5, (f"m{n % 2}", f"{n}"))
    at.clean()
    at.close_and_compare()
    ours, theirs = (dump(at.oracle, directory) for directory in (at.pair.ours, at.pair.theirs))
    assert ours == theirs
    assert not [line for line in ours if "isvalid: false" in line]


def dump(oracle: Oracle, directory: Path) -> list[str]:
    """Sorted: what it has to say of all files comes in the order of a hash map."""
    files = ",".join(str(path) for path in sorted(directory.glob("*.*")))
    output = oracle.dump("--files", files, "--deep-iteration").replace(str(directory), "")
    return sorted(output.splitlines())


def test_small_segments_become_one(logs: NewLogs) -> None:
    at = logs(segment_bytes=3000)
    for n in range(12):
        at.put((f"k{n}", "v" * 100))
        at.roll()
    at.clean()
    at.close_and_compare()
    assert len(at.pair.log.segments) == 2


def test_a_tombstone_goes_once_its_horizon_has_passed(logs: NewLogs) -> None:
    at = logs()
    at.put(("a", "1"), ("b", "1"), ("c", "1"))
    at.put(("a", None), ("b", "2"))
    at.roll()
    at.clean()
    assert (b"a", None) in at.records()
    for wait in (5000, 4999, 2):
        at.pair.advance(wait)
        at.put(("z", "1"))
        at.roll()
        at.clean()
    assert (b"a", None) not in at.records()
    at.close_and_compare()


def test_the_last_batch_of_a_producer_stays_as_a_header(logs: NewLogs) -> None:
    at = logs()
    for n in range(6):
        at.send(5, ("k", f"{n}"), ("l", f"{n}"))
    at.put(("k", "9"), ("l", "9"))
    at.roll()
    at.clean()
    empty = [batch for batch in at.batches() if not batch.records]
    assert [(batch.producer_id, batch.last_sequence) for batch in empty] == [(5, 11)]
    at.pair.advance(20_000)
    at.put(("y", "1"))
    at.roll()
    at.clean()
    at.close_and_compare()


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_goes_after_its_records_and_its_horizon(logs: NewLogs, commit: bool) -> None:
    at = logs()
    at.send(5, ("k", "1"), transactional=True)
    at.end(5, commit=commit)
    at.send(5, ("other", "1"))
    at.put(("k", "2"))
    at.roll()
    for _ in range(4):
        at.clean()
        at.pair.advance(11_000)
        at.put(("y", "1"))
        at.roll()
    assert not [batch for batch in at.batches() if batch.control]
    at.close_and_compare()


def test_a_transaction_whose_marker_lies_in_another_group(logs: NewLogs) -> None:
    """The marker of a transaction whose records stay must stay: without it, the transaction would be open for ever."""
    at = logs(segment_bytes=600)
    at.send(5, ("mine", "1"), transactional=True)
    for n in range(8):
        at.put((f"k{n}", "v" * 150))
    at.end(5, commit=True)
    for n in range(4):
        at.put((f"m{n}", "v" * 150))
    at.send(5, ("later", "1"))
    at.roll()
    for _ in range(3):
        at.clean()
        at.pair.advance(20_000)
        at.put(("y", "1"))
        at.roll()
    assert [batch for batch in at.batches() if batch.control]
    at.close_and_compare()


def test_records_of_aborted_transactions_go(logs: NewLogs) -> None:
    at = logs(segment_bytes=500)
    for n in range(10):
        at.send(1, (f"k{n % 3}", f"{n}"), transactional=True)
        at.send(2, (f"k{n % 4}", f"{n}"), transactional=True)
        if n % 3 == 2:
            at.end(1, commit=n == 5)
        if n % 4 == 3:
            at.end(2, commit=False)
        at.put((f"p{n % 2}", "v" * 60))
    at.end(1, commit=False)
    at.end(2, commit=True)
    at.roll()
    for _ in range(4):
        at.clean()
        at.pair.advance(11_000)
        at.put(("y", "1"))
        at.roll()
    at.close_and_compare()


def test_nothing_past_an_open_transaction_is_touched(logs: NewLogs) -> None:
    at = logs(segment_bytes=300)
    for n in range(6):
        at.put(("k", f"{n}"))
    at.roll()
    at.send(9, ("k", "6"), transactional=True)
    for n in range(6):
        at.put(("k", f"{n}"))
    at.roll()
    at.clean()
    at.close_and_compare()


@pytest.mark.parametrize("io_bytes", [100, 1000, 5000])
def test_batches_larger_than_the_buffer(logs: NewLogs, io_bytes: int) -> None:
    at = logs(segment_bytes=20_000, max_message_bytes=8000)
    at.io_bytes = max(io_bytes, 1024)
    for n in range(30):
        at.put((f"k{n % 4}", "v" * (300 * (n % 7))), (f"l{n % 5}", "w" * 900))
    at.roll()
    at.clean()
    at.close_and_compare()


def test_records_without_a_key_go(logs: NewLogs) -> None:
    at = logs()
    for n in range(6):
        at.put(("k", f"{n}"), (None, "lost"), (f"x{n}", "v"))
    at.roll()
    at.clean()
    assert all(key is not None for key, _ in at.records())
    at.close_and_compare()


def test_young_records_are_left_alone(logs: NewLogs) -> None:
    at = logs(min_compaction_lag_ms=1000, segment_bytes=300)
    for n in range(12):
        at.put(("k", f"{n}"), ("l", f"{n}"))
        at.pair.advance(200)
    at.roll()
    at.clean()
    assert len(at.records()) > 2
    at.pair.advance(2000)
    at.clean()
    at.close_and_compare()


def test_log_append_times_are_kept_the_same(logs: NewLogs) -> None:
    at = logs(message_timestamp_type="LogAppendTime")
    for n in range(30):
        at.pair.advance(10)
        at.put((f"k{n % 5}", "v" * n), (f"t{n % 2}", None))
    at.roll()
    for _ in range(3):
        at.clean()
        at.pair.advance(11_000)
        at.put(("y", "1"))
        at.roll()
    at.close_and_compare()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_cleaned_the_same(logs: NewLogs, codec: Codec) -> None:
    at = logs(segment_bytes=100_000)
    for n in range(40):
        at.put(*((f"k{(n * m) % 9}", f"{n}" * 30) for m in range(8)), codec=codec)
    at.put(("t", None), ("k1", "end"), codec=codec)
    at.roll()
    at.pair.high_watermark(at.pair.log.log_end)
    at._clean_ours()
    at.oracle.clean(*at.oracle.cleanable_offsets(None))
    ours, theirs = at.batches(), at.batches("theirs")
    assert [_without_size(batch) for batch in ours] == [_without_size(batch) for batch in theirs]
    assert all(batch.valid for batch in ours)


def _without_size(batch: Batch) -> dict[str, object]:
    return {name: getattr(batch, name) for name in batch.__slots__ if name not in ("size", "crc")}


def test_too_little_memory_for_one_pass(logs: NewLogs) -> None:
    """Leadline stops at a batch where Kafka stops at a segment, but in the end the same is left."""
    at = logs(segment_bytes=600)
    for n in range(60):
        at.put((f"k{n % 25}", "v" * 30))
    at.roll()
    at.pair.high_watermark(at.pair.log.log_end)
    at.most_keys = 10
    end = at.pair.log.segments.active.base_offset
    for _ in range(20):
        at.cleaned_to = at._clean_ours()
        if at.cleaned_to >= end:
            break
    done = 0
    for _ in range(20):
        done = at.oracle.clean(done, end, dedupe_buffer_size=int(10 / KAFKA_LOAD) * KAFKA_KEY_BYTES).end_offset
        if done >= end:
            break
    assert (at.cleaned_to, done) == (end, end)
    ours = [record for batch in at.batches() for record in batch.records]
    theirs = [record for batch in at.batches("theirs") for record in batch.records]
    assert ours == theirs
    assert len({record.key for record in ours}) == 25


@pytest.mark.parametrize("seed", range(12))
def test_random_logs_are_cleaned_the_same(logs: NewLogs, seed: int) -> None:
    chosen = random.Random(seed)
    at = logs(
        segment_bytes=chosen.choice((400, 1000, 3000)),
        index_interval_bytes=chosen.choice((0, 100, 500)),
        min_compaction_lag_ms=chosen.choice((0, 0, 4000)),
    )
    at.io_bytes = chosen.choice((1024, 4096, IO_BYTES))
    open: set[int] = set()
    for _ in range(4):
        for _ in range(chosen.randint(10, 40)):
            pairs = [
                (f"k{chosen.randrange(12)}", None if chosen.random() < 0.2 else "v" * chosen.choice((1, 20, 90)))
                for _ in range(chosen.randint(1, 4))
            ]
            producer = chosen.choice((None, None, 1, 2, 17))
            if producer is None:
                at.put(*pairs)
            elif producer in open and chosen.random() < 0.4:
                at.end(producer, commit=chosen.random() < 0.5)
                open.discard(producer)
            else:
                transactional = producer in open or chosen.random() < 0.6
                at.send(producer, *pairs, transactional=transactional)
                open |= {producer} if transactional else set()
            at.pair.advance(chosen.choice((1, 10, 300)))
        for producer in list(open) if chosen.random() < 0.7 else []:
            at.end(producer, commit=chosen.random() < 0.5)
            open.discard(producer)
        at.roll()
        at.clean()
        at.pair.advance(chosen.choice((1000, 9000, 30_000)))
    at.close_and_compare()

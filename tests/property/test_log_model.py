"""A log against a plain list of batches: whatever is done to it, in any order, it holds what the list holds."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leadline.errors import OffsetOutOfRange, UnexpectedAppendOffset
from leadline.log.log import Isolation
from leadline.model import Offset
from tests.support.crash_disk import Unsynced
from tests.support.epochs import epoch_at
from tests.support.logs import LogBench, at_offset, batch, bytes_of, whole_log

SMALL = {"segment.bytes": "600", "index.interval.bytes": "150", "retention.bytes": "1500"}


class Batch(NamedTuple):
    base: Offset
    last: Offset
    epoch: int
    data: bytes


class LogAgainstAList(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.place = tempfile.TemporaryDirectory()
        self.bench = LogBench(Path(self.place.name), SMALL, Unsynced())
        self.log = self.bench.open()
        self.batches: list[Batch] = []
        self.end = self.log_start = self.epoch = 0

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self.place.cleanup()

    # Writing

    @rule(count=st.integers(1, 4), size=st.integers(0, 80), newer=st.booleans())
    def append_as_leader(self, count: int, size: int, newer: bool) -> None:
        self.epoch += newer
        data = batch(count, size=size)
        appended = self.log.append_as_leader(data, self.epoch)
        assert (appended.first_offset, appended.last_offset) == (self.end, self.end + count - 1)
        self._wrote(Batch(self.end, self.end + count - 1, self.epoch, bytes(data)))

    @rule(
        gap=st.sampled_from([0, 0, 0, 3]), counts=st.lists(st.integers(1, 3), min_size=1, max_size=3), cut=st.booleans()
    )
    def append_as_follower(self, gap: int, counts: list[int], cut: bool) -> None:
        chunk, base, new = bytearray(), self.end + gap, list[Batch]()
        for count in counts:
            self.epoch += count == 3
            new.append(Batch(base, base + count - 1, self.epoch, bytes(at_offset(batch(count), base, self.epoch))))
            chunk += new[-1].data
            base += count
        if cut:  # the last batch did not fit into the answer
            chunk += batch()[:-1]
        assert self.log.append_as_follower(chunk) is not None
        for written in new:
            self._wrote(written)

    def _wrote(self, written: Batch) -> None:
        self.batches.append(written)
        self.end = written.last + 1
        self.log.advance_high_watermark(self.end)

    @precondition(lambda self: self.end > 0)
    @rule()
    def a_follower_does_not_append_twice(self) -> None:
        with pytest.raises(UnexpectedAppendOffset):
            self.log.append_as_follower(at_offset(batch(), self.end - 1, self.epoch))

    @precondition(lambda self: self.log.segments.active.size > 0)
    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.recovery_point == self.end

    # Cutting

    @precondition(lambda self: self.batches)
    @rule(share=st.floats(0, 1, exclude_max=True))
    def truncate(self, share: float) -> None:
        kept = int(share * len(self.batches))
        offset = self.batches[kept - 1].last + 1 if kept else self.log.segments.first.base_offset
        assert self.log.truncate_to(offset)
        self.batches = self.batches[:kept]
        self.end, self.log_start = offset, min(self.log_start, offset)

    @rule(beyond=st.integers(0, 5))
    def truncating_behind_the_end_changes_nothing(self, beyond: int) -> None:
        assert not self.log.truncate_to(self.end + beyond)

    @rule(ahead=st.integers(0, 20))
    def truncate_fully(self, ahead: int) -> None:
        self.end = self.log_start = self.end + ahead
        self.log.truncate_fully_and_start_at(self.end)
        self.batches = []

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = self.log_start + int(share * (self.end - self.log_start))
        assert self.log.delete_records(offset) == (offset > self.log_start)
        self.log_start = offset

    @rule()
    def retain(self) -> None:
        self.log.delete_old_segments()
        self.log_start = self.log.log_start
        first = self.log.segments.first
        self.batches = [written for written in self.batches if written.base >= first.base_offset]
        assert self.log.size - first.size < 1500 or first is self.log.segments.active

    # Stopping

    @rule()
    def stop_and_start(self) -> None:
        self.log.close()
        self.log = self.bench.open(clean=True, recovery_point=self.end, log_start=self.log_start)
        self.log.set_high_watermark(self.end)

    @rule(checkpointed=st.booleans())
    def die_and_start(self, checkpointed: bool) -> None:
        flushed_to = self.log.flushed_to if checkpointed else 0
        self.log = self.bench.open(clean=False, recovery_point=flushed_to, log_start=self.log_start)
        self.log.set_high_watermark(self.end)

    # What holds

    @rule(share=st.floats(0, 1), most=st.integers(0, 900), at_least_one=st.booleans())
    def read(self, share: float, most: int, at_least_one: bool) -> None:
        offset = self.log_start + int(share * (self.end - self.log_start))
        read = self.log.read(offset, most, Isolation.LOG_END, min_one=at_least_one)
        expected = [written.data for written in self.batches if written.last >= offset]
        read_bytes = bytes_of(read)
        assert b"".join(expected).startswith(read_bytes)
        assert len(read_bytes) <= max(most, len(expected[0]) if expected and at_least_one else 0)
        if expected and at_least_one:
            assert len(read_bytes) >= len(expected[0])

    @rule(outside=st.sampled_from([-1, 1]))
    def reading_outside_is_refused(self, outside: int) -> None:
        offset = self.log_start - 1 if outside < 0 else self.end + 1
        with pytest.raises(OffsetOutOfRange):
            self.log.read(offset, 100, Isolation.LOG_END)

    @invariant()
    def it_holds_what_the_list_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        assert whole_log(self.log) == b"".join(written.data for written in self.batches)
        assert self.log.log_start == self.log_start
        assert self.log.recovery_point <= self.log.log_end
        assert not self.bench.failures

    @invariant()
    def it_ends_where_the_list_ends(self) -> None:
        if hasattr(self, "log"):
            assert self.log.log_end == self.end

    @invariant()
    def its_epochs_are_those_of_the_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        entries = self.log.epochs.entries
        assert sorted({entry.epoch for entry in entries}) == [entry.epoch for entry in entries]
        assert sorted({entry.start_offset for entry in entries}) == [entry.start_offset for entry in entries]
        for written in self.batches:
            if written.last >= self.log_start:
                assert epoch_at(self.log.epochs.entries, max(written.base, self.log_start)) == written.epoch


LogAgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestLogAgainstAList = LogAgainstAList.TestCase

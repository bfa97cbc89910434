"""The epochs of a log against a plain list with the epoch of every single offset."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leadline.log.checkpoints import EpochEntry, encode_epochs
from leadline.log.epochs import EpochEnd, LeaderEpochs
from tests.support.epochs import epoch_at


class EpochsAgainstAList(RuleBasedStateMachine):
    """As a log uses them: an epoch is assigned to the offset at which the next record will stand."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs = LeaderEpochs()
        self.of_offset: dict[int, int] = {}
        self.start = self.end = self.epoch = 0

    @rule(newer=st.integers(0, 3), count=st.integers(1, 5))
    def append(self, newer: int, count: int) -> None:
        self.epoch += newer
        self.epochs.assign(self.epoch, self.end)
        for _ in range(count):
            self.of_offset[self.end] = self.epoch
            self.end += 1

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 1))
    def truncate_from_end(self, share: float) -> None:
        self.end = self.start + int(share * (self.end - self.start))
        before = list(self.epochs.entries)
        assert self.epochs.truncate_from_end(self.end) == (self.epochs.entries != before)
        self.of_offset = {offset: epoch for offset, epoch in self.of_offset.items() if offset < self.end}

    @precondition(lambda self: self.end > self.start)
    @rule(share=st.floats(0, 1, exclude_max=True))
    def truncate_from_start(self, share: float) -> None:
        self.start += int(share * (self.end - self.start))
        before = list(self.epochs.entries)
        assert self.epochs.truncate_from_start(self.start) == (self.epochs.entries != before)
        self.of_offset = {offset: epoch for offset, epoch in self.of_offset.items() if offset >= self.start}

    @invariant()
    def every_offset_has_the_epoch_of_its_record(self) -> None:
        assert {offset: epoch_at(self.epochs.entries, offset) for offset in self.of_offset} == self.of_offset
        assert epoch_at(self.epochs.entries, self.start - 1) is None

    @invariant()
    def entries_rise_in_both_columns(self) -> None:
        for column in zip(*self.epochs.entries, strict=True):
            assert list(column) == sorted(set(column))

    @invariant()
    def an_epoch_ends_where_the_next_one_starts(self) -> None:
        for epoch in set(self.of_offset.values()):
            end = max(offset for offset, other in self.of_offset.items() if other == epoch) + 1
            assert self.epochs.end_of(epoch, self.end) == EpochEnd(epoch, end)
        assert self.epochs.end_of(self.epoch + 1, self.end) is None


EpochsAgainstAList.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestEpochsAgainstAList = EpochsAgainstAList.TestCase


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=15))
def test_whatever_is_assigned_the_entries_rise_and_the_last_one_counts(assigned: list[tuple[int, int]]) -> None:
    epochs = LeaderEpochs()
    for epoch, offset in assigned:
        epochs.assign(epoch, offset)
        assert epochs.latest is not None
        assert epoch_at(epochs.entries, offset) == epoch or epochs.latest.epoch == epoch
        for column in zip(*epochs.entries, strict=True):
            assert list(column) == sorted(set(column))


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=9))
def test_entries_that_are_read_again_are_the_same(steps: list[tuple[int, int]]) -> None:
    entries, epoch, offset = list[EpochEntry](), 0, 0
    for more, further in steps:
        epoch, offset = epoch + more, offset + further
        entries.append(EpochEntry(epoch, offset))
    assert LeaderEpochs(entries).entries == entries
    assert encode_epochs(entries).decode().splitlines()[1:] == [str(len(entries)), *(f"{e} {o}" for e, o in entries)]

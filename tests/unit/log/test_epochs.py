"""Leader epochs: what is assigned, what goes with a truncation, and where an epoch ends."""

import pytest

from leadline.log.checkpoints import EpochEntry
from leadline.log.epochs import EpochEnd, LeaderEpochs
from tests.support.epochs import epoch_at

ENTRIES = [EpochEntry(2, 10), EpochEntry(5, 20), EpochEntry(6, 30)]


@pytest.fixture
def epochs() -> LeaderEpochs:
    return LeaderEpochs(ENTRIES)


def test_more_records_of_the_latest_epoch_change_nothing(epochs: LeaderEpochs) -> None:
    assert not epochs.assign(6, 31)
    assert epochs.entries == ENTRIES


@pytest.mark.parametrize(
    ("epoch", "offset", "left"),
    [(7, 40, ENTRIES), (7, 25, ENTRIES[:2]), (5, 25, ENTRIES[:1]), (1, 5, []), (6, 20, ENTRIES[:1])],
)
def test_a_new_entry_removes_those_it_contradicts(
    epochs: LeaderEpochs, epoch: int, offset: int, left: list[EpochEntry]
) -> None:
    assert epochs.assign(epoch, offset)
    assert epochs.entries == [*left, EpochEntry(epoch, offset)]


@pytest.mark.parametrize(("end", "left"), [(31, 3), (30, 2), (11, 1), (10, 0)])
def test_a_log_that_ends_earlier_has_fewer_epochs(epochs: LeaderEpochs, end: int, left: int) -> None:
    assert epochs.truncate_from_end(end) == (left < 3)
    assert epochs.entries == ENTRIES[:left]


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (9, ENTRIES),
        (10, ENTRIES),
        (15, [EpochEntry(2, 15), *ENTRIES[1:]]),
        (20, ENTRIES[1:]),
        (99, [EpochEntry(6, 99)]),
    ],
)
def test_a_log_that_starts_later_keeps_the_epoch_in_force_there(
    epochs: LeaderEpochs, start: int, left: list[EpochEntry]
) -> None:
    assert epochs.truncate_from_start(start) == (left != ENTRIES)
    assert epochs.entries == left


@pytest.mark.parametrize(
    ("epoch", "end"),
    [
        (6, EpochEnd(6, 44)),
        (5, EpochEnd(5, 30)),
        (4, EpochEnd(2, 20)),
        (2, EpochEnd(2, 20)),
        (1, EpochEnd(1, 10)),
        (7, None),
        (-1, None),
    ],
)
def test_an_epoch_ends_where_the_next_known_one_starts(epochs: LeaderEpochs, epoch: int, end: EpochEnd | None) -> None:
    assert epochs.end_of(epoch, 44) == end


def test_no_epochs_no_answers() -> None:
    empty = LeaderEpochs()
    assert (empty.latest, empty.earliest, empty.end_of(0, 9), epoch_at(empty.entries, 0)) == (None, None, None, None)
    assert not empty.clear()

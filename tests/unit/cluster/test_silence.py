"""When silence counts, and who may act on it."""

import pytest

from leadline.cluster.silence import hears_most, is_isolated, silence_s


def test_silence_counts_after_a_third_of_the_session_and_never_at_once() -> None:
    assert silence_s(18_000) == 6.0
    assert silence_s(60_000) == 20.0
    assert silence_s(1000) == 5.0


@pytest.mark.parametrize(
    ("brokers", "silent", "acts", "is_cut_off"),
    [
        (1, 0, True, False),
        (2, 0, True, False),
        (2, 1, False, False),  # neither half knows which of them is cut off
        (3, 1, True, False),
        (3, 2, False, True),
        (4, 1, True, False),
        (4, 2, False, False),
        (4, 3, False, True),
        (5, 2, True, False),
        (5, 3, False, True),
    ],
)
def test_only_the_side_that_hears_most_brokers_acts(brokers: int, silent: int, acts: bool, is_cut_off: bool) -> None:
    assert hears_most(brokers, silent) is acts
    assert is_isolated(brokers, silent) is is_cut_off


def test_two_sides_never_both_act() -> None:
    for brokers in range(1, 12):
        for one_side in range(1, brokers):
            assert not (hears_most(brokers, brokers - one_side) and hears_most(brokers, one_side))

"""What was appended a moment ago: whole, up to the log's end, or not at all."""

from dataclasses import dataclass

import pytest

from leadline.runtime.recent_appends import MOST_BYTES, RecentAppends

PLENTY = 1 << 20


@dataclass(eq=False)
class Ended:
    log_end: int = 0


def appended(recent: RecentAppends, log: Ended, *batches: bytes) -> None:
    """One record each."""
    for batch in batches:
        recent.add(log, log.log_end, log.log_end + 1, batch)
        log.log_end += 1


def test_batches_of_one_turn_are_handed_out_together() -> None:
    recent, log, other = RecentAppends(), Ended(5), Ended(5)
    appended(recent, log, b"one")
    appended(recent, other, b"else")
    appended(recent, log, b"two", b"three")
    assert recent.since(log, 5, PLENTY) == b"onetwothree"
    assert recent.since(other, 5, PLENTY) == b"else"
    appended(recent, log, b"four")
    assert recent.since(log, 5, PLENTY) == b"onetwothreefour"


def test_recent_appends_keep_a_copy_of_the_bytes() -> None:
    recent, log, room = RecentAppends(), Ended(), bytearray(b"one")
    recent.add(log, 0, 1, room)
    log.log_end = 1
    room[:] = b"two"
    assert recent.since(log, 0, PLENTY) == b"one"


@pytest.mark.parametrize(
    ("offset", "most", "log_end"), [(4, PLENTY, 7), (6, PLENTY, 7), (5, 5, 7), (5, PLENTY, 8), (5, PLENTY, 6)]
)
def test_what_is_not_just_that_is_read_from_the_file(offset: int, most: int, log_end: int) -> None:
    recent, log = RecentAppends(), Ended(5)
    appended(recent, log, b"one", b"two")
    assert recent.since(log, 5, 6) == b"onetwo"
    log.log_end = log_end
    assert recent.since(log, offset, most) is None


def test_a_gap_begins_anew() -> None:
    recent, log = RecentAppends(), Ended(5)
    appended(recent, log, b"one")
    log.log_end += 1  # somebody else's
    appended(recent, log, b"three")
    assert recent.since(log, 5, PLENTY) is None
    assert recent.since(log, 7, PLENTY) == b"three"


def test_no_more_is_kept_than_there_is_room_for_until_it_is_cleared() -> None:
    recent, log = RecentAppends(), Ended()
    appended(recent, log, bytes(MOST_BYTES), b"one too many")
    assert recent.since(log, 0, 2 * MOST_BYTES) is None
    recent.clear()
    assert recent.since(log, 1, PLENTY) is None
    appended(recent, log, b"again")
    assert recent.since(log, 2, PLENTY) == b"again"

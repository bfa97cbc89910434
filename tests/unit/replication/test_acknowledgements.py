"""A waiter for replicated records is notified once, and in order."""

from functools import partial

import pytest

from leadline.errors import WireError
from leadline.replication.acknowledgements import FOREVER_S, Acknowledgements
from leadline.runtime.deferred_completions import OnAcknowledged


class Waiting:
    """Several waits, and the names of those that were acknowledged."""

    def __init__(self) -> None:
        self.acknowledgements, self.acknowledged = Acknowledgements(), list[str]()

    def waits(self, name: str, offset: int, deadline_s: float = FOREVER_S) -> None:
        self.acknowledgements.add(offset, deadline_s, partial(self._tell, name))

    def _tell(self, name: str, error: WireError | None) -> None:
        self.acknowledged.append(name)

    def tell(self, callbacks: list[OnAcknowledged]) -> list[str]:
        self.acknowledged.clear()
        for callback in callbacks:
            callback(None)
        return list(self.acknowledged)


@pytest.fixture
def waiting() -> Waiting:
    waiting_produces = Waiting()
    for name, offset in (("a", 3), ("b", 5), ("c", 5), ("d", 9)):
        waiting_produces.waits(name, offset)
    return waiting_produces


def test_the_high_watermark_acknowledges_all_that_it_passes_once(waiting: Waiting) -> None:
    passed = waiting.acknowledgements.passed
    assert [waiting.tell(passed(mark)) for mark in (2, 5, 5, 8, 20)] == [[], ["a", "b", "c"], [], [], ["d"]]
    assert not waiting.acknowledgements


def test_a_later_wait_for_an_earlier_offset_is_acknowledged_first(waiting: Waiting) -> None:
    waiting.waits("late", 4)
    assert waiting.tell(waiting.acknowledgements.passed(4)) == ["a", "late"]


def test_an_expired_wait_ends_and_the_others_go_on() -> None:
    waiting = Waiting()
    for name, offset, deadline_s in (("a", 1, 10.0), ("b", 2, FOREVER_S), ("c", 3, 5.0)):
        waiting.waits(name, offset, deadline_s)
    acknowledgements = waiting.acknowledgements
    assert acknowledgements.next_deadline_s == 5
    assert (waiting.tell(acknowledgements.expired(4.9)), waiting.tell(acknowledgements.expired(5.0))) == ([], ["c"])
    assert acknowledgements.next_deadline_s == 10
    assert waiting.tell(acknowledgements.expired(10.0)) == ["a"]
    assert acknowledgements.next_deadline_s == FOREVER_S
    assert waiting.tell(acknowledgements.passed(3)) == ["b"]


def test_a_dismissed_wait_ends(waiting: Waiting) -> None:
    assert waiting.tell(waiting.acknowledgements.dismissed()) == ["a", "b", "c", "d"]
    assert waiting.acknowledgements.passed(100) == []

"""Fetch sessions: how many there may be, what they may hold, and when they end."""

from collections.abc import Iterator
from itertools import count
from typing import cast
from uuid import UUID

import pytest

from leadline.api import fetch_sessions as module
from leadline.api.fetch_sessions import (
    MIN_EVICTION_MS,
    READ_ALL_MS,
    PartitionWatcher,
    SentWatermarks,
    Session,
    Sessions,
    TopicIdPartition,
)
from leadline.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from leadline.wire.fetch_position import MAX_EPOCH, FetchPosition

NO_ID = UUID(int=0)


def positions(*partitions: int, offset: int = 0) -> dict[TopicIdPartition, FetchPosition]:
    return {
        TopicIdPartition("t", NO_ID.bytes, n): FetchPosition(NO_ID.bytes, n, -1, offset, -1, -1, 100)
        for n in partitions
    }


@pytest.fixture
def sessions() -> Sessions:
    numbers: Iterator[int] = count(1)
    return Sessions(2, lambda low, high: next(numbers))


def opened(sessions: Sessions, *partitions: int, now_ms: int = 0) -> Session:
    session = sessions.open(positions(*partitions), False, now_ms)
    assert session is not None
    return session


def test_epochs_come_one_after_the_other_and_start_over(sessions: Sessions) -> None:
    session = opened(sessions, 0)
    for epoch in (1, 2, 3):
        assert sessions.resume(session.id, epoch, {}, (), False, 0) is session
    with pytest.raises(InvalidFetchSessionEpoch, match="expects epoch 4, not 3"):
        sessions.resume(session.id, 3, {}, (), False, 0)
    session.epoch = MAX_EPOCH
    sessions.resume(session.id, MAX_EPOCH, {}, (), False, 0)
    assert session.epoch == 1


def test_there_are_only_so_many_and_only_a_forgotten_one_makes_place(sessions: Sessions) -> None:
    first, second = opened(sessions, 0), opened(sessions, 0, now_ms=5)
    assert sessions.open(positions(0), False, MIN_EVICTION_MS - 1) is None
    sessions.resume(first.id, 1, {}, (), False, MIN_EVICTION_MS)
    assert sessions.open(positions(0), False, MIN_EVICTION_MS + 5) is not None
    with pytest.raises(FetchSessionIdNotFound):
        sessions.resume(second.id, 1, {}, (), False, 0)


def test_no_slots_no_sessions() -> None:
    assert Sessions(0, lambda low, high: low).open(positions(0), False, 0) is None


def test_what_changes_and_what_is_forgotten(sessions: Sessions) -> None:
    session = opened(sessions, 0, 1, 2)
    sessions.resume(
        session.id,
        1,
        positions(1, 3, offset=7),
        [TopicIdPartition("t", NO_ID.bytes, 0), TopicIdPartition("u", NO_ID.bytes, 0)],
        False,
        0,
    )
    assert {partition.partition: at.fetch_offset for partition, at in session.positions.items()} == {1: 7, 2: 0, 3: 7}


def test_a_session_with_nothing_left_is_over(sessions: Sessions) -> None:
    session = opened(sessions, 0)
    assert sessions.resume(session.id, 1, {}, positions(0), False, 0) is None
    assert not sessions.by_id


def test_names_and_ids_do_not_mix(sessions: Sessions) -> None:
    session = opened(sessions, 0)
    with pytest.raises(FetchSessionTopicIdError, match="uses names"):
        sessions.resume(session.id, 1, {}, (), True, 0)


def test_all_sessions_together_hold_so_much_and_no_more(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POSITIONS", 10)
    session = opened(sessions, *range(6))
    assert sessions.open(positions(*range(5)), False, 0) is None
    assert sessions.open(positions(*range(4)), False, 0) is not None
    with pytest.raises(FetchSessionIdNotFound, match="grew too large"):
        sessions.resume(session.id, 1, positions(9), (), False, 0)
    assert session.id not in sessions.by_id


def test_changed_watermarks_are_news_once(sessions: Sessions) -> None:
    session, partition = opened(sessions, 0), TopicIdPartition("t", NO_ID.bytes, 0)
    assert session.has_news(partition, SentWatermarks(5, 5, 0))
    assert not session.has_news(partition, SentWatermarks(5, 5, 0))
    assert session.has_news(partition, SentWatermarks(6, 5, 0))


class Ended:
    """A watch that keeps whether it has ended."""

    over = False

    def end(self) -> None:
        self.over = True


def test_only_what_is_fresh_is_looked_at_and_in_its_turn(sessions: Sessions) -> None:
    session = opened(sessions, 0, 1, 2)
    zero, one, two = (TopicIdPartition("t", NO_ID.bytes, n) for n in range(3))
    assert session.candidates() == [zero, one, two]
    session.fresh.clear()
    sessions.resume(session.id, 1, positions(2, 0, offset=5), (), False, 0)
    assert session.candidates() == [zero, two]
    session.serve_last(zero)
    assert session.candidates() == [two, zero]


def test_all_partitions_are_read_every_five_seconds(sessions: Sessions) -> None:
    session = opened(sessions, 0, 1)
    session.fresh.clear()
    session.touch(READ_ALL_MS, is_contact=True)
    assert session.candidates() == []
    session.touch(READ_ALL_MS + 1, is_contact=True)
    assert len(session.candidates()) == 2


def test_a_watcher_ends_when_its_partition_or_session_does(sessions: Sessions) -> None:
    session, first, second = opened(sessions, 0, 1), Ended(), Ended()
    zero, one = (TopicIdPartition("t", NO_ID.bytes, n) for n in range(2))
    session.watchers.update(cast(dict[tuple[str, bytes, int], PartitionWatcher], {zero: first, one: second}))
    sessions.resume(session.id, 1, {}, [zero], False, 0)
    assert (first.over, second.over) == (True, False)
    sessions.close(session.id)
    assert second.over

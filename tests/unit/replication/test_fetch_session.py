"""A fetch session as its follower keeps it: what is named, what is forgotten, and when to start over."""

import uuid

import pytest

from leadline.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from leadline.model import TopicPartition
from leadline.replication.fetch_session import MAX_EPOCH, NO_ID, FetchSession, Forgotten, Position

A, B, C = (TopicPartition("t", n) for n in range(3))
ID, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
SESSION = 77


def at(offset: int, topic_id: uuid.UUID = ID) -> Position:
    return Position(topic_id, offset, 0, 1000, 3)


@pytest.fixture
def session() -> FetchSession:
    """One that is open, with A at 0 and B at 0."""
    session = FetchSession()
    session.next_request({A: at(0), B: at(0)})
    assert session.received(0, SESSION, [A, B])
    return session


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    request = FetchSession().next_request({A: at(0), B: at(5)})
    assert request is not None
    assert (request.session_id, request.session_epoch, request.by_id) == (0, 0, True)
    assert list(request.named.items()) == [(A, at(0)), (B, at(5))]


def test_later_ones_name_what_changed_behind_what_is_new(session: FetchSession) -> None:
    request = session.next_request({A: at(1), B: at(0), C: at(7)})
    assert request is not None
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert list(request.named.items()) == [(C, at(7)), (A, at(1))]
    assert session.positions == {A: at(1), B: at(0), C: at(7)}


def test_a_request_may_name_nothing_at_all(session: FetchSession) -> None:
    request = session.next_request({A: at(0), B: at(0)})
    assert request is not None
    assert request.named == {}


def test_what_is_no_longer_wanted_is_forgotten(session: FetchSession) -> None:
    request = session.next_request({B: at(0)})
    assert request is not None
    assert (request.forgotten, request.named) == ([Forgotten(A, ID)], {})
    session.received(0, SESSION, [])
    request = session.next_request({})
    assert request is not None
    assert request.forgotten == [Forgotten(B, ID)]
    session.received(0, SESSION, [])
    assert session.next_request({}) is None


def test_a_topic_that_was_made_anew_replaces_the_old_one(session: FetchSession) -> None:
    request = session.next_request({A: at(0, OTHER), B: at(0)})
    assert request is not None
    assert (request.replaced, request.named) == ([Forgotten(A, ID)], {A: at(0, OTHER)})


@pytest.mark.parametrize("wanted", [{A: at(0, NO_ID), B: at(0)}, {A: at(0, NO_ID)}])
def test_ids_are_used_if_all_topics_have_one(session: FetchSession, wanted: dict[TopicPartition, Position]) -> None:
    request = session.next_request(wanted)
    assert request is not None
    assert not request.by_id


def test_a_forgotten_topic_without_an_id_keeps_the_names_in_use() -> None:
    session = FetchSession()
    session.next_request({A: at(0, NO_ID), B: at(0)})
    session.received(0, SESSION, [A, B])
    request = session.next_request({B: at(0)})
    assert request is not None
    assert (request.by_id, request.forgotten) == (False, [Forgotten(A, NO_ID)])


def test_an_answer_is_told_by_id_or_by_name(session: FetchSession) -> None:
    assert session.partition("", ID.bytes, 1) == B
    assert session.partition("t", NO_ID.bytes, 1) == B
    assert session.partition("", OTHER.bytes, 1) is None
    assert session.partition("t", NO_ID.bytes, 9) is None


def test_epochs_count_up_and_pass_over_the_special_ones(session: FetchSession) -> None:
    session.received(0, SESSION, [A])
    assert (session.id, session.epoch) == (SESSION, 2)
    session.epoch = MAX_EPOCH
    session.received(0, SESSION, [])
    assert session.epoch == 1


@pytest.mark.parametrize(
    ("code", "session_id", "answered", "used", "after"),
    [
        (FetchSessionIdNotFound.code, 0, [], False, (0, 0)),
        (InvalidFetchSessionEpoch.code, 0, [], False, (SESSION, 0)),
        (0, SESSION, [A, None], False, (SESSION, 0)),  # one that is not of the session
        (0, 0, [A], True, (0, 0)),  # the leader closed it
    ],
)
def test_what_ends_a_session(
    session: FetchSession,
    code: int,
    session_id: int,
    answered: list[TopicPartition | None],
    used: bool,
    after: tuple[int, int],
) -> None:
    assert session.received(code, session_id, answered) is used
    assert (session.id, session.epoch, session.is_full) == (*after, True)


@pytest.mark.parametrize(
    ("session_id", "answered", "throttle_ms", "used", "after"),
    [
        (SESSION, [A, B], 0, True, (SESSION, 1)),
        (0, [A, B], 0, True, (0, 0)),  # the leader has no room for one more
        (SESSION, [A], 0, False, (0, 0)),
        (SESSION, [A, B, None], 0, False, (0, 0)),
        (SESSION, [], 100, False, (0, 0)),
    ],
)
def test_what_a_full_answer_must_hold(
    session_id: int,
    answered: list[TopicPartition | None],
    throttle_ms: int,
    used: bool,
    after: tuple[int, int],
) -> None:
    session = FetchSession()
    session.next_request({A: at(0), B: at(0)})
    assert session.received(0, session_id, answered, throttle_ms) is used
    assert (session.id, session.epoch) == after


def test_without_an_answer_the_next_request_is_full_and_closes_the_old_session(session: FetchSession) -> None:
    session.failed()
    request = session.next_request({A: at(0), B: at(0)})
    assert request is not None
    assert (request.session_id, request.session_epoch, list(request.named)) == (SESSION, 0, [A, B])

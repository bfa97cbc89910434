"""A fetch session as its follower keeps it: what is named, what is forgotten, and when to start over."""

import pytest

from leadline.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from leadline.model import TopicPartition
from leadline.replication.fetch_session import FetchSession, ForgottenPartition
from leadline.wire.fetch_position import MAX_EPOCH, NO_TOPIC_ID, FetchPosition
from tests.support.fetch_sessions import next_request

A, B, C = (TopicPartition("t", n) for n in range(3))
ID, OTHER = bytes([1] * 16), bytes([2] * 16)
SESSION = 77


def at(offset: int, topic_id: bytes = ID) -> FetchPosition:
    return FetchPosition(topic_id, 0, 3, offset, -1, 0, 1000)


@pytest.fixture
def session() -> FetchSession:
    """One that is open, with A at 0 and B at 0."""
    session = FetchSession()
    next_request(session, {A: at(0), B: at(0)})
    assert session.received(0, SESSION, [A, B])
    return session


def test_the_first_request_names_everything_and_asks_for_a_session() -> None:
    request = next_request(FetchSession(), {A: at(0), B: at(5)})
    assert request is not None
    assert (request.session_id, request.session_epoch, request.by_id) == (0, 0, True)
    assert list(request.named.items()) == [(A, at(0)), (B, at(5))]


def test_later_ones_name_what_changed_behind_what_is_new(session: FetchSession) -> None:
    request = next_request(session, {A: at(1), B: at(0), C: at(7)})
    assert request is not None
    assert (request.session_id, request.session_epoch) == (SESSION, 1)
    assert list(request.named.items()) == [(C, at(7)), (A, at(1))]
    assert session.positions == {A: at(1), B: at(0), C: at(7)}


def test_a_request_may_name_nothing_at_all(session: FetchSession) -> None:
    request = next_request(session, {A: at(0), B: at(0)})
    assert request is not None
    assert request.named == {}


def test_what_is_no_longer_wanted_is_forgotten(session: FetchSession) -> None:
    request = next_request(session, {B: at(0)})
    assert request is not None
    assert (request.forgotten, request.named) == ([ForgottenPartition(A, ID)], {})
    session.received(0, SESSION, [])
    request = next_request(session, {})
    assert request is not None
    assert request.forgotten == [ForgottenPartition(B, ID)]
    session.received(0, SESSION, [])
    assert next_request(session, {}) is None


def test_a_topic_that_was_made_anew_replaces_the_old_one(session: FetchSession) -> None:
    request = next_request(session, {A: at(0, OTHER), B: at(0)})
    assert request is not None
    assert (request.replaced, request.named) == ([ForgottenPartition(A, ID)], {A: at(0, OTHER)})


@pytest.mark.parametrize("positions", [{A: at(0, NO_TOPIC_ID), B: at(0)}, {A: at(0, NO_TOPIC_ID)}])
def test_ids_are_used_if_all_topics_have_one(
    session: FetchSession, positions: dict[TopicPartition, FetchPosition]
) -> None:
    request = next_request(session, positions)
    assert request is not None
    assert not request.by_id


def test_a_forgotten_topic_without_an_id_keeps_the_names_in_use() -> None:
    session = FetchSession()
    next_request(session, {A: at(0, NO_TOPIC_ID), B: at(0)})
    session.received(0, SESSION, [A, B])
    request = next_request(session, {B: at(0)})
    assert request is not None
    assert (request.by_id, request.forgotten) == (False, [ForgottenPartition(A, NO_TOPIC_ID)])


def test_a_response_is_matched_by_id_or_by_name(session: FetchSession) -> None:
    assert session.partition("", ID, 1) == B
    assert session.partition("t", NO_TOPIC_ID, 1) == B
    assert session.partition("", OTHER, 1) is None
    assert session.partition("t", NO_TOPIC_ID, 9) is None


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
def test_a_session_ends_at_errors_and_unexpected_answers(
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
    next_request(session, {A: at(0), B: at(0)})
    assert session.received(0, session_id, answered, throttle_ms) is used
    assert (session.id, session.epoch) == after


def test_without_an_answer_the_next_request_is_full_and_closes_the_old_session(session: FetchSession) -> None:
    session.failed()
    request = next_request(session, {A: at(0), B: at(0)})
    assert request is not None
    assert (request.session_id, request.session_epoch, list(request.named)) == (SESSION, 0, [A, B])

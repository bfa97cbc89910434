"""The partitions of one fetch: which are read, which a response reports, and what a session remembers of it."""

from itertools import count
from uuid import UUID

import pytest

from leadline.api.fetch_context import FetchContext, fetch_context
from leadline.api.fetch_params import FetchParams
from leadline.api.fetch_sessions import Sessions, TopicIdPartition
from leadline.config.broker import BrokerConfig
from leadline.errors import FetchSessionIdNotFound
from leadline.wire.messages import FetchRequest, FetchResponse

VERSION, FULL, FINAL, FOLLOWER = 12, 0, -1, 2
NO_ID = UUID(int=0).bytes
PART = FetchRequest.FetchPartition
ZERO, ONE, TWO = (TopicIdPartition("orders", NO_ID, n) for n in range(3))


def request(session_id: int = 0, epoch: int = FULL, *partitions: int, replica: int = -1) -> FetchRequest:
    named = [PART(partition=n, fetch_offset=5, partition_max_bytes=100) for n in partitions]
    topics = [FetchRequest.FetchTopic(topic="orders", partitions=named)] if named else []
    return FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics, replica_id=replica)


def context_of(sessions: Sessions, sent: FetchRequest, *, is_broker: bool = False, now_ms: int = 0) -> FetchContext:
    return fetch_context(sent, FetchParams(sent, VERSION, BrokerConfig.parse({})), is_broker, sessions, now_ms)


def part(n: int, high_watermark: int = 5, *, records: bytes = b"", error_code: int = 0) -> FetchResponse.PartitionData:
    return FetchResponse.PartitionData(
        partition_index=n, high_watermark=high_watermark, records=records or None, error_code=error_code
    )


@pytest.fixture
def sessions() -> Sessions:
    numbers = count(1)
    return Sessions(2, lambda low, high: next(numbers))


def test_without_a_session_every_partition_is_read_and_reported(sessions: Sessions) -> None:
    context = context_of(sessions, request(0, FINAL, 0, 1))
    assert (context.session_id, context.is_full) == (0, True)
    assert [key for key, _ in context.candidates()] == [ZERO, ONE]
    pairs = [(ZERO, part(0)), (ONE, part(1))]
    assert context.reported(pairs) == pairs
    assert not sessions.by_id


def test_the_first_fetch_opens_a_session_and_reports_everything(sessions: Sessions) -> None:
    context = context_of(sessions, request(0, FULL, 0, 1))
    assert (context.session_id, context.is_full) == (1, True)
    pairs = [(ZERO, part(0)), (ONE, part(1))]
    assert context.reported(pairs) == pairs


def test_the_last_fetch_closes_its_session(sessions: Sessions) -> None:
    opened = context_of(sessions, request(0, FULL, 0))
    context = context_of(sessions, request(opened.session_id, FINAL, 0))
    assert (context.session_id, dict(sessions.by_id)) == (0, {})
    with pytest.raises(FetchSessionIdNotFound):
        context_of(sessions, request(opened.session_id, 1))


def test_a_new_session_closes_the_one_that_it_names(sessions: Sessions) -> None:
    before = context_of(sessions, request(0, FULL, 0)).session_id
    after = context_of(sessions, request(before, FULL, 0)).session_id
    assert list(sessions.by_id) == [after] != [before]


def resumed(sessions: Sessions, *, unsettled: set[TopicIdPartition]) -> FetchContext:
    """The second fetch of a session, after a first one that was answered for three partitions."""
    first = context_of(sessions, request(0, FULL, 0, 1, 2))
    first.respond([(key, part(n)) for n, key in enumerate((ZERO, ONE, TWO))], unsettled)
    return context_of(sessions, request(first.session_id, 1))


def test_settled_partitions_are_not_read_again_until_they_change(sessions: Sessions) -> None:
    context = resumed(sessions, unsettled={ONE})
    assert context.session is not None
    assert [key for key, _ in context.candidates()] == [ONE]
    context.session.fresh[TWO] = None
    assert {key for key, _ in context.candidates()} == {ONE, TWO}


@pytest.mark.parametrize(
    ("changed", "is_reported"),
    [
        (part(0), False),
        (part(0, 6), True),
        (part(0, records=b"records"), True),
        (part(0, error_code=3), True),
        (FetchResponse.PartitionData(partition_index=0, high_watermark=5, preferred_read_replica=2), True),
    ],
    ids=["same", "high watermark", "records", "error", "preferred replica"],
)
def test_a_later_response_reports_what_has_news(
    sessions: Sessions, changed: FetchResponse.PartitionData, is_reported: bool
) -> None:
    context = resumed(sessions, unsettled={ZERO})
    assert context.reported([(ZERO, changed)]) == ([(ZERO, changed)] if is_reported else [])


def test_watermarks_of_a_response_with_an_error_do_not_count_as_sent(sessions: Sessions) -> None:
    context = resumed(sessions, unsettled={ZERO})
    context.respond([(ZERO, part(0, error_code=3))], {ZERO})
    assert context.reported([(ZERO, part(0))]) != []


def test_a_partition_that_gave_records_is_served_last_the_next_time(sessions: Sessions) -> None:
    context = resumed(sessions, unsettled={ZERO, ONE, TWO})
    context.respond([(ZERO, part(0, records=b"records"))], {ZERO, ONE, TWO})
    assert [key for key, _ in context.candidates()] == [ONE, TWO, ZERO]


def test_a_session_with_nothing_left_ends_and_the_fetch_goes_without(sessions: Sessions) -> None:
    session_id = context_of(sessions, request(0, FULL, 0)).session_id
    last = request(session_id, 1)
    last.forgotten_topics_data = [FetchRequest.ForgottenTopic(topic="orders", partitions=[0])]
    context = context_of(sessions, last)
    assert (context.session, context.is_full, dict(sessions.by_id)) == (None, True, {})


@pytest.mark.parametrize(("is_broker", "replica", "contact"), [(True, FOLLOWER, True), (False, -1, False)])
def test_only_a_follower_that_may_be_one_counts_as_a_contact(
    sessions: Sessions, is_broker: bool, replica: int, contact: bool
) -> None:
    sent = request(0, FULL, 0, replica=FOLLOWER)
    session = context_of(sessions, sent, is_broker=is_broker, now_ms=70).session
    assert session is not None
    assert session.replica == replica
    assert (session.last_contact.last_ms == 70) is contact

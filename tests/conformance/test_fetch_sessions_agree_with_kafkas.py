"""A follower's fetch session and Kafka's own, side by side: the same requests, and the same use of every answer."""

import random
import uuid

import pytest

from leadline.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from leadline.model import TopicPartition
from leadline.replication.fetch_session import FetchSession, FetchSessionRequest, ForgottenPartition
from leadline.wire.fetch_position import NO_TOPIC_ID, FetchPosition
from tests.conformance.kafka.oracle import Oracle
from tests.support.fetch_sessions import next_request

pytestmark = pytest.mark.conformance

TOPICS = ["t", "u", "v"]
ERRORS = [FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError]

Positions = dict[TopicPartition, FetchPosition]


def any_positions(chosen: random.Random) -> Positions:
    """Some partitions at some offsets; a topic may have no id, or another one than before."""
    ids = {topic: uuid.UUID(int=10 * n + chosen.choice([1, 1, 1, 1, 2, -10 * n])) for n, topic in enumerate(TOPICS)}
    partitions = [TopicPartition(topic, n) for topic in TOPICS for n in range(3)]
    named = chosen.sample(partitions, chosen.randrange(len(partitions)))
    return {
        tp: FetchPosition(ids[tp.topic].bytes, tp.partition, 3, chosen.choice([0, 0, 1]), -1, 0, 1000) for tp in named
    }


def as_number(topic_id: bytes) -> int:
    return int.from_bytes(topic_id)


def described(forgotten: list[ForgottenPartition]) -> list[list[object]]:
    return [[one.tp.topic, as_number(one.topic_id), one.tp.partition] for one in forgotten]


def described_positions(positions: Positions) -> list[list[object]]:
    return [[tp.topic, as_number(at.topic_id), tp.partition, at.fetch_offset] for tp, at in positions.items()]


def as_kafka_tells(request: FetchSessionRequest, covers: int) -> dict[str, object]:
    return {
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "named": described_positions(request.named),
        "forgotten": described(request.forgotten),
        "replaced": described(request.replaced),
        "by_id": request.by_id,
        "covers": covers,
    }


def answered(session: FetchSession, chosen: random.Random) -> list[tuple[str, uuid.UUID, int]]:
    """All, or some, or one too many."""
    full = [(tp.topic, uuid.UUID(bytes=at.topic_id), tp.partition) for tp, at in session.positions.items()]
    some = chosen.sample(full, chosen.randrange(len(full) + 1))
    extra = ("w", uuid.UUID(int=99), 0)
    return chosen.choice([full, full, full, some, [*full, extra]])


def answer(oracle: Oracle, session: FetchSession, request: FetchSessionRequest, chosen: random.Random) -> None:
    """Both are given the same answer, and must make the same of it."""
    code = chosen.choice(ERRORS).code if chosen.random() < 0.1 else 0
    session_id = chosen.choice([request.session_id or 5, request.session_id or 5, 0])
    throttle_ms = chosen.choice([0, 0, 100])
    partitions = answered(session, chosen) if code == 0 else []
    ours = [
        session.partition(topic, id_.bytes if request.by_id else NO_TOPIC_ID, partition)
        for topic, id_, partition in partitions
    ]
    theirs = oracle.ask(
        "session_received",
        code=code,
        session_id=session_id,
        throttle_ms=throttle_ms,
        by_id=request.by_id,
        answered=[(topic, id_.int, partition) for topic, id_, partition in partitions],
    )
    assert session.received(code, session_id, ours, throttle_ms) is theirs


@pytest.mark.parametrize("seed", range(20))
def test_both_sessions_say_the_same(oracle: Oracle, seed: int) -> None:
    chosen = random.Random(seed)
    session, incremental = FetchSession(), 0
    oracle.ask("session")
    now = any_positions(chosen)
    for _ in range(100):
        now = chosen.choice([now, now, any_positions(chosen)])
        request = next_request(session, now)
        theirs = oracle.ask("session_next", wanted=described_positions(now))
        if request is None:
            assert (theirs["covers"], theirs["forgotten"]) == (0, [])
            continue
        assert theirs == as_kafka_tells(request, len(session.positions))
        incremental += request.session_epoch > 0
        if chosen.random() < 0.1:
            oracle.ask("session_failed")
            session.failed()
        else:
            answer(oracle, session, request, chosen)
    assert incremental

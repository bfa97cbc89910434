"""The settings that throttle a reassignment, and their removal."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.admin.reassign import throttles
from leadline.admin.reassign.plan import OngoingReassignment, ReplicaMove
from leadline.admin.reassign.throttles import BROKER_RATES, TOPIC_LISTS, remove_throttles, set_throttles
from leadline.admin.session import ClusterSession
from leadline.model import TopicPartition

ZERO = TopicPartition("orders", 0)
OTHER = TopicPartition("users", 4)
Altered = list[tuple[str, str, dict[str, str | None]]]


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> Altered:
    """The settings that were changed: kind, name, values. None: deleted."""
    settings: Altered = []

    def alter(_: object, __: object, kind: str, name: str, changes: Sequence[tuple[str, str | None, object]]) -> None:
        settings.append((kind, name, {setting: value for setting, value, _ in changes}))

    monkeypatch.setattr(throttles, "alter_configs", alter)
    return settings


def cluster_with(monkeypatch: pytest.MonkeyPatch, *moving: TopicPartition) -> ClusterSession:
    """Brokers 1 and 2 are alive. The moving partitions go from broker 1 to broker 2."""
    under_way = {tp: OngoingReassignment([1, 2], [2], [1]) for tp in moving}
    monkeypatch.setattr(throttles, "list_reassignments", lambda client: under_way)
    metadata = SimpleNamespace(topics={"orders": None, "users": None}, brokers={1: None, 2: None})
    connection = SimpleNamespace(metadata=lambda admin: metadata)
    return ClusterSession(cast(Any, connection), cast(Any, None), cast(Any, None))


def test_live_brokers_get_the_rate_and_topics_the_replicas_of_old_and_new_moves(
    altered: Altered, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_throttles(cluster_with(monkeypatch, OTHER), [ReplicaMove(ZERO, [1, 9], [1, 2], 5)], 1000)
    assert altered == [
        ("broker", "1", dict.fromkeys(BROKER_RATES, "1000")),
        ("broker", "2", dict.fromkeys(BROKER_RATES, "1000")),
        ("topic", "orders", dict(zip(TOPIC_LISTS, ("0:1,0:9", "0:2"), strict=True))),
        ("topic", "users", dict(zip(TOPIC_LISTS, ("4:1", "4:2"), strict=True))),
    ]


def test_after_the_last_move_brokers_and_existing_topics_of_the_plan_lose_their_throttles(
    altered: Altered, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_throttles(cluster_with(monkeypatch), [ZERO, TopicPartition("deleted", 0)])
    assert altered == [
        ("topic", "orders", dict.fromkeys(TOPIC_LISTS)),
        ("broker", "1", dict.fromkeys(BROKER_RATES)),
        ("broker", "2", dict.fromkeys(BROKER_RATES)),
    ]


def test_while_another_topic_moves_the_brokers_keep_their_rates(
    altered: Altered, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove_throttles(cluster_with(monkeypatch, OTHER), [ZERO, OTHER])
    assert altered == [("topic", "orders", dict.fromkeys(TOPIC_LISTS))]

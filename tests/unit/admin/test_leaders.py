"""Partitions whose leader answers, and the reason why others have none."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.admin.connection import ClusterConnection
from leadline.admin.leaders import leader_problem, leaderless, partitions_with_leader
from leadline.model import TopicPartition

NOBODY = -1


def cluster_of(*leaders: int) -> Any:
    """The topic `orders`; each partition has its leader and the replicas 1 and 2, of which 2 is in sync."""
    partitions = {
        number: SimpleNamespace(leader=leader, replicas=[1, 2], isrs=[2]) for number, leader in enumerate(leaders)
    }
    return SimpleNamespace(topics={"orders": SimpleNamespace(partitions=partitions)})


def connection_to(
    cluster: Any = None, silent: dict[int, str] | None = None, live: tuple[int, ...] = (1, 2)
) -> ClusterConnection:
    brokers = {id: f"host{id}:9092" for id in live}
    return cast(
        ClusterConnection, SimpleNamespace(silent=silent or {}, brokers=brokers, metadata=lambda client: cluster)
    )


def test_partitions_of_live_leaders_are_sorted_and_others_are_left_out() -> None:
    cluster = cluster_of(2, NOBODY, 1, 9)
    partitions = [TopicPartition("orders", number) for number in (2, 0, 1, 3, 7)] + [TopicPartition("gone", 0)]
    connection = connection_to(cluster, silent={1: "broker 1 does not answer"})
    assert partitions_with_leader(connection, cast(Any, None), partitions) == [TopicPartition("orders", 0)]


def test_leaderless_ignores_partitions_that_were_not_requested() -> None:
    assert leaderless(cluster_of(NOBODY, 1, NOBODY), "orders", [2, 1, 9]) == [2]


@pytest.mark.parametrize(
    ("leaders", "silent", "text"),
    [
        ((1, 2), {}, ""),
        ((1, 2), {7: "broker 7 does not answer"}, ""),
        ((NOBODY, 1, NOBODY), {}, "orders:0,2 has no leader while broker 2 is away"),
        ((1, 2, 1), {1: "broker 1 does not answer"}, "broker 1 does not answer, and leads orders:0,2"),
        ((NOBODY, 1), {1: "broker 1 does not answer"}, "orders:0 has no leader while broker 2 is away"),
    ],
)
def test_the_problem_is_a_missing_leader_or_one_that_does_not_answer(
    leaders: tuple[int, ...], silent: dict[int, str], text: str
) -> None:
    connection = connection_to(silent=silent, live=(1,))
    assert leader_problem(connection, cluster_of(*leaders), "orders", range(len(leaders))) == text


@pytest.mark.parametrize(
    ("in_sync", "text"),
    [
        ([2], "orders:0 has no leader though broker 2 runs: its log says why"),
        ([1, 2], "orders:0 has no leader though brokers 1,2 run: their logs say why"),
        ([2, 3], "orders:0 has no leader while brokers 2,3 are away"),
    ],
)
def test_a_broker_that_runs_and_could_lead_says_why_it_does_not(in_sync: list[int], text: str) -> None:
    cluster = cluster_of(NOBODY)
    cluster.topics["orders"].partitions[0].isrs = in_sync
    assert leader_problem(connection_to(), cluster, "orders", [0]) == text


def test_without_an_in_sync_replica_any_replica_may_bring_the_partition_back() -> None:
    cluster = cluster_of(NOBODY)
    cluster.topics["orders"].partitions[0].isrs = []
    assert (
        leader_problem(connection_to(live=()), cluster, "orders", [0])
        == "orders:0 has no leader while brokers 1,2 are away"
    )

"""What an explanation shows of replicas on brokers without a history."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline.admin import explanation_reports
from leadline.admin.explanation import ReplicaStatus
from leadline.admin.explanation_reports import _held, _statuses
from leadline.admin.kafka_python.partitions import LogDirReplica
from leadline.model import TopicPartition

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
METADATA: Any = {
    ZERO: SimpleNamespace(leader=1, replicas=[1, 2], isrs=[1]),
    ONE: SimpleNamespace(leader=2, replicas=[2, 3], isrs=[2]),
}


def test_each_broker_gets_a_request_for_the_partitions_it_hosts() -> None:
    assert _held(METADATA) == {1: [ZERO], 2: [ZERO, ONE], 3: [ONE]}


def test_log_directories_are_requested_from_live_brokers_without_a_history(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Broker 1 has a history, 2 has none, 3 is away."""
    requested: list[list[int]] = []

    def log_dirs(_: object, brokers: list[int]) -> Any:
        requested.append(brokers)
        replicas = [LogDirReplica("/a", 70, 4, False), LogDirReplica("/b", 9, 9, True)]
        return {broker: {ZERO: replicas, ONE: replicas[:1]} for broker in brokers}

    monkeypatch.setattr(explanation_reports, "describe_log_dirs", log_dirs)
    statuses = _statuses(cast(Any, None), METADATA, {1: {ZERO: {}}}, {ZERO: 50, ONE: 60}, [1, 2])
    assert requested == [[2]]
    assert statuses == {
        ZERO: {2: ReplicaStatus(2, False, False, lag=4, size_bytes=70, state="follows")},
        ONE: {2: ReplicaStatus(2, True, True, high_watermark=60, lag=4, size_bytes=70, state="leads")},
    }

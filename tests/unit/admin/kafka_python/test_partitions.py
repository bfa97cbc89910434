"""Responses about partitions become our own types."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition as KafkaTopicPartition  # type: ignore[import-untyped]
from kafka.errors import InvalidReplicationFactorError  # type: ignore[import-untyped]

from leadline.admin.errors import Failure
from leadline.admin.kafka_python.partitions import (
    LogDirReplica,
    alter_reassignments,
    broker_racks,
    describe_log_dirs,
    elect_leaders,
    epoch_starts,
    list_reassignments,
    partition_explanations,
)
from leadline.admin.reassign.plan import OngoingReassignment
from leadline.model import TopicPartition
from tests.support.kafka_python_client import AnsweringClient, answering_admin

ZERO, ONE, TWO = (TopicPartition("orders", number) for number in range(3))


def test_an_election_that_is_not_needed_is_no_failure() -> None:
    def elect(election_type: int, partitions: dict[str, list[int]], raise_errors: bool) -> Any:
        assert (election_type, partitions, raise_errors) == (1, {"orders": [0, 1, 2]}, False)
        codes = enumerate((0, 84, 80))  # none, ELECTION_NOT_NEEDED, PREFERRED_LEADER_NOT_AVAILABLE
        results = [SimpleNamespace(partition_id=n, error_code=code, error_message=None) for n, code in codes]
        return SimpleNamespace(replica_election_results=[SimpleNamespace(topic="orders", partition_result=results)])

    result = elect_leaders(answering_admin(elect_leaders=elect), [ZERO, ONE, TWO], unclean=True)
    assert (result.elected, result.not_needed, list(result.failed)) == ([ZERO], [ONE], [TWO])
    assert result.failed[TWO].endswith("(PREFERRED_LEADER_NOT_AVAILABLE)")


def test_a_controller_that_does_not_answer_is_named_before_a_request() -> None:
    admin = answering_admin(silent={1: "broker 1 at one:9092 does not answer"})
    with pytest.raises(Failure, match="elections, which only the controller has: broker 1 at one:9092 does not answer"):
        elect_leaders(admin, [ZERO], unclean=False)


def test_reassignments_are_read_and_errors_of_new_ones_are_lines() -> None:
    ongoing = {KafkaTopicPartition("orders", 1): {"replicas": [1, 2], "adding_replicas": [2], "removing_replicas": []}}
    altered: list[Any] = []

    def alter(targets: Any) -> Any:
        altered.append(targets)
        return {tp: InvalidReplicationFactorError if tp.partition == 1 else None for tp in targets}

    admin = answering_admin(list_partition_reassignments=lambda: ongoing, alter_partition_reassignments=alter)
    assert list_reassignments(admin) == {ONE: OngoingReassignment([1, 2], [2], [])}
    (error,) = alter_reassignments(admin, {ZERO: (1, 2), ONE: None})
    assert altered == [{KafkaTopicPartition("orders", 0): [1, 2], KafkaTopicPartition("orders", 1): None}]
    assert error.startswith("orders-1: ")
    assert error.endswith("(INVALID_REPLICATION_FACTOR)")


def test_racks_are_those_of_live_brokers() -> None:
    cluster = {"brokers": [{"broker_id": 1, "rack": "a"}, {"broker_id": 2, "rack": None}]}
    assert broker_racks(answering_admin(describe_cluster=lambda: cluster)) == {1: "a", 2: None}


def log_dir(broker: int, size: int, *, is_future: bool = False) -> dict[str, Any]:
    partition = {"partition_index": 0, "partition_size": size, "offset_lag": 3, "is_future_key": is_future}
    return {
        "broker": broker,
        "log_dirs": [{"log_dir": f"/{broker}", "topics": [{"name": "orders", "partitions": [partition]}]}],
    }


def test_the_log_directories_of_silent_brokers_are_left_out() -> None:
    admin = answering_admin(
        silent={2: "broker 2 does not answer"},
        describe_log_dirs=lambda brokers: [log_dir(brokers[0], 500), log_dir(brokers[0], 70, is_future=True)],
    )
    replicas = [LogDirReplica("/1", 500, 3, False), LogDirReplica("/1", 70, 3, True)]
    assert describe_log_dirs(admin, [1, 2]) == {1: {ZERO: replicas}}


def test_a_broker_without_a_history_reports_nothing() -> None:
    def describe(resources: Any, config_filter: str) -> Any:
        (resource,) = resources
        entries = {"leadline.replication.orders-0": {"value": json.dumps({"log_end": 7})}}
        return {"broker": {resource.name: entries if resource.name == "1" else {}}}

    admin = answering_admin(describe_configs=describe)
    assert partition_explanations(admin, {1: [ZERO, ONE], 2: [ZERO], 9: [ZERO]}) == {1: {ZERO: {"log_end": 7}}, 2: {}}


def test_epochs_are_found_one_by_one_from_the_newest_down() -> None:
    ends = {5: (5, 100), 4: (3, 40), 2: (0, 10)}  # requested epoch: the epoch and its end

    def send(request: Any, broker: int) -> Any:
        epoch, end = ends[request.topics[0].partitions[0].leader_epoch]
        partition = SimpleNamespace(error_code=0, leader_epoch=epoch, end_offset=end)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[partition])])

    admin = answering_admin(send=send)
    assert epoch_starts(admin, ZERO, leader=2, epoch=5, log_start=4) == [(0, 4), (3, 10), (5, 40)]
    assert isinstance(admin.client, AnsweringClient)
    assert [broker for _, broker in admin.client.sent] == [2, 2, 2]

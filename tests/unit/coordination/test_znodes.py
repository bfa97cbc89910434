"""Kafka's nodes: kafka_nodes.jsonl holds what the encoders within Kafka 3.8.0 made of random values.

Each of its lines has the kind of a node, what went in (in the order in which it was put into a map), and what came out.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.znodes import PartitionStateNode, ReplicaAssignment, TopicNode
from leadline.model import TopicPartition, parse_id

LINES = [json.loads(line) for line in (Path(__file__).parent / "kafka_nodes.jsonl").read_text().splitlines()]
T0 = TopicPartition("t", 0)


def topic_of(example: Any) -> TopicNode:
    partitions = {int(number): ReplicaAssignment(*map(tuple, lists)) for number, lists in example["partitions"].items()}
    return TopicNode(parse_id(example["topic_id"]) if example["topic_id"] else None, partitions)


def state_of(example: Any) -> PartitionStateNode:
    leader, leader_epoch, isr, recovering, controller_epoch = example
    return PartitionStateNode(leader, leader_epoch, tuple(isr), controller_epoch, recovering == 1)


def partitions_of(example: Any) -> list[TopicPartition]:
    return [TopicPartition(*pair) for pair in example]


def reassignment_of(example: Any) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(topic, number): tuple(replicas) for topic, number, replicas in example}


Codec = tuple[Callable[[Any], Any], Callable[[Any], bytes], Callable[[bytes], Any]]

# From the values of a line to ours, to bytes, and back.
CODECS: dict[str, Codec] = {
    "topic": (topic_of, znodes.encode_topic, lambda data: znodes.decode_topic("t", data)),
    "config": (dict, znodes.encode_config, lambda data: znodes.decode_config("/config/topics/t", data)),
    "state": (state_of, znodes.encode_state, lambda data: znodes.decode_state(T0, data)),
    "reassign": (reassignment_of, znodes.encode_reassignment, znodes.decode_reassignment),
    "controller": (lambda example: znodes.ControllerNode(*example), znodes.encode_controller, znodes.decode_controller),
    "controller_epoch": (int, znodes.encode_controller_epoch, znodes.decode_controller_epoch),
    "config_change": (
        str,
        znodes.encode_config_change,
        lambda data: znodes.decode_config_change(znodes.CONFIG_CHANGE, data),
    ),
    "log_dir_event": (
        int,
        znodes.encode_log_dir_event,
        lambda data: znodes.decode_log_dir_event(znodes.LOG_DIR_EVENT, data),
    ),
    "cluster_id": (str, znodes.encode_cluster_id, znodes.decode_cluster_id),
    "producer_ids": (
        lambda example: znodes.ProducerIdBlock(*example),
        znodes.encode_producer_id_block,
        znodes.decode_producer_id_block,
    ),
    "sanitize": (
        str,
        lambda name: znodes.sanitize(name).encode(),
        lambda step: znodes.desanitize(step.decode()),
    ),
}


@pytest.mark.parametrize("line", [line for line in LINES if line["kind"] in CODECS], ids=lambda line: line["kind"])
def test_a_node_is_written_as_kafka_writes_it_and_read_back(line: Any) -> None:
    ours, encode, decode = CODECS[line["kind"]]
    value, data = ours(line["input"]), line["bytes"].encode()
    assert encode(value) == data
    read = decode(data)
    assert (sorted(read) == sorted(value)) if isinstance(value, list) else (read == value)
    assert encode(read) == data


def test_each_line_is_of_a_kind_that_a_test_reads() -> None:
    assert {line["kind"] for line in LINES} == {*CODECS, "broker", *ONLY_KAFKA_WRITES}


ONLY_KAFKA_WRITES = ("election", "isr_change")


@pytest.mark.parametrize("line", [line for line in LINES if line["kind"] in ONLY_KAFKA_WRITES])
def test_a_node_that_only_kafka_and_its_tools_write_is_read(line: Any) -> None:
    read = znodes.decode_partitions(f"/{line['kind']}", line["bytes"].encode())
    assert sorted(read) == sorted(partitions_of(line["input"]))


def test_paths_are_those_of_kafka() -> None:
    user = znodes.sanitize("a b")
    assert (
        znodes.config_path("users", user, "clients", znodes.DEFAULT_ENTITY) == "/config/users/a%20b/clients/<default>"
    )
    assert znodes.state_path(TopicPartition("t", 3)) == "/brokers/topics/t/partitions/3/state"
    assert znodes.broker_path(3) == "/brokers/ids/3"
    assert znodes.delete_topic_path("t") == "/admin/delete_topics/t"
    assert "/config/ips" in znodes.PERSISTENT
    assert znodes.sequence("/config/changes/config_change_0000000012") == 12


def test_older_versions_of_other_nodes_are_read() -> None:
    topic = znodes.decode_topic("t", b'{"version":1, "partitions":{"0":[1,2]}}')
    assert topic == TopicNode(None, {0: ReplicaAssignment((1, 2))})
    change = b'{"version":1,"entity_type":"topics","entity_name":"t"}'
    assert znodes.decode_config_change("/config/changes/x", change) == "topics/t"
    assert znodes.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}') == znodes.ControllerNode(3, 5, -1)
    state = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0],"of_tomorrow":{}}'
    assert znodes.decode_state(T0, state) == PartitionStateNode(0, 0, (0,), 1)


def test_a_node_without_data_has_no_settings_and_no_block() -> None:
    assert znodes.decode_config("/config/users/u", b"") == {}
    assert znodes.decode_config("/config/users/u", b'{"version":1}') == {}
    assert znodes.decode_producer_id_block(b"") is None


def test_half_a_character_survives() -> None:
    data = b'{"version":1,"config":{"a":"\\uD800"}}'
    assert znodes.encode_config(znodes.decode_config("/config/topics/t", data)) == data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"\xff\xfe",
        b'{"version":3,"partitions":[]}',
        b'{"version":3,"partitions":{"0":1}}',
        b'{"version":3,"partitions":{"0":["1"]}}',
        b'{"version":3,"partitions":{"0":[true]}}',
        b'{"version":3,"partitions":{"0":[2147483648]}}',
        b'{"version":3,"partitions":{"0":[NaN]}}',
        b'{"version":3,"partitions":{"zero":[1]}}',
        b'{"version":3,"partitions":{"-1":[1]}}',
        b'{"version":3,"partitions":{"0":[1]},"topic_id":"short"}',
        b'{"version":3,"partitions":' + b'{"0":' * 100_000,
    ],
)
def test_a_malformed_topic_is_refused_by_its_path(data: bytes) -> None:
    with pytest.raises(MalformedNode, match="/brokers/topics/t: "):
        znodes.decode_topic("t", data)


@pytest.mark.parametrize(
    ("decode", "data"),
    [
        (znodes.decode_controller, b'{"version":2}'),
        (znodes.decode_controller_epoch, b"many"),
        (znodes.decode_cluster_id, b'{"version":"1"}'),
        (znodes.decode_producer_id_block, b'{"broker":1,"block_start":"99999999999999999999","block_end":"1"}'),
        (znodes.decode_reassignment, b'{"version":1,"partitions":[3]}'),
        (lambda data: znodes.decode_state(T0, data), b'{"leader":1,"leader_epoch":1,"isr":[1]}'),
        (
            lambda data: znodes.decode_state(T0, data),
            b'{"leader":1,"leader_epoch":1,"isr":[1],"controller_epoch":1,"leader_recovery_state":2}',
        ),
        (lambda data: znodes.decode_config("/config/topics/t", data), b'{"version":1,"config":{"a":1}}'),
        (lambda data: znodes.decode_config_change("/config/changes/c", data), b'{"version":3}'),
        (lambda data: znodes.decode_config_change("/config/changes/c", data), b'{"version":2,"entity_path":"moons/x"}'),
        (lambda data: znodes.decode_log_dir_event("/log_dir_event_notification/l", data), b"{}"),
        (lambda data: znodes.sequence("/config/changes/c" + data.decode()), b"12"),
    ],
)
def test_a_malformed_node_is_refused_by_its_path(decode: Callable[[bytes], object], data: bytes) -> None:
    with pytest.raises(MalformedNode, match=r"^/[^:]+: "):
        decode(data)

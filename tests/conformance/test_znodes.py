"""The nodes that a real cluster leaves in a real ZooKeeper: each is decoded, encoded again, and the same bytes."""

import importlib
import importlib.util
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from leadline.coordination import registration, znodes
from leadline.model import TopicPartition
from tests.conformance.kafka.broker import broker, zookeeper
from tests.conformance.kafka.tools import tool

pytestmark = pytest.mark.conformance

api: Any = importlib.import_module("confluent_kafka.admin")  # its types do not say what it exports

Codec = Callable[[re.Match[str], bytes], bytes]  # decode and encode again


def config(path: re.Match[str], data: bytes) -> bytes:
    return znodes.encode_config(znodes.decode_config(path[0], data)) if data else b""


def producer_ids(_: re.Match[str], data: bytes) -> bytes:
    block = znodes.decode_producer_id_block(data)
    return znodes.encode_producer_id_block(block) if block else b""


def features(_: re.Match[str], data: bytes) -> bytes:
    """Ours is that of Kafka 3.8. The one of an inter.broker.protocol.version below 2.7 is left as it is."""
    return data if data == b'{"features":{},"version":1,"status":0}' else znodes.NO_FEATURES


# The first that matches a path says what is in it.
NODES: dict[str, Codec] = {
    "/controller": lambda _, data: znodes.encode_controller(znodes.decode_controller(data)),
    "/controller_epoch": lambda _, data: znodes.encode_controller_epoch(znodes.decode_controller_epoch(data)),
    "/brokers/ids/([0-9]+)": lambda path, data: registration.encode_registration(
        registration.decode_registration(int(path[1]), data)
    ),
    "/brokers/topics/([^/]+)": lambda path, data: znodes.encode_topic(znodes.decode_topic(path[1], data)),
    "/brokers/topics/([^/]+)/partitions/([0-9]+)/state": lambda path, data: znodes.encode_state(
        znodes.decode_state(TopicPartition(path[1], int(path[2])), data)
    ),
    "/config/changes/config_change_[0-9]{10}": lambda path, data: znodes.encode_config_change(
        znodes.decode_config_change(path[0], data)
    ),
    "/config/(topics|brokers|clients|ips|users)/[^/]+": config,
    "/config/users/[^/]+/clients/[^/]+": config,
    "/cluster/id": lambda _, data: znodes.encode_cluster_id(znodes.decode_cluster_id(data)),
    "/feature": features,
    "/latest_producer_id_block": producer_ids,
}

# All that Kafka leaves without data.
EMPTY = "|".join(
    [
        "/|/admin|/brokers|/cluster|/config|/config/users/[^/]+/clients|/brokers/topics/[^/]+/partitions(/[0-9]+)?",
        *znodes.PERSISTENT,
    ]
)


def read_all(connect: str) -> dict[str, bytes]:
    """Each node but ZooKeeper's own, and its data."""
    client: Any = importlib.import_module("kazoo.client").KazooClient(connect)
    client.start()
    nodes: dict[str, bytes] = {}

    def read(path: str) -> None:
        data, _ = client.get(path)
        nodes[path] = data or b""
        for name in client.get_children(path):
            if name != "zookeeper":
                read(f"{path.rstrip('/')}/{name}")

    try:
        read("/")
    finally:
        client.stop()
        client.close()
    return nodes


def written_again(path: str, data: bytes) -> tuple[str, bytes]:
    """Which of NODES it is, and what we would have written."""
    for pattern, codec in NODES.items():
        if match := re.fullmatch(pattern, path):
            return pattern, codec(match, data)
    assert re.fullmatch(EMPTY, path), f"{path} is not known"
    return "", b""


def fill(bootstrap: str) -> None:
    """Topics small and large, settings of all kinds of entities, a producer id."""
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    topics = [api.NewTopic(f"t{count}", count, replication_factor=2) for count in (1, 11, 12, 23, 24, 300)]
    settings = {"retention.ms": "1000", "cleanup.policy": "compact,delete", "segment.bytes": "100000"}
    settings |= {"follower.replication.throttled.replicas": "*", "max.message.bytes": "99", "preallocate": "false"}
    topics.append(api.NewTopic("given", 3, replication_factor=1, config=settings))
    for created in admin.create_topics(topics).values():
        created.result()
    for grown in admin.create_partitions([api.NewPartitions("t11", 40)]).values():
        grown.result()
    change = api.ConfigEntry("flush.ms", "7", incremental_operation=api.AlterConfigOpType.SET)
    resources = [api.ConfigResource("topic", name, incremental_configs=[change]) for name in ("t1", "given")]
    for altered in admin.incremental_alter_configs(resources).values():
        altered.result()
    entities = [
        (["users", "a b*~"], "producer_byte_rate=1000,consumer_byte_rate=2000,request_percentage=12.5"),
        (["users", "clara"], "SCRAM-SHA-256=[password=secret],SCRAM-SHA-512=[password=secret]"),
        (["clients", "c/d"], "producer_byte_rate=3"),
        (["ips", "127.0.0.1"], "connection_creation_rate=5"),
        (["brokers", "0"], "log.cleaner.threads=2,leader.replication.throttled.rate=9"),
    ]
    for (kind, name), configs in entities:
        alter(bootstrap, "--entity-type", kind, "--entity-name", name, "--add-config", configs)
    alter(bootstrap, "--entity-type", "brokers", "--entity-default", "--add-config", "log.cleaner.threads=1")
    both = ("--entity-type", "users", "--entity-default", "--entity-type", "clients", "--entity-default")
    alter(bootstrap, *both, "--add-config", "producer_byte_rate=1,consumer_byte_rate=2")
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    producer.produce("t1", b"value")
    assert producer.flush(120) == 0


def alter(bootstrap: str, *what: str) -> None:
    tool("configs", "--bootstrap-server", bootstrap, "--alter", *what)


def write_again_and_compare(nodes: dict[str, bytes]) -> None:
    counts: Counter[str] = Counter()
    for path, data in sorted(nodes.items()):
        pattern, ours = written_again(path, data)
        assert ours == data, path
        counts[pattern] += 1
    assert set(counts) == {"", *NODES}
    assert set(znodes.PERSISTENT) <= set(nodes)


@pytest.mark.parametrize("protocol", ["3.8", "2.6"])
def test_each_node_of_a_real_cluster_is_written_again_byte_for_byte(tmp_path: Path, protocol: str) -> None:
    settings = {"inter.broker.protocol.version": protocol}
    with (
        zookeeper(tmp_path / "zk") as zk,
        broker(tmp_path / "b0", zk, broker_id=0, broker_rack="north", **settings) as first,
        broker(tmp_path / "b1", zk, broker_id=1, broker_rack='so"uth', **settings) as second,
    ):
        fill(first.bootstrap)
        write_again_and_compare(read_all(zk.connect))
        second.stop()  # leaders move and ISRs shrink
        write_again_and_compare(read_all(zk.connect))

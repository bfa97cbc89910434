"""Our controller with Apache Kafka's own brokers: they do what it says, ask it what they ask their own, and what it
leaves in ZooKeeper are the bytes that their own controller leaves when the same things happen.
"""

import asyncio
import importlib
import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicCollection

from leadline.broker.broker import Broker as OurBroker
from leadline.broker.ports import Ports
from leadline.config.broker import broker_settings
from leadline.coordination import znodes
from leadline.model import TopicPartition
from tests.conformance.kafka.broker import ZooKeeper, broker, zookeeper
from tests.conformance.kafka.tools import tool
from tests.conformance.test_znodes import api, read_all

pytestmark = pytest.mark.conformance

CONTROLLER = 100
PATIENCE_S = 120
SETTINGS: dict[str, object] = {"zookeeper.session.timeout.ms": 6000, "auto.leader.rebalance.enable": "false"}
ASSIGNED = {"a": [[0, 1], [1, 0], [0, 1]], "b": [[1, 0]] * 12, "c": [[1], [0]], "gone": [[0, 1], [1, 0]]}
MORE = [[1, 0], [0, 1]]
CONFIG = {"retention.ms": "86400000", "cleanup.policy": "compact,delete"}

# What can be compared: the ids of topics are drawn, and times pass.
COMPARED = re.compile("/brokers/topics/.*|/config/topics.*|/config/changes/.*|/admin/.*|/controller_epoch|/feature")
MOVING = re.compile(rb'"(?:adding|removing)_replicas":\{[^}]')  # the states of partitions are written before it ends
TOPIC_ID = re.compile(rb'"topic_id":"[^"]*"')

LED_BY_THE_FIRST = {
    TopicPartition(topic, number): replicas[0]
    for topic, assigned in (ASSIGNED | {"a": [*ASSIGNED["a"], *MORE]}).items()
    for number, replicas in enumerate(assigned)
    if topic != "gone"
}
PATIENT = {"zookeeper.session.timeout.ms": "30000", "zookeeper.connection.timeout.ms": "60000"}
C0 = TopicPartition("c", 0)  # has no other replica than the one on broker 1


@contextmanager
def our_controller(path: Path, zk: ZooKeeper) -> Iterator[str]:
    """A broker in a thread, elected as controller before any other broker starts. Yields its address."""
    own = {"log.dirs": str(path), "listeners": "PLAINTEXT://127.0.0.1:0", "broker.id": str(CONTROLLER)}
    settings = broker_settings(
        own | {"zookeeper.connect": zk.connect, "auto.leader.rebalance.enable": "false"} | PATIENT
    )
    started: list[str] = []
    ready, over = threading.Event(), threading.Event()

    async def main() -> None:
        ours = OurBroker(settings, Ports())
        try:
            await ours.start()
            started.append(f"127.0.0.1:{ours.addresses['PLAINTEXT'].port}")
        finally:
            ready.set()
        await asyncio.to_thread(over.wait)
        await ours.stop()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    ready.wait()
    try:
        yield started[0]
    finally:
        over.set()
        thread.join()


def until(zk: ZooKeeper, states: Mapping[TopicPartition, tuple[int, set[int]]]) -> dict[str, bytes]:
    """All nodes that can be compared, once partitions have these leaders and in-sync replicas."""
    deadline = time.monotonic() + PATIENCE_S
    nodes: dict[str, bytes] = {}
    while time.monotonic() < deadline:
        nodes = read_if_still(zk)
        now = {tp: nodes.get(znodes.state_path(tp)) for tp in states}
        decoded = {tp: znodes.decode_state(tp, data) for tp, data in now.items() if data}
        is_so = {tp: (state.leader, set(state.isr)) for tp, state in decoded.items()} == dict(states)
        if is_so and not any(path.endswith("/gone") or MOVING.search(data) for path, data in nodes.items()):
            return {path: TOPIC_ID.sub(b"", data) for path, data in nodes.items() if COMPARED.fullmatch(path)}
        time.sleep(0.1)
    raise AssertionError(f"it never came to {states}; in the end there was {nodes}")


def read_if_still(zk: ZooKeeper) -> dict[str, bytes]:
    """Nothing, if a node goes while they are read."""
    try:
        return read_all(zk.connect)
    except importlib.import_module("kazoo.exceptions").NoNodeError:
        return {}


def led(by: Mapping[TopicPartition, int], isr: set[int]) -> dict[TopicPartition, tuple[int, set[int]]]:
    alone = {C0: (by[C0], {1}), TopicPartition("c", 1): (0, {0})}
    return {tp: (leader, isr) for tp, leader in by.items()} | alone


def happen(path: Path, zk: ZooKeeper, theirs: str | None) -> list[dict[str, bytes]]:
    """A run of two brokers. Their controller is broker 0, or given by its address."""
    snapshots = []
    with broker(path / "0", zk, broker_id=0, **SETTINGS) as first:
        with broker(path / "1", zk, broker_id=1, **SETTINGS) as second:
            admin: Any = api.AdminClient({"bootstrap.servers": theirs or first.bootstrap})
            ask_for_everything(admin)
            snapshots.append(until(zk, led(LED_BY_THE_FIRST, {0, 1})))
            produce(first.bootstrap)
            second.stop()  # hands over, and says so to the controller
            snapshots.append(until(zk, led(dict.fromkeys(LED_BY_THE_FIRST, 0) | {C0: -1}, {0})))
            produce(first.bootstrap)
        with broker(path / "1", zk, broker_id=1, **SETTINGS) as second:
            snapshots.append(until(zk, led(dict.fromkeys(LED_BY_THE_FIRST, 0) | {C0: 1}, {0, 1})))
            tool("leader-election", "--bootstrap-server", first.bootstrap, "--election-type", "preferred",
                 "--all-topic-partitions")  # fmt: skip
            snapshots.append(until(zk, led(LED_BY_THE_FIRST, {0, 1})))
            produce(first.bootstrap)
            reassign(path / "reassignment.json", first.bootstrap)
            moved = {C0: (0, {0}), TopicPartition("b", 0): (0, {0}), TopicPartition("b", 1): (1, {0, 1})}
            snapshots.append(until(zk, led(LED_BY_THE_FIRST, {0, 1}) | moved))
            second.kill()
            snapshots.append(until(zk, {tp: (0, {0}) for tp in LED_BY_THE_FIRST}))
            produce(first.bootstrap)
    return snapshots


def reassign(file: Path, bootstrap: str) -> None:
    """One moves to another broker, one has a replica less, one has another preferred leader."""
    assignments = {"c": [0], "b": [0]}
    partitions: list[dict[str, object]] = [
        {"topic": topic, "partition": 0, "replicas": to} for topic, to in assignments.items()
    ]
    partitions.append({"topic": "b", "partition": 1, "replicas": [0, 1]})
    file.write_text(json.dumps({"version": 1, "partitions": partitions}))
    tool("reassign", "--bootstrap-server", bootstrap, "--reassignment-json-file", file, "--execute")


def ask_for_everything(admin: Any) -> None:
    for name, assigned in ASSIGNED.items():  # one by one, so that their settings come in order
        config = CONFIG if name == "a" else {}
        topic = api.NewTopic(name, num_partitions=len(assigned), replica_assignment=assigned, config=config)
        admin.create_topics([topic])[name].result()
    admin.create_partitions([api.NewPartitions("a", 5, replica_assignment=MORE)])["a"].result()
    change = api.ConfigEntry("flush.ms", "7", incremental_operation=api.AlterConfigOpType.SET)
    resource = api.ConfigResource("topic", "a", incremental_configs=[change])
    admin.incremental_alter_configs([resource])[resource].result()
    admin.delete_topics(["gone"])["gone"].result()
    described = admin.describe_topics(TopicCollection(["a"]))["a"].result()
    assert [len(partition.isr) for partition in described.partitions] == [2] * 5


def produce(bootstrap: str) -> None:
    """Brokers obey the controller: records written with acks=all are on all in-sync replicas."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": PATIENCE_S * 1000})
    errors: list[object] = []
    for partition in range(5):
        producer.produce("a", b"value", b"key", partition=partition, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * 5


def by_their_controller(path: Path) -> list[dict[str, bytes]]:
    with zookeeper(path / "their-zk") as zk:
        return happen(path / "theirs", zk, None)


def by_ours(path: Path) -> list[dict[str, bytes]]:
    with zookeeper(path / "our-zk") as zk, our_controller(path / "ours" / "100", zk) as address:
        return happen(path / "ours", zk, address)


def test_what_it_leaves_in_zookeeper_is_what_their_own_controller_leaves(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as at_once:
        theirs, ours = at_once.map(lambda scenario: scenario(tmp_path), (by_their_controller, by_ours))
    for moment, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        assert len(one) > 40
        assert one == other, f"at moment {moment}"

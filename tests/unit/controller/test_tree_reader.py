"""The tree as a controller reads it, with nodes that are malformed or missing."""

import asyncio
import logging

import pytest

from leadline.controller import tree_reader
from leadline.controller.state import RegisteredBroker
from leadline.coordination import znodes
from leadline.coordination.registration import RegisteredEndpoint, Registration, encode_registration
from leadline.coordination.tree import Create, Delete, Tree
from leadline.coordination.znodes import PartitionStateNode, ReplicaAssignment, TopicNode
from leadline.model import TopicPartition, parse_id
from leadline.replication.partition import LeaderAndIsr
from tests.support.trees import run_on_tree

ENDPOINT = RegisteredEndpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
TOPIC = TopicNode(parse_id("AAAAAAAAAAAAAAAAAAAABw"), {1: ReplicaAssignment((2, 1)), 0: ReplicaAssignment((1, 2))})


def test_registered_brokers_are_sorted_and_have_the_epoch_of_their_registration() -> None:
    async def scenario(tree: Tree) -> None:
        epochs = {}
        for id in (10, 9):
            data = encode_registration(Registration((ENDPOINT,), 0, rack=f"r{id}"))
            epochs[id] = (await tree.create(znodes.broker_path(id), data)).czxid
        await tree.create(f"{znodes.BROKER_IDS}/nonsense")
        assert await tree_reader.brokers(tree) == [
            RegisteredBroker(id, epochs[id], (ENDPOINT,), f"r{id}") for id in (9, 10)
        ]

    run_on_tree(scenario)


def test_malformed_brokers_and_topics_are_ignored_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tree: Tree) -> None:
        await tree.create(znodes.broker_path(1), b"{}")
        await tree.create(znodes.topic_path("bad"), b"[]")
        await tree.create(znodes.topic_path("good"), znodes.encode_topic(TOPIC))
        assert await tree_reader.brokers(tree) == []
        assert await tree_reader.topics(tree, ["bad", "good", "missing"]) == [("good", TOPIC)]

    with caplog.at_level(logging.ERROR):
        run_on_tree(scenario)
    assert [message.partition(" is ignored: ")[0] for message in caplog.messages] == ["broker 1", "topic bad"]


def test_a_topic_is_read_with_the_decisions_that_it_has() -> None:
    async def scenario(tree: Tree) -> None:
        tp = TopicPartition("t", 1)
        state = PartitionStateNode(2, 5, (2,), controller_epoch=3, recovering=True)
        await tree.create(znodes.state_path(tp), znodes.encode_state(state), make_parents=True)
        await tree.set(znodes.state_path(tp), znodes.encode_state(state))
        (topic,) = await tree_reader.with_states(tree, [("t", TOPIC)])
        assert list(topic.partitions) == [0, 1]
        assert (topic.partitions[0].decision, topic.partitions[0].controller_epoch) == (None, 0)
        assert topic.partitions[1].decision == LeaderAndIsr(2, 5, (2,), 1, recovering=True)
        assert topic.partitions[1].controller_epoch == 3

    run_on_tree(scenario)


def test_a_removal_deletes_children_before_their_parents() -> None:
    async def scenario(tree: Tree) -> None:
        await tree.multi([Create("/a"), Create("/a/b"), Create("/a/b/c"), Create("/a/d")])
        operations = await tree_reader.removal(tree, "/a")
        assert operations == [Delete("/a/b/c"), Delete("/a/b"), Delete("/a/d"), Delete("/a")]
        await tree.multi(operations)
        assert not await tree.exists("/a")
        assert await tree_reader.removal(tree, "/a") == []

    run_on_tree(scenario)


def test_requests_of_tools_are_empty_without_their_nodes() -> None:
    async def scenario(tree: Tree) -> None:
        assert await tree_reader.reassignment(tree) == {}
        assert await tree_reader.elections(tree) == []
        assert await tree_reader.contents(tree, "/missing") == {}
        await tree.create(znodes.REASSIGN_PARTITIONS, znodes.encode_reassignment({TopicPartition("t", 0): (3, 1)}))
        assert await tree_reader.reassignment(tree) == {TopicPartition("t", 0): (3, 1)}

    run_on_tree(scenario)


def test_not_all_calls_are_under_way_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_reader, "CALLS_AT_ONCE", 3)
    running, most = 0, 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    assert asyncio.run(tree_reader.gather(call, range(8))) == list(range(8))
    assert most == 3


def test_no_more_tasks_are_made_than_there_are_arguments() -> None:
    async def main() -> None:
        running = list[int]()

        async def double(number: int) -> int:
            running.append(len(asyncio.all_tasks()))
            await asyncio.sleep(0)
            return 2 * number

        assert await tree_reader.gather(double, [1, 2, 3]) == [2, 4, 6]
        assert max(running) == 4, "three, and this one"
        many = list(range(tree_reader.CALLS_AT_ONCE + 10))
        assert await tree_reader.gather(double, many) == [2 * number for number in many]
        assert max(running) == tree_reader.CALLS_AT_ONCE + 1

    asyncio.run(main())

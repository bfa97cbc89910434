"""The tree as a controller reads it when it is elected, and again after each change."""

import asyncio
import logging
from collections.abc import Awaitable, Collection
from typing import TypeVar

from leadline.controller.state import ControlledPartition, ControlledTopic, RegisteredBroker
from leadline.coordination import registration, znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import Delete, Operation, Tree
from leadline.model import BrokerId, TopicPartition
from leadline.replication.partition import LeaderAndIsr

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 1000

T = TypeVar("T")


async def gather(calls: Collection[Awaitable[T]]) -> list[T]:
    """As asyncio.gather, with at most CALLS_AT_ONCE calls under way."""
    waiting, results = list(calls), list[T]()
    for start in range(0, len(waiting), CALLS_AT_ONCE):
        results += await asyncio.gather(*waiting[start : start + CALLS_AT_ONCE])
    return results


async def brokers(tree: Tree) -> list[RegisteredBroker]:
    """The registered brokers. A broker whose registration is malformed counts as not registered."""
    ids = [int(name) for name in await tree.children(znodes.BROKER_IDS) or [] if name.isdecimal()]
    nodes = await gather([tree.get(znodes.broker_path(id)) for id in ids])
    registered = []
    for id, node in zip(ids, nodes, strict=True):
        try:
            if node is not None:
                stored = registration.decode_registration(id, node.data)
                registered.append(RegisteredBroker(id, node.czxid, stored.endpoints, stored.rack))
        except MalformedNode as error:
            log.error("broker %d is ignored: %s", id, error)
    return sorted(registered)


async def topics(tree: Tree, names: Collection[str]) -> list[tuple[str, znodes.TopicNode]]:
    """Topics whose node is malformed are ignored and logged."""
    nodes = await gather([tree.get(znodes.topic_path(name)) for name in names])
    readable = []
    for name, node in zip(names, nodes, strict=True):
        try:
            if node is not None:
                readable.append((name, znodes.decode_topic(name, node.data)))
        except MalformedNode as error:
            log.error("topic %s is ignored: %s", name, error)
    return readable


async def with_states(tree: Tree, name: str, stored: znodes.TopicNode) -> ControlledTopic:
    assert stored.id is not None
    topic = ControlledTopic(name, stored.id)
    numbers = sorted(stored.partitions)
    states = await gather([state(tree, TopicPartition(name, number)) for number in numbers])
    for number, decided in zip(numbers, states, strict=True):
        partition = topic.partitions[number] = ControlledPartition(stored.partitions[number])
        if decided is not None:
            partition.decision, partition.controller_epoch = decided
    return topic


async def state(tree: Tree, tp: TopicPartition) -> tuple[LeaderAndIsr, int] | None:
    """The last decision, and the epoch of the controller that took it."""
    node = await tree.get(znodes.state_path(tp))
    if node is None:
        return None
    leader, leader_epoch, isr, controller_epoch, recovering = znodes.decode_state(tp, node.data)
    return LeaderAndIsr(leader, leader_epoch, isr, node.version, recovering), controller_epoch


async def reassignment(tree: Tree) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    node = await tree.get(znodes.REASSIGN_PARTITIONS)
    return {} if node is None else znodes.decode_reassignment(node.data)


async def elections(tree: Tree) -> list[TopicPartition]:
    path = znodes.PREFERRED_REPLICA_ELECTION
    node = await tree.get(path)
    return [] if node is None else znodes.decode_partitions(path, node.data)


async def contents(tree: Tree, path: str) -> dict[str, bytes]:
    """The data of a node's children, by path."""
    paths = [f"{path}/{name}" for name in await tree.children(path) or []]
    nodes = await gather([tree.get(child) for child in paths])
    return {child: node.data for child, node in zip(paths, nodes, strict=True) if node is not None}


async def removal(tree: Tree, path: str) -> list[Operation]:
    """The operations that delete a node and all below it, from the leaves up."""
    names = await tree.children(path)
    if names is None:
        return []
    below = await gather([removal(tree, f"{path}/{name}") for name in names])
    return [*(operation for operations in below for operation in operations), Delete(path)]

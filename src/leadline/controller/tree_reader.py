"""The tree as a controller reads it when it is elected, and again after each change."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeVar

from leadline.controller.state import ControlledPartition, ControlledTopic, RegisteredBroker
from leadline.coordination import registration, znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import Delete, Node, Operation, Tree
from leadline.model import BrokerId, TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.runtime.turns import Turns

log = logging.getLogger(__name__)

CALLS_AT_ONCE = 100

A = TypeVar("A")
T = TypeVar("T")


async def gather(call: Callable[[A], Awaitable[T]], arguments: Sequence[A]) -> list[T]:
    """The results of a call for each argument, with at most CALLS_AT_ONCE under way."""
    results: dict[int, T] = {}

    async def keep(numbered: tuple[int, A]) -> None:
        number, argument = numbered
        results[number] = await call(argument)

    await for_each(keep, enumerate(arguments))
    return [results[number] for number in range(len(arguments))]


async def for_each(call: Callable[[A], Awaitable[None]], arguments: Iterable[A]) -> None:
    """As `gather`, without results. After the first CALLS_AT_ONCE, an argument is taken when its call begins.

    Answers that come together are processed over several turns of the loop.
    """
    rest = iter(arguments)
    first = list(islice(rest, CALLS_AT_ONCE))
    waiting, turns = chain(first, rest), Turns()
    turns.begin()

    async def work() -> None:
        for argument in waiting:
            await call(argument)
            await turns.pause()

    tasks = [asyncio.create_task(work()) for _ in first]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def brokers(tree: Tree) -> list[RegisteredBroker]:
    """The registered brokers. A broker whose registration is malformed counts as not registered."""
    ids = [int(name) for name in await tree.children(znodes.BROKER_IDS) or [] if name.isdecimal()]
    nodes = await gather(tree.get, [znodes.broker_path(id) for id in ids])
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
    nodes = await gather(partial(_topic, tree), list(names))
    return [(name, node) for name, node in zip(names, nodes, strict=True) if node is not None]


async def _topic(tree: Tree, name: str) -> znodes.TopicNode | None:
    node = await tree.get(znodes.topic_path(name))
    try:
        return None if node is None else znodes.decode_topic(name, node.data)
    except MalformedNode as error:
        log.error("topic %s is ignored: %s", name, error)
        return None


async def with_states(tree: Tree, stored: Iterable[tuple[str, znodes.TopicNode]]) -> list[ControlledTopic]:
    """The topics, with the last decision about each partition."""
    topics: list[ControlledTopic] = []

    def partitions() -> Iterator[tuple[TopicPartition, ControlledPartition]]:
        for name, node in stored:
            assert node.id is not None
            topic = ControlledTopic(name, node.id)
            topics.append(topic)
            for number in sorted(node.partitions):
                topic.partitions[number] = ControlledPartition(node.partitions[number])
                yield TopicPartition(name, number), topic.partitions[number]

    async def read(partition: tuple[TopicPartition, ControlledPartition]) -> None:
        tp, controlled = partition
        node = await tree.get(znodes.state_path(tp))
        if node is not None:
            controlled.decision, controlled.controller_epoch = _decision_of(tp, node)
            controlled.decided_zxid = node.mzxid

    await for_each(read, partitions())
    return topics


async def state(tree: Tree, tp: TopicPartition) -> tuple[LeaderAndIsr, int] | None:
    """The last decision, and the epoch of the controller that took it."""
    node = await tree.get(znodes.state_path(tp))
    return None if node is None else _decision_of(tp, node)


def _decision_of(tp: TopicPartition, node: Node) -> tuple[LeaderAndIsr, int]:
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
    nodes = await gather(tree.get, paths)
    return {child: node.data for child, node in zip(paths, nodes, strict=True) if node is not None}


async def removal(tree: Tree, path: str) -> list[Operation]:
    """The operations that delete a node and all below it, from the leaves up."""
    names = await tree.children(path)
    if names is None:
        return []
    below = await gather(partial(removal, tree), [f"{path}/{name}" for name in names])
    return [*(operation for operations in below for operation in operations), Delete(path)]

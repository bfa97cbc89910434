"""The start of a single node on log directories that were changed without its tree."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from leadline.controller.log_dir_reconciliation import (
    FAR_PRODUCER_ID,
    OUR_STOP,
    OWN_PRODUCER_IDS,
    SPARSE_COUNT,
    LogDirReconciliation,
    first_producer_id,
)
from leadline.controller.producer_ids import BLOCK_SIZE
from leadline.coordination import znodes
from leadline.coordination.tree import Tree
from leadline.coordination.znodes import PartitionStateNode, ReplicaAssignment, TopicNode
from leadline.log.log_dirs import LogDirs
from leadline.model import TopicId, TopicPartition, new_id
from tests.support import in_memory
from tests.support.chance import SeededChance
from tests.support.dirs import fill, log_dirs, opened
from tests.support.logs import batch
from tests.support.trees import run_on_tree

ME = 1
ORDERS, OTHER_ORDERS = TopicPartition("orders", 0), TopicPartition("orders", 1)
ID, OTHER_ID = (new_id(SeededChance(seed).new_uuid) for seed in (1, 2))
KAFKAS_STOP = -1
KEPT = {"retention.ms": "-1"}

Scenario = Callable[[Tree, LogDirs], Awaitable[None]]


def run(scenario: Scenario, *stored: TopicPartition, stop: int | None = OUR_STOP, topic_id: TopicId = ID) -> None:
    """Runs a scenario on directories with these partitions. `stop`: the broker epoch of a clean stop; None: killed."""

    async def on_tree(tree: Tree) -> None:
        with contextmanager(in_memory.directory)() as path:
            async with stopping(path, stop) as before:
                for tp in stored:
                    fill(await before.create(tp, topic_id))
            async with opened(log_dirs(path)) as dirs:
                await scenario(tree, dirs)

    run_on_tree(on_tree)


@asynccontextmanager
async def stopping(path: Path, broker_epoch: int | None) -> AsyncIterator[LogDirs]:
    dirs = log_dirs(path)
    if broker_epoch is None:
        async with opened(dirs):
            yield dirs
    else:
        await dirs.open()
        yield dirs
        await dirs.close(broker_epoch)


async def reconcile(tree: Tree, dirs: LogDirs, unreadable: Collection[str] = ()) -> dict[str, dict[str, str]]:
    return await LogDirReconciliation(tree, dirs, ME, SeededChance(), unreadable).run()


async def put_topic(tree: Tree, name: str, partitions: int = 1) -> None:
    replicas = {number: ReplicaAssignment((ME,)) for number in range(partitions)}
    await tree.create(znodes.topic_path(name), znodes.encode_topic(TopicNode(ID, replicas)))


async def stored_topic(tree: Tree, name: str) -> TopicNode | None:
    node = await tree.get(znodes.topic_path(name))
    return None if node is None else znodes.decode_topic(name, node.data)


async def stored_state(tree: Tree, tp: TopicPartition) -> PartitionStateNode:
    node = await tree.get(znodes.state_path(tp))
    assert node is not None
    return znodes.decode_state(tp, node.data)


def test_a_topic_of_which_only_logs_exist_is_taken_over_and_keeps_its_records() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        assert await reconcile(tree, dirs) == {"orders": KEPT}
        replicas = {number: ReplicaAssignment((ME,)) for number in (0, 1)}
        assert await stored_topic(tree, "orders") == TopicNode(ID, replicas)
        node = await tree.get(znodes.config_path("topics", "orders"))
        assert node is not None
        assert znodes.decode_config("", node.data) == KEPT
        assert await reconcile(tree, dirs) == {}, "it is taken over once"

    run(scenario, OTHER_ORDERS)


def test_a_compacted_topic_stays_compacted_when_it_is_taken_over() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        configs = await reconcile(tree, dirs)
        assert configs == {"__consumer_offsets": {"cleanup.policy": "compact"}}

    run(scenario, TopicPartition("__consumer_offsets", 0))


def test_a_directory_with_an_absurd_partition_number_makes_no_topic(caplog: pytest.LogCaptureFixture) -> None:
    far = TopicPartition("orders", SPARSE_COUNT)

    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        assert await reconcile(tree, dirs) == {}
        assert await stored_topic(tree, "orders") is None

    with caplog.at_level(logging.ERROR):
        run(scenario, far)
    assert f"orders-{SPARSE_COUNT} is ignored" in caplog.text


@pytest.mark.parametrize(
    ("stop", "is_kept"), [(OUR_STOP, True), (None, True), (KAFKAS_STOP, False)], ids=["ours", "killed", "kafka's"]
)
def test_a_topic_without_logs_was_deleted_only_if_another_broker_stopped_last(stop: int | None, is_kept: bool) -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "deleted")
        await tree.create(znodes.config_path("topics", "deleted"), znodes.encode_config({}))
        await reconcile(tree, dirs)
        assert (await stored_topic(tree, "deleted") is not None) is is_kept
        assert await tree.exists(znodes.config_path("topics", "deleted")) is is_kept

    run(scenario, ORDERS, stop=stop)


def test_logs_with_another_topic_id_are_another_topic_if_another_broker_wrote_them() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "orders", 3)
        assert await reconcile(tree, dirs) == {"orders": KEPT}
        assert await stored_topic(tree, "orders") == TopicNode(OTHER_ID, {0: ReplicaAssignment((ME,))})

    run(scenario, ORDERS, stop=KAFKAS_STOP, topic_id=OTHER_ID)


def test_a_log_with_another_topic_id_is_damaged_if_no_other_broker_wrote_it() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "orders")
        assert await reconcile(tree, dirs) == {}
        assert [log.tp for log in dirs.offline_logs()] == [ORDERS]
        topic = await stored_topic(tree, "orders")
        assert topic is not None
        assert topic.id == ID

    run(scenario, ORDERS, topic_id=OTHER_ID)


def test_a_topic_gets_the_partitions_that_another_broker_added() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "orders")
        assert await reconcile(tree, dirs) == {}
        topic = await stored_topic(tree, "orders")
        assert topic is not None
        assert sorted(topic.partitions) == [0, 1]

    run(scenario, ORDERS, OTHER_ORDERS)


def test_each_start_begins_an_epoch_above_those_of_the_tree_and_of_the_log() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "orders", 2)
        state = PartitionStateNode(ME, 4, (ME,), controller_epoch=9)
        await tree.create(znodes.state_path(OTHER_ORDERS), znodes.encode_state(state), make_parents=True)
        dirs.logs[ORDERS].append_as_leader(batch(), 6)
        await reconcile(tree, dirs)
        assert await stored_state(tree, ORDERS) == PartitionStateNode(ME, 7, (ME,), controller_epoch=1)
        assert await stored_state(tree, OTHER_ORDERS) == PartitionStateNode(ME, 5, (ME,), controller_epoch=9)
        await reconcile(tree, dirs)
        assert (await stored_state(tree, ORDERS)).leader_epoch == 8

    run(scenario, ORDERS, OTHER_ORDERS)


def test_damaged_nodes_are_deleted_and_their_topics_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "whole")
        state = znodes.state_path(TopicPartition("whole", 0))
        await tree.create(state, b"damaged", make_parents=True)
        await tree.create(znodes.topic_path("orders"), b"damaged")
        await tree.create(znodes.CONTROLLER_EPOCH, b"damaged")
        assert await reconcile(tree, dirs) == {"orders": KEPT}
        assert not await tree.exists(znodes.CONTROLLER_EPOCH)
        assert (await stored_state(tree, TopicPartition("whole", 0))).leader_epoch == 0

    with caplog.at_level(logging.ERROR):
        run(scenario, ORDERS)
    for path in (znodes.CONTROLLER_EPOCH, znodes.topic_path("orders"), "/brokers/topics/whole/partitions/0/state"):
        assert any(message.startswith(path) for message in caplog.messages)


def test_a_topic_whose_settings_are_lost_keeps_its_records() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        await put_topic(tree, "orders")
        await tree.create(znodes.config_path("topics", "orders"), b"damaged")
        assert await reconcile(tree, dirs, ["orders"]) == {"orders": KEPT}
        node = await tree.get(znodes.config_path("topics", "orders"))
        assert node is not None
        assert znodes.decode_config("", node.data) == KEPT

    run(scenario, ORDERS)


def test_producer_ids_begin_far_above_kafkas_and_above_all_that_the_logs_have_of_ours() -> None:
    async def scenario(tree: Tree, dirs: LogDirs) -> None:
        log = dirs.logs[ORDERS]
        first = first_producer_id("cluster", [log])
        assert FAR_PRODUCER_ID <= first < FAR_PRODUCER_ID + (1 << 32) * BLOCK_SIZE
        assert first != first_producer_id("another", [log])
        for producer_id in (77, first + 5, first + OWN_PRODUCER_IDS):
            log.append_as_leader(batch(producer_id=producer_id), 0)
        assert first_producer_id("cluster", [log]) == first + 5 + BLOCK_SIZE

    run(scenario, ORDERS)

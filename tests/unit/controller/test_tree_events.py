"""The events from the tree: what they read, what is decided, and which notifications are deleted."""

from collections.abc import Awaitable, Callable

from leadline.controller.tree_events import TREE_EVENTS
from leadline.coordination import node_json, znodes
from leadline.coordination.registration import RegisteredEndpoint, Registration, encode_registration
from leadline.coordination.tree import Tree
from leadline.model import NO_LEADER, TopicPartition
from leadline.replication.partition import LeaderAndIsr
from leadline.runtime.steps import exhaust
from tests.support.controlled import ModelCluster, taken
from tests.support.trees import run_on_tree

T0 = TopicPartition("t", 0)


def partitions(*tps: TopicPartition) -> bytes:
    return node_json.dumps({"version": 1, "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in tps]})


def run_event(path: str, prepare: Callable[[Tree], Awaitable[object]], cluster: ModelCluster) -> list[str]:
    """Runs the event of a path on a tree. Returns the paths that are deleted or written."""
    written: list[str] = []

    async def scenario(tree: Tree) -> None:
        await prepare(tree)
        exhaust(await TREE_EVENTS[path](tree, cluster.decisions))
        written.extend(write.path for write in taken(cluster.decisions).writes)

    run_on_tree(scenario)
    return written


def test_a_partition_loses_its_leader_when_the_broker_is_no_longer_registered() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1,))
    epochs = []

    async def only_two(tree: Tree) -> None:
        endpoint = RegisteredEndpoint("PLAINTEXT", "localhost", 9002, "PLAINTEXT")
        data = encode_registration(Registration((endpoint,), 0))
        epochs.append((await tree.create(znodes.broker_path(2), data)).czxid)

    run_event(znodes.BROKER_IDS, only_two, cluster)
    assert {id: broker.epoch for id, broker in cluster.decisions.state.brokers.items()} == {2: epochs[0]}
    assert cluster.led(T0).leader == NO_LEADER


def test_a_topic_under_delete_topics_is_deleted() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    run_event(znodes.DELETE_TOPICS, lambda tree: tree.create(znodes.delete_topic_path("t")), cluster)
    assert cluster.decisions.state.deletion_begun == {"t"}


def test_isr_changes_are_read_from_the_partitions_and_their_notifications_deleted() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))

    async def change(tree: Tree) -> None:
        state = znodes.PartitionStateNode(1, 0, (1,), controller_epoch=1)
        await tree.create(znodes.state_path(T0), znodes.encode_state(state), make_parents=True)
        missing = TopicPartition("t", 9)
        await tree.create(f"{znodes.ISR_CHANGES}/isr_change_", partitions(T0, missing), sequential=True)

    written = run_event(znodes.ISR_CHANGES, change, cluster)
    assert cluster.led(T0) == LeaderAndIsr(1, 0, (1,), 0)
    assert written == [f"{znodes.ISR_CHANGES}/isr_change_0000000000"]


def test_a_broker_with_a_failed_directory_gets_leader_and_isr_and_the_notification_is_deleted() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))

    async def fail(tree: Tree) -> None:
        for _ in range(2):
            await tree.create(znodes.LOG_DIR_EVENT, znodes.encode_log_dir_event(2), sequential=True)

    written = run_event(znodes.LOG_DIR_EVENTS, fail, cluster)
    assert written == [f"{znodes.LOG_DIR_EVENT}000000000{n}" for n in range(2)]


def test_a_requested_election_takes_place_and_its_node_is_deleted() -> None:
    cluster = ModelCluster()
    cluster.create("t", (1, 2))
    cluster.die(1)
    cluster.join(1)
    cluster.in_sync(T0, 2, 1)
    path = znodes.PREFERRED_REPLICA_ELECTION
    written = run_event(path, lambda tree: tree.create(path, partitions(T0)), cluster)
    assert cluster.led(T0).leader == 1
    assert written == [znodes.state_path(T0), path]


def test_a_reassignment_is_requested_once_although_its_node_is_read_again() -> None:
    cluster = ModelCluster(4)
    cluster.create("t", (1, 2))
    path = znodes.REASSIGN_PARTITIONS

    def request(tree: Tree) -> Awaitable[object]:
        return tree.create(path, znodes.encode_reassignment({T0: (3, 0)}))

    assert run_event(path, request, cluster) == [znodes.state_path(T0), znodes.topic_path("t")]
    assert run_event(path, request, cluster) == []

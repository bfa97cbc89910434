"""The start of a single node: before its controller reads the tree, the tree is made to agree with the log directories.

The tree is a file of its own beside the logs. Another broker, such as Kafka's own, may have changed the log directories
since: then the log directories are right. Each start begins a new leader epoch, so that records from before a crash can
be distinguished from later ones.
"""

import logging
import os
from collections.abc import Callable, Collection, Iterable
from functools import partial
from zlib import crc32

from leadline.controller import tree_reader
from leadline.controller.producer_ids import BLOCK_SIZE
from leadline.controller.state import ControlledTopic
from leadline.controller.topics import INTERNAL
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import Create, Delete, Operation, SetData, Tree
from leadline.coordination.znodes import ReplicaAssignment
from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.checkpoints import METADATA_REMEDY
from leadline.log.log import Log
from leadline.log.log_dirs import LogDirs
from leadline.model import BrokerId, ProducerId, TopicPartition, format_id, new_id
from leadline.runtime.ports import Chance

log = logging.getLogger(__name__)

OUR_STOP = -2  # in place of a broker epoch in .kafka_cleanshutdown, where Kafka with ZooKeeper writes -1
CLEANUP_POLICY, RETENTION_MS = "cleanup.policy", "retention.ms"
FIRST_CONTROLLER = 1
SPARSE_COUNT = 1000  # a topic is taken over if it has at most this many partitions for each log
OWN_PRODUCER_IDS = 1 << 40  # the number of producer ids that a cluster of ours assigns
FAR_PRODUCER_ID = 1 << 44  # far above Kafka's ids, and still exact as a double


SINGLE_NODES: dict[str, Callable[[bytes], object]] = {
    znodes.CONTROLLER_EPOCH: znodes.decode_controller_epoch,
    znodes.PRODUCER_ID_BLOCK: znodes.decode_producer_id_block,
    znodes.REASSIGN_PARTITIONS: znodes.decode_reassignment,
    znodes.PREFERRED_REPLICA_ELECTION: partial(znodes.decode_partitions, znodes.PREFERRED_REPLICA_ELECTION),
}


class LogDirReconciliation:
    """Call `run()` once the logs are loaded."""

    def __init__(
        self, tree: Tree, dirs: LogDirs, me: BrokerId, chance: Chance, unreadable: Collection[str] = ()
    ) -> None:
        """`unreadable`: topics whose settings cannot be read."""
        self.tree, self.dirs, self.me, self.unreadable = tree, dirs, me, unreadable
        self._new_uuid = chance.new_uuid
        self.topics: dict[str, ControlledTopic] = {}

    async def run(self) -> dict[str, dict[str, str]]:
        """Returns the settings of topics that were taken over, or whose settings cannot be read."""
        for path, decode in SINGLE_NODES.items():
            if not await self._is_readable(path, decode):
                await self.tree.delete(path)
        try:
            is_whole = await self._read_topics()
        except MalformedNode:
            is_whole = False
        if not is_whole:
            await self._drop_unreadable()
            await self._read_topics()
        unknown = {name: {RETENTION_MS: "-1"} for name in self.unreadable}
        for name, config in unknown.items():
            log.error("the settings of topic %s are lost: retention.ms is -1 until they are set again", name)
            await self.tree.set(znodes.config_path("topics", name), znodes.encode_config(config))
        configs = await self._reconcile()
        await self._begin_epochs()
        return unknown | configs

    async def _read_topics(self) -> bool:
        """Returns False if some could not be read."""
        names = await self.tree.children(znodes.TOPICS) or []
        topics = await tree_reader.topics(self.tree, names)
        with_ids = [
            (name, stored if stored.id is not None else stored._replace(id=new_id(self._new_uuid)))
            for name, stored in topics
        ]
        await self._read_states(with_ids)
        return len(topics) == len(names)

    async def _drop_unreadable(self) -> None:
        """Deletes damaged nodes. A topic is then taken over from its logs; a partition's state is decided again."""
        for name in await self.tree.children(znodes.TOPICS) or []:
            path = znodes.topic_path(name)
            if not await self._is_readable(path, partial(znodes.decode_topic, name)):
                await self.tree.multi(await tree_reader.removal(self.tree, path))
                continue
            for number in await self.tree.children(f"{path}/partitions") or []:
                tp = TopicPartition(name, int(number) if number.isdecimal() else 0)
                if not await self._is_readable(znodes.state_path(tp), partial(znodes.decode_state, tp)):
                    await self.tree.delete(znodes.state_path(tp))

    async def _is_readable(self, path: str, decode: Callable[[bytes], object]) -> bool:
        """True also if there is no such node."""
        node = await self.tree.get(path)
        try:
            if node is not None:
                decode(node.data)
        except MalformedNode as error:
            log.error("%s; the node is deleted", error)
            return False
        return True

    async def _reconcile(self) -> dict[str, dict[str, str]]:
        """Makes the tree agree with the logs. Returns the settings of topics that were taken over.

        A topic without a node is taken over. Logs with another topic id belong to a new topic. A topic without logs was
        deleted, if another broker has stopped cleanly since.
        """
        dirs = self.dirs.dirs.values()
        is_others_stop = all(directory.was_clean and directory.broker_epoch != OUR_STOP for directory in dirs)
        is_own_stop = any(directory.was_clean and directory.broker_epoch == OUR_STOP for directory in dirs)
        by_topic: dict[str, list[Log]] = {}
        for tp, partition_log in self.dirs.logs.items():
            by_topic.setdefault(tp.topic, []).append(partition_log)
        if is_others_stop and not self.dirs.offline:
            await self._forget_without_logs(by_topic)
        cleaned = {tp.topic for tp in await self.dirs.checkpoints.cleaned_offsets()}
        configs = {}
        for name, logs in by_topic.items():
            topic = await self._same_topic(name, logs, is_own_stop=is_own_stop)
            count = self._count(name, logs)
            if topic is not None:
                await self._grow_to(topic, count)
            elif count > SPARSE_COUNT * len(logs):
                directory = logs[0].directory
                log.error("%s is ignored: most of the %d partitions of its topic are missing", directory, count)
            else:
                configs[name] = await self._take_over(name, logs, compacted=name in cleaned or name in INTERNAL)
        return configs

    async def _forget_without_logs(self, with_logs: Collection[str]) -> None:
        offline = {damaged.tp.topic for damaged in self.dirs.offline_logs()}
        for name in [name for name in self.topics if name not in with_logs and name not in offline]:
            log.info("topic %s has no logs: another broker has deleted it", name)
            await self._forget(name)

    async def _same_topic(self, name: str, logs: Collection[Log], *, is_own_stop: bool) -> ControlledTopic | None:
        """The topic in the tree that these logs belong to. None: they belong to a new topic."""
        topic, ids = self.topics.get(name), {partition_log.topic_id for partition_log in logs} - {None}
        if topic is not None and (is_own_stop or topic.id in ids):
            self._refuse_foreign(topic, logs)
        elif topic is not None and ids:
            log.warning("topic %s was created again with id %s: the old topic is deleted", name, ids)
            await self._forget(name)
            return None
        return topic

    def _refuse_foreign(self, topic: ControlledTopic, logs: Collection[Log]) -> None:
        """No other broker used the directories: a file with another topic id is damaged."""
        for partition_log in logs:
            if partition_log.topic_id not in (topic.id, None):
                assert topic.id is not None
                reason = f"topic_id is {format_id(partition_log.topic_id)}, not {format_id(topic.id)}"
                path = os.path.join(partition_log.directory, names.PARTITION_METADATA_FILE)
                self.dirs.take_log_offline(partition_log, CorruptFile(path, 0, reason, METADATA_REMEDY))

    async def _take_over(self, name: str, logs: Collection[Log], *, compacted: bool) -> dict[str, str]:
        """Creates a topic of which only the logs exist. Its settings are lost, so no record of it is deleted."""
        topic_id = next(
            (partition_log.topic_id for partition_log in logs if partition_log.topic_id is not None), None
        ) or new_id(self._new_uuid)
        count = self._count(name, logs)
        config = {CLEANUP_POLICY: "compact"} if compacted else {RETENTION_MS: "-1"}
        values = ", ".join(f"{key}={value}" for key, value in config.items())
        log.warning("took over topic %s (partitions: %d); its settings are unknown; using %s", name, count, values)
        topic = self._grown(znodes.TopicNode(topic_id, {}), count)
        path, data = znodes.config_path("topics", name), znodes.encode_config(config)
        settings: Operation = SetData(path, data) if await self.tree.exists(path) else Create(path, data)
        await self.tree.multi([Create(znodes.topic_path(name), znodes.encode_topic(topic)), settings])
        await self._read_states([(name, topic)])
        return config

    def _count(self, name: str, logs: Collection[Log]) -> int:
        """The number of partitions, including those that are offline."""
        offline = [partition_log.tp for partition_log in self.dirs.offline_logs() if partition_log.tp.topic == name]
        return max(tp.partition for tp in [*(partition_log.tp for partition_log in logs), *offline]) + 1

    async def _grow_to(self, topic: ControlledTopic, count: int) -> None:
        old = len(topic.partitions)
        if count > old:
            log.info("topic %s has %d partitions now, not %d", topic.name, count, old)
            stored = znodes.TopicNode(topic.id, {n: partition.assigned for n, partition in topic.partitions.items()})
            grown = self._grown(stored, count)
            await self.tree.set(znodes.topic_path(topic.name), znodes.encode_topic(grown))
            await self._read_states([(topic.name, grown)])

    async def _read_states(self, stored: Iterable[tuple[str, znodes.TopicNode]]) -> None:
        self.topics |= {topic.name: topic for topic in await tree_reader.with_states(self.tree, stored)}

    def _grown(self, topic: znodes.TopicNode, count: int) -> znodes.TopicNode:
        added = {number: ReplicaAssignment((self.me,)) for number in range(count) if number not in topic.partitions}
        return topic._replace(partitions={**topic.partitions, **added})

    async def _forget(self, name: str) -> None:
        del self.topics[name]
        operations = await tree_reader.removal(self.tree, znodes.topic_path(name))
        config = znodes.config_path("topics", name)
        if await self.tree.exists(config):
            operations.append(Delete(config))
        await self.tree.multi(operations)

    async def _begin_epochs(self) -> None:
        """Begins a leader epoch in each partition, above all epochs of its log."""
        operations: list[Operation] = []
        for topic in self.topics.values():
            present = set(await self.tree.children(f"{znodes.topic_path(topic.name)}/partitions") or ())
            if topic.partitions and not await self.tree.exists(f"{znodes.topic_path(topic.name)}/partitions"):
                operations.append(Create(f"{znodes.topic_path(topic.name)}/partitions"))
            for number in topic.partitions:
                operations += self._begin_epoch(topic, number, exists=str(number) in present)
        if operations:
            await self.tree.multi(operations)

    def _begin_epoch(self, topic: ControlledTopic, number: int, *, exists: bool) -> list[Operation]:
        tp, partition = TopicPartition(topic.name, number), topic.partitions[number]
        partition_log, before = self.dirs.logs.get(tp), partition.decision
        latest = (
            -1 if partition_log is None or partition_log.epochs.latest is None else partition_log.epochs.latest.epoch
        )
        epoch = max(-1 if before is None else before.leader_epoch, latest) + 1
        controller_epoch = partition.controller_epoch or FIRST_CONTROLLER
        state = znodes.encode_state(znodes.PartitionStateNode(self.me, epoch, (self.me,), controller_epoch))
        if before is not None:
            return [SetData(znodes.state_path(tp), state)]
        return [*([] if exists else [Create(znodes.partition_path(tp))]), Create(znodes.state_path(tp), state)]


def first_producer_id(cluster_id: str, logs: Iterable[Log]) -> ProducerId:
    """The first producer id for a tree that has assigned none.

    The logs may hold ids that Kafka's own broker assigned, and it may assign more when it gets the directories back. It
    counts from 0, so ours begin far above. If an earlier tree of ours was lost, ours begin above all that it assigned.
    """
    first = FAR_PRODUCER_ID + crc32(cluster_id.encode()) * BLOCK_SIZE
    producer_ids = (producer_id for partition_log in logs for producer_id in partition_log.producer_state.by_id)
    ours = [producer_id for producer_id in producer_ids if first <= producer_id < first + OWN_PRODUCER_IDS]
    return max(ours) + BLOCK_SIZE if ours else first

"""The cluster as the tree has it: brokers, topics, settings. What changes is written to the tree first.

For one node the controller is this broker itself: what it decides it carries out at once, and a topic that was created
can be used when its creation is answered.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar
from zlib import crc32

from leadline.controller.topics import INTERNAL, Assignment, check_name
from leadline.coordination import znodes
from leadline.coordination.tree import Create, Delete, NodeExists, Operation, Set, Tree
from leadline.errors import LogDirFailed, StorageError, UnknownTopicOrPartition
from leadline.log.log import Log
from leadline.model import BrokerId, LeaderEpoch, TopicId, TopicPartition, new_id
from leadline.replication.replicas import Replicas

log = logging.getLogger(__name__)

PRODUCER_IDS_AT_ONCE = 1000
PRODUCER_IDS_IN_ALL = 1 << 40
FAR_PRODUCER_ID = 1 << 44  # and yet a number that any language can tell exactly
OUR_STOP = -2  # in place of a broker epoch in .kafka_cleanshutdown, where Kafka with ZooKeeper writes -1
CLEANUP_POLICY, RETENTION_MS = "cleanup.policy", "retention.ms"


class Endpoint(NamedTuple):
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    id: BrokerId
    endpoints: Mapping[str, Endpoint]  # by listener
    rack: str | None = None


class Partition(NamedTuple):
    leader: BrokerId
    leader_epoch: LeaderEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]


@dataclass(slots=True)
class Topic:
    name: str
    id: TopicId
    partitions: list[Partition]
    config: dict[str, str] = field(default_factory=dict)  # what differs from the broker's defaults


P = ParamSpec("P")
T = TypeVar("T")
_Change = Callable[Concatenate["Cluster", P], Coroutine[None, None, T]]


def _to_its_end(change: _Change[P, T]) -> _Change[P, T]:
    """A change goes through to its end, also if who asked for it goes away: the tree and we must agree."""

    @wraps(change)
    async def run(cluster: "Cluster", /, *args: P.args, **kwargs: P.kwargs) -> T:
        task = asyncio.create_task(change(cluster, *args, **kwargs), name=change.__name__)
        cluster.under_way.add(task)
        task.add_done_callback(cluster.under_way.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # told to who asked, if to anybody
        return await asyncio.shield(task)

    return run


class Cluster:
    def __init__(self, tree: Tree, replicas: Replicas, me: BrokerInfo, cluster_id: str) -> None:
        self.tree, self.replicas, self.me, self.cluster_id = tree, replicas, me, cluster_id
        self.brokers: dict[BrokerId, BrokerInfo] = {me.id: me}
        self.controller = me.id
        self.topics: dict[str, Topic] = {}
        self.by_id: dict[TopicId, Topic] = {}
        self.broker_config: dict[str, str] = {}  # settings of this broker that were changed while it ran
        self.default_config: dict[str, str] = {}  # and those of all brokers
        self.on_delete: list[Callable[[str], None]] = []  # a topic is gone
        self.under_way: set[asyncio.Task[object]] = set()  # changes
        self._changing = asyncio.Lock()
        self._producer_ids = range(0)

    # Loading

    async def read(self) -> None:
        """What the tree says. The settings of topics are needed before their logs are opened."""
        for path in znodes.PERSISTENT:
            if not await self.tree.exists(path):
                await self.tree.create(path, make_parents=True)
        for name in await self.tree.children(znodes.TOPICS) or []:
            await self._read_topic(name)
        self.broker_config = await self._read_config("brokers", str(self.me.id))
        self.default_config = await self._read_config("brokers", znodes.DEFAULT_ENTITY)

    async def lead(self) -> None:
        """Finish what was begun, reconcile the tree with what lies in the log directories, and lead it all."""
        for name in await self.tree.children(znodes.DELETE_TOPICS) or []:
            await self._finish_deletion(name)
        await self._reconcile()
        await self._note_new_epochs()
        for topic in self.topics.values():
            self.replicas.dirs.update_config(topic.name)
            await self._lead(topic, range(len(topic.partitions)))

    async def _note_new_epochs(self) -> None:
        """Each start begins a new epoch: what a crash may have cost can be told from it.

        It lies above all that the log has seen, also under another broker.
        """
        changes: list[Operation] = []
        for topic in self.topics.values():
            for number, partition in enumerate(topic.partitions):
                tp = TopicPartition(topic.name, number)
                one = self.replicas.dirs.logs.get(tp)
                if one is not None and one.epochs.latest is not None:
                    epoch = max(partition.leader_epoch, one.epochs.latest.epoch + 1)
                    partition = topic.partitions[number] = partition._replace(leader_epoch=epoch)
                changes.append(Set(znodes.state_path(tp), self._state(partition)))
        if changes:
            await self.tree.multi(changes)

    async def _read_topic(self, name: str) -> None:
        node = await self.tree.get(znodes.topic_path(name))
        if node is None:
            return
        stored = znodes.decode_topic(name, node.data)
        partitions = []
        for number in sorted(stored.partitions):
            replicas = stored.partitions[number].replicas
            state = await self.tree.get(znodes.state_path(TopicPartition(name, number)))
            last = -1 if state is None else znodes.decode_state(TopicPartition(name, number), state.data).leader_epoch
            partitions.append(Partition(self.me.id, last + 1, replicas, (self.me.id,)))
        config = await self._read_config("topics", name)
        self._know(Topic(name, stored.id or new_id(), partitions, config))

    async def _read_config(self, *entity: str) -> dict[str, str]:
        path = znodes.config_path(*entity)
        node = await self.tree.get(path)
        return {} if node is None else znodes.decode_config(path, node.data)

    async def _reconcile(self) -> None:
        """The tree does not know what another broker, Kafka's own, did in the log directories since: they are right.

        A topic of theirs is taken over, one that has another id by now is that other topic, and one that is gone
        after a clean stop of theirs was deleted.
        """
        dirs = self.replicas.dirs
        theirs = all(found.was_clean and found.broker_epoch != OUR_STOP for found in dirs.dirs.values())
        found: dict[str, list[Log]] = {}
        for tp, one in dirs.logs.items():
            found.setdefault(tp.topic, []).append(one)
        for name in [name for name in self.topics if theirs and name not in found and not dirs.offline]:
            log.info("topic %s is gone from the log directories: it was deleted by another broker", name)
            await self._forget(name)
        cleaned = {tp.topic for tp in await dirs.cleaned_offsets()}
        for name, logs in found.items():
            known, ids = self.topics.get(name), {one.topic_id for one in logs} - {None}
            if known is not None and ids and known.id not in ids:
                log.warning("topic %s is another one now, with id %s: the old one is forgotten", name, ids)
                await self._forget(name)
                known = None
            if known is None:
                await self._take_over(name, logs, compacted=name in cleaned or name in INTERNAL)
            else:
                await self._grow_to(known, max(one.tp.partition for one in logs) + 1)

    async def _take_over(self, name: str, logs: list[Log], *, compacted: bool) -> None:
        """A topic of which only the logs are here. Its settings are not: nothing is deleted before they are known."""
        topic_id = next((one.topic_id for one in logs if one.topic_id is not None), None) or new_id()
        count = max(one.tp.partition for one in logs) + 1
        config = {CLEANUP_POLICY: "compact"} if compacted else {RETENTION_MS: "-1"}
        topic = self._new_topic(name, topic_id, ((self.me.id,),) * count, config, 0)
        told = ", ".join(f"{key}={value}" for key, value in config.items())
        log.warning("took over topic %s with %d partitions; its settings are not known: set %s", name, count, told)
        await self.tree.multi(self._creation(topic))
        self._know(topic)

    async def _grow_to(self, topic: Topic, count: int) -> None:
        old = len(topic.partitions)
        if count > old:
            grown = self._grown(topic, ((self.me.id,),) * (count - old))
            log.info("topic %s has %d partitions now, not %d", topic.name, count, old)
            await self._write_growth(grown, old)

    async def _forget(self, name: str) -> None:
        topic = self.topics[name]
        await self.tree.multi(await self._deletion(topic))
        self._unknow(topic)

    def _know(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        self.by_id[topic.id] = topic

    def _unknow(self, topic: Topic) -> None:
        del self.topics[topic.name]
        del self.by_id[topic.id]

    async def _lead(self, topic: Topic, numbers: range) -> None:
        with _disk():
            for number in numbers:
                partition = topic.partitions[number]
                tp = TopicPartition(topic.name, number)
                await self.replicas.lead(tp, topic.id, partition.leader_epoch, partition.replicas)

    # Topics

    @_to_its_end
    async def create_topic(self, name: str, assignment: Assignment, config: Mapping[str, str]) -> Topic:
        """TopicAlreadyExists, InvalidTopic. When this returns, the topic can be used."""
        async with self._changing:
            check_name(name, self.topics)
            topic = self._new_topic(name, new_id(), assignment, dict(config), 0)
            await self.tree.multi(self._creation(topic))
            self._know(topic)
            await self._lead(topic, range(len(assignment)))
        return topic

    def _new_topic(
        self, name: str, topic_id: TopicId, assignment: Assignment, config: dict[str, str], epoch: LeaderEpoch
    ) -> Topic:
        partitions = [Partition(self.me.id, epoch, replicas, (self.me.id,)) for replicas in assignment]
        return Topic(name, topic_id, partitions, config)

    def _creation(self, topic: Topic) -> list[Operation]:
        operations: list[Operation] = [
            Create(znodes.topic_path(topic.name), self._encode(topic)),
            Create(f"{znodes.topic_path(topic.name)}/partitions"),
            *self._states(topic, range(len(topic.partitions))),
        ]
        if topic.config:
            operations.append(Create(znodes.config_path("topics", topic.name), znodes.encode_config(topic.config)))
        return operations

    def _encode(self, topic: Topic) -> bytes:
        replicas = {n: znodes.Replicas(partition.replicas) for n, partition in enumerate(topic.partitions)}
        return znodes.encode_topic(znodes.Topic(topic.id, replicas))

    def _states(self, topic: Topic, numbers: range) -> list[Operation]:
        found: list[Operation] = []
        for number in numbers:
            tp = TopicPartition(topic.name, number)
            state = Create(znodes.state_path(tp), self._state(topic.partitions[number]))
            found += [Create(znodes.partition_path(tp)), state]
        return found

    def _state(self, partition: Partition) -> bytes:
        return znodes.encode_state(znodes.PartitionState(partition.leader, partition.leader_epoch, partition.isr, 1))

    @_to_its_end
    async def add_partitions(self, name: str, more: Callable[[Topic], Assignment]) -> None:
        async with self._changing:
            topic = self.topic(name)
            old = len(topic.partitions)
            grown = self._grown(topic, more(topic))
            await self._write_growth(grown, old)
            await self._lead(grown, range(old, len(grown.partitions)))

    def _grown(self, topic: Topic, assignment: Assignment) -> Topic:
        more = [Partition(self.me.id, 0, replicas, (self.me.id,)) for replicas in assignment]
        return Topic(topic.name, topic.id, [*topic.partitions, *more], topic.config)

    async def _write_growth(self, grown: Topic, old: int) -> None:
        states = self._states(grown, range(old, len(grown.partitions)))
        await self.tree.multi([Set(znodes.topic_path(grown.name), self._encode(grown)), *states])
        self._know(grown)

    @_to_its_end
    async def delete_topic(self, name: str) -> None:
        """First it is noted, so that a deletion that a crash interrupts goes on after it; the name is free at last."""
        async with self._changing:
            topic = self.topic(name)
            with suppress(NodeExists):  # tried before, and failed
                await self.tree.create(znodes.delete_topic_path(name))
            with _disk():
                for number in range(len(topic.partitions)):
                    await self.replicas.drop(TopicPartition(name, number))
            self._tell_of_deletion(name)
            await self.tree.multi([*await self._deletion(topic), Delete(znodes.delete_topic_path(name))])
            self._unknow(topic)

    async def _finish_deletion(self, name: str) -> None:
        log.info("topic %s was being deleted when the broker stopped: now it is", name)
        for tp in [tp for tp in self.replicas.dirs.logs if tp.topic == name]:
            await self.replicas.dirs.delete(tp)
        self._tell_of_deletion(name)
        if name in self.topics:
            await self._forget(name)
        await self.tree.delete(znodes.delete_topic_path(name))

    def _tell_of_deletion(self, name: str) -> None:
        """While it is noted as to be deleted: should we be killed before all know, they are told again."""
        for told in self.on_delete:
            told(name)

    async def _deletion(self, topic: Topic) -> list[Operation]:
        operations: list[Operation] = []
        for number in range(len(topic.partitions)):
            tp = TopicPartition(topic.name, number)
            operations += [Delete(znodes.state_path(tp)), Delete(znodes.partition_path(tp))]
        path = znodes.topic_path(topic.name)
        operations += [Delete(f"{path}/partitions"), Delete(path)]
        if await self.tree.exists(znodes.config_path("topics", topic.name)):
            operations.append(Delete(znodes.config_path("topics", topic.name)))
        return operations

    def partition_count(self, name: str) -> int | None:
        """None: there is no such topic."""
        topic = self.topics.get(name)
        return None if topic is None else len(topic.partitions)

    def has_partition(self, tp: TopicPartition) -> bool:
        topic = self.topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < len(topic.partitions)

    def topic(self, name: str) -> Topic:
        try:
            return self.topics[name]
        except KeyError:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.") from None

    # Settings

    @_to_its_end
    async def alter_topic_config(self, name: str, altered: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """All of what differs from the defaults, worked out from what did so far. The logs obey at once."""
        async with self._changing:
            topic = self.topic(name)
            config = altered(topic.config)
            await self._write_config(("topics", name), config)
            topic.config = config
            self.replicas.dirs.update_config(name)

    @_to_its_end
    async def alter_broker_config(self, altered: Callable[[], dict[str, str]], *, of_all: bool) -> None:
        async with self._changing:
            config = altered()
            entity = znodes.DEFAULT_ENTITY if of_all else str(self.me.id)
            await self._write_config(("brokers", entity), config)
            if of_all:
                self.default_config = config
            else:
                self.broker_config = config

    async def _write_config(self, entity: Sequence[str], config: Mapping[str, str]) -> None:
        path, data = znodes.config_path(*entity), znodes.encode_config(config)
        try:
            await self.tree.create(path, data, make_parents=True)
        except NodeExists:
            await self.tree.set(path, data)

    # Producer ids

    @_to_its_end
    async def next_producer_id(self) -> int:
        async with self._changing:
            if not self._producer_ids:
                self._producer_ids = await self._claim_producer_ids()
            first = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
            return first

    def _first_producer_id(self) -> int:
        """Where a tree that knows of no ids begins: the logs may hold those that another broker, Kafka's own, gave out,
        and it may go on with its own when it has them back. It counts from 0; so this is far above, and above all of
        ours that a tree which was lost gave out.
        """
        first = FAR_PRODUCER_ID + crc32(self.cluster_id.encode()) * PRODUCER_IDS_AT_ONCE
        known = (found for hosted in self.replicas.hosted.values() for found in hosted.log.producers.by_id)
        ours = [found for found in known if first <= found < first + PRODUCER_IDS_IN_ALL]  # the rest is anybody's
        return max(ours) + PRODUCER_IDS_AT_ONCE if ours else first

    async def _claim_producer_ids(self) -> range:
        """A block of ids that nobody else has or will have."""
        node = await self.tree.get(znodes.PRODUCER_ID_BLOCK)
        last = None if node is None else znodes.decode_producer_id_block(node.data)
        start = self._first_producer_id() if last is None else last.last + 1
        block = znodes.ProducerIdBlock(self.me.id, start, start + PRODUCER_IDS_AT_ONCE - 1)
        if node is None:
            await self.tree.create(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), make_parents=True)
        else:
            await self.tree.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), node.version)
        return range(start, start + PRODUCER_IDS_AT_ONCE)


@contextmanager
def _disk() -> Iterator[None]:
    """A directory that fails is an answer for who asked."""
    try:
        yield
    except LogDirFailed as error:
        raise StorageError(str(error)) from error

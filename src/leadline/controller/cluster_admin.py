"""Changes of the cluster that clients request: topics, settings, producer ids.

A change is written to the tree, and the controller reads it there, as it reads the changes of tools. Clients send their
requests to the controller's broker, which writes them. Any broker creates a topic at its first use. A change that is
written is not yet carried out: a topic can be used once its partitions have leaders. The methods return when the change
is carried out.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from leadline.cluster.broker_client import PeerLost
from leadline.cluster.dynamic_configs import Altered, DynamicConfigs
from leadline.cluster.metadata_cache import CachedTopic, MetadataCache
from leadline.cluster.peers import Peers
from leadline.config.live_settings import LiveSettings
from leadline.controller.controller import Controller
from leadline.controller.topics import Assignment, assign, check_name
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import BadVersion, Create, NodeExists, Operation, SetData, TreeError, check_path
from leadline.coordination.znodes import ReplicaAssignment
from leadline.errors import (
    CoordinatorLoadInProgress,
    NotController,
    RequestTimedOut,
    StorageError,
    TopicAlreadyExists,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from leadline.model import BrokerId, Offset, TopicId, TopicPartition, new_id
from leadline.runtime.ended_tasks import all_ended
from leadline.runtime.ordered_set import OrderedSet
from leadline.runtime.periodic import spawn
from leadline.runtime.ports import Chance
from leadline.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse

DEFAULT_TIMEOUT_MS = 60_000  # for requests without a time-out
ANSWER_S = 5.0  # for brokers to report whether they created the partitions that they will lead
CREATION_RETRY_S = 5.0  # before partitions are created again that lacked a resource

P = ParamSpec("P")
T = TypeVar("T")
_Change = Callable[Concatenate["ClusterAdmin", P], Coroutine[None, None, T]]


def _uncancelled(change: _Change[P, T]) -> _Change[P, T]:
    """Runs a change to completion even if the caller is cancelled, so that memory and the tree stay consistent.

    UnknownServerError if the tree is out of reach: the change may be carried out or not.
    """

    @wraps(change)
    async def run(cluster: "ClusterAdmin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        task = spawn(change(cluster, *args, **kwargs), cluster.under_way, change.__name__, quiet=True)
        try:
            return await asyncio.shield(task)
        except TreeError as error:
            raise UnknownServerError(f"{change.__name__} failed: {error}") from error

    return run


class ClusterAdmin:
    def __init__(
        self,
        metadata: MetadataCache,
        configs: DynamicConfigs,
        controller: Controller,
        peers: Peers,
        settings: LiveSettings,
        chance: Chance,
    ) -> None:
        self.tree, self.metadata, self.configs, self.controller = controller.tree, metadata, configs, controller
        self.peers, self._settings, self._chance = peers, settings, chance
        self.under_way: OrderedSet[asyncio.Task[object]] = OrderedSet()  # changes that are not carried out yet
        self._changing, self._claiming = asyncio.Lock(), asyncio.Lock()
        self._producer_ids = range(0)
        self._waiting: OrderedSet[asyncio.Event] = OrderedSet()
        self._stopping = False
        self._creation_retry: asyncio.TimerHandle | None = None

    async def stop(self) -> None:
        """Changes are written, but their callers no longer wait for the controller to carry them out."""
        self._stopping = True
        if self._creation_retry is not None:
            self._creation_retry.cancel()
        for waiting in self._waiting:
            waiting.set()
        await all_ended(*self.under_way)

    # Topics

    @_uncancelled
    async def create_topic(
        self, name: str, assignment: Assignment, config: Mapping[str, str], timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> CachedTopic:
        """TopicAlreadyExists, InvalidTopic, RequestTimedOut. When this returns, the topic can be used."""
        await self._until_free(name, timeout_ms)
        async with self._changing:
            check_name(name, self.metadata.topics)
            await self._write_topic(name, assignment, config)
        await self._until(
            lambda: self._has_leaders(name, len(assignment)), timeout_ms, f"topic {name} has no leaders yet"
        )
        await self._check_created(name)
        return self.metadata.topic(name)

    def spread(self, racks: Mapping[BrokerId, str | None], partitions: int, factor: int) -> Assignment:
        """Assigns partitions to brokers, beginning at a random one, so that topics have different first leaders."""
        last = max(len(racks) - 1, 0)  # without a broker, `assign` raises
        start, shift = self._chance.randint(0, last), self._chance.randint(0, last)
        return assign(racks, partitions, factor, start=start, shift=shift)

    async def _write_topic(self, name: str, assignment: Assignment, config: Mapping[str, str]) -> TopicId:
        """Creates the topic and its settings in one transaction."""
        topic = znodes.TopicNode(
            new_id(self._chance.new_uuid),
            {number: ReplicaAssignment(replicas) for number, replicas in enumerate(assignment)},
        )
        assert topic.id is not None
        path, data = znodes.config_path("topics", name), znodes.encode_config(config)
        settings: Operation = SetData(path, data) if await self.tree.exists(path) else Create(path, data)
        try:
            await self.tree.multi([Create(znodes.topic_path(name), znodes.encode_topic(topic)), settings])
        except NodeExists:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.") from None
        return topic.id

    @_uncancelled
    async def add_partitions(
        self, name: str, added_partitions: Callable[[CachedTopic], Assignment], timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> None:
        """`more` returns the new partitions of the topic. No other change is made during the call."""
        async with self._changing:
            self.check_controller()
            count = await self._write_partitions(name, added_partitions)
            await self._until(
                lambda: self._has_leaders(name, count),
                timeout_ms,
                f"some partitions of topic {name} have no leaders yet",
            )
        await self._check_created(name)

    async def _write_partitions(self, name: str, added_partitions: Callable[[CachedTopic], Assignment]) -> int:
        """Returns the new number of partitions."""
        path = znodes.topic_path(name)
        while True:
            added = added_partitions(self.topic(name))
            node = await self.tree.get(path)
            if node is None:
                raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
            topic = znodes.decode_topic(name, node.data)
            have = len(topic.partitions)
            partitions = {have + n: ReplicaAssignment(replicas) for n, replicas in enumerate(added)}
            grown = topic._replace(partitions={**topic.partitions, **partitions})
            try:
                await self.tree.set(path, znodes.encode_topic(grown), node.version)
            except BadVersion:
                continue
            return have + len(added)

    @_uncancelled
    async def delete_topic(self, name: str, timeout_ms: int = DEFAULT_TIMEOUT_MS) -> None:
        """When this returns, the name is free again, or will be once the brokers of all replicas are back."""
        async with self._changing:
            self.check_controller()
            self.topic(name)
            try:
                await self.tree.create(znodes.delete_topic_path(name))
            except NodeExists:
                await self.controller.do(lambda decisions: decisions.deletions.resume_for((name,)))  # a retry
        await self._until(lambda: self._is_gone(name), timeout_ms, f"topic {name} is not deleted yet")
        await self.controller.do(lambda decisions: None)  # after what is about to be written

    def check_controller(self) -> None:
        if not self.controller.is_active:
            raise NotController(f"broker {self.metadata.me.id} is not the controller")

    def topic(self, name: str) -> CachedTopic:
        """A topic that a client wants to change. UnknownTopicOrPartition.

        NotController: the controller knows it, and this broker has not heard of it. A broker that starts just before
        it is elected knows no topic; the client must not take that for a deletion.
        """
        if name not in self.metadata.topics and self.controller.keeps(name):
            raise NotController(f"broker {self.metadata.me.id} has just become the controller")
        return self.metadata.topic(name)

    def topic_by_id(self, id: TopicId) -> CachedTopic:
        """As `topic`. UnknownTopicId."""
        if (topic := self.metadata.by_id.get(id)) is not None:
            return topic
        with suppress(KeyError, UnknownTopicOrPartition):
            return self.topic(self.controller.topic_names[id])
        raise UnknownTopicId(f"topic id {id} does not exist")

    # Waiting until a change is carried out

    def _has_leaders(self, name: str, count: int) -> bool:
        topic = self.metadata.topics.get(name)
        if topic is None or len(topic.partitions) < count:
            return False
        return all(partition.leader >= 0 for partition in topic.partitions.values())

    async def _check_created(self, name: str) -> None:
        """StorageError if brokers could not create partitions that they were to lead, and no other broker leads them.

        A broker that does not answer within ANSWER_S is trusted to create them, as Kafka trusts it.
        """
        topic = self.metadata.topics.get(name)
        if topic is None or not self.controller.is_active:
            return
        with suppress(TimeoutError, NotController):
            async with asyncio.timeout(ANSWER_S):
                await self.controller.answered_by(partition.leader for partition in topic.partitions.values())
            leaderless = await self.controller.do(lambda decisions: decisions.leaderless(name))
            if leaderless:
                raise StorageError(
                    f"{len(leaderless)} of {len(topic.partitions)} partitions of topic {name} could not be created; "
                    "the logs of their brokers have the reasons, and the brokers retry"
                )

    def retry_creation_later(self) -> None:
        """Some partitions could not be created: after a while, has the controller send LeaderAndIsr again."""
        if self._creation_retry is None and not self._stopping:
            self._creation_retry = asyncio.get_running_loop().call_later(CREATION_RETRY_S, self._retry_creation)

    def _retry_creation(self) -> None:
        self._creation_retry = None
        self.log_dir_failed()

    async def _until_free(self, name: str, timeout_ms: int) -> None:
        """Waits until an older topic of this name is deleted."""
        check_name(name)
        if self.controller.is_active and await self.tree.exists(znodes.delete_topic_path(name)):
            await self._until(lambda: self._is_gone(name), timeout_ms, f"the former topic {name} is not deleted yet")
            await self.controller.do(lambda decisions: None)  # after what is about to be written

    def _is_gone(self, name: str) -> bool:
        if name in self.metadata.topics:
            return False
        decisions = self.controller.decisions
        return decisions is None or name not in decisions.state.topics or name in decisions.state.undeletable

    async def until_led(self, tp: TopicPartition, is_expected: Callable[[int], bool], timeout_ms: int) -> None:
        """Returns once this broker knows a leader of the partition for which `is_so` holds. RequestTimedOut."""

        def led() -> bool:
            topic = self.metadata.topics.get(tp.topic)
            partition = None if topic is None else topic.partitions.get(tp.partition)
            return partition is not None and is_expected(partition.leader)

        await self._until(led, timeout_ms, f"the election of {tp} is not over yet")

    async def _until(self, is_done: Callable[[], bool], timeout_ms: int, problem: str) -> None:
        changed = asyncio.Event()
        self._waiting.add(changed)
        for listeners in (self.metadata.on_change, self.controller.on_decided):
            listeners.append(changed.set)
        try:
            async with asyncio.timeout(max(timeout_ms, 0) / 1000):
                while not is_done() and not self._stopping:
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            raise RequestTimedOut(f"{problem} after {timeout_ms} ms") from None
        finally:
            self._waiting.discard(changed)
            for listeners in (self.metadata.on_change, self.controller.on_decided):
                listeners.remove(changed.set)

    def log_dir_failed(self) -> None:
        """Notifies the controller, which then asks this broker which replicas are affected."""

        async def notify() -> None:
            data = znodes.encode_log_dir_event(self.metadata.me.id)
            await self.tree.create(znodes.LOG_DIR_EVENT, data, sequential=True)

        spawn(notify(), self.under_way, "notify the controller of a failed log directory", quiet=True)

    # Settings

    @_uncancelled
    async def alter_topic_config(self, name: str, altered: Altered) -> None:
        """`altered` returns the new overrides, given the current ones. They take effect at once."""
        async with self._changing:
            self.metadata.topic(name)
            await self.configs.alter_topic(name, altered)

    @_uncancelled
    async def alter_broker_config(self, altered: Callable[[], dict[str, str]], *, of_all: bool) -> None:
        async with self._changing:
            await self.configs.alter_broker(altered, of_all=of_all)

    # Offsets of the oldest clients, which are kept in the tree

    async def write_consumer_offset(self, group_id: str, tp: TopicPartition, offset: Offset) -> None:
        """Raises UnknownServerError if the group makes no valid path, or the tree is out of reach."""
        path = znodes.consumer_offset_path(group_id, tp)
        try:
            check_path(path)
            data = znodes.encode_consumer_offset(offset)
            if await self.tree.exists(path):
                await self.tree.set(path, data)
            else:
                await self.tree.create(path, data, make_parents=True)
        except (ValueError, TreeError) as error:
            raise UnknownServerError(f"{path} was not written: {error}") from error

    async def read_consumer_offset(self, group_id: str, tp: TopicPartition) -> Offset | None:
        """Returns None if the group has none. Raises UnknownServerError as `write_consumer_offset` does."""
        path = znodes.consumer_offset_path(group_id, tp)
        try:
            check_path(path)
            node = await self.tree.get(path)
            return None if node is None else znodes.decode_consumer_offset(path, node.data)
        except (ValueError, TreeError, MalformedNode) as error:
            raise UnknownServerError(f"{path} was not read: {error}") from error

    # Producer ids

    @_uncancelled
    async def next_producer_id(self) -> int:
        async with self._claiming:
            if not self._producer_ids:
                self._producer_ids = await self._claim_producer_ids()
            first = self._producer_ids[0]
            self._producer_ids = self._producer_ids[1:]
            return first

    async def _claim_producer_ids(self) -> range:
        """A block of ids that no other broker assigns. CoordinatorLoadInProgress: the client retries."""
        if self.controller.is_active:
            try:
                return await self.controller.producer_ids(self.metadata.me.id)
            except NotController as error:
                raise CoordinatorLoadInProgress(f"no producer ids are available now: {error}") from error
        timeout_s = self._settings.request_timeout_s
        request = AllocateProducerIdsRequest(broker_id=self.metadata.me.id, broker_epoch=self.metadata.broker_epoch)
        try:
            answer = await self.peers.ask_controller(request, AllocateProducerIdsResponse, 0, timeout_s)
        except PeerLost as error:
            raise CoordinatorLoadInProgress(f"no producer ids are available now: {error}") from error
        if answer.error_code:
            raise CoordinatorLoadInProgress(f"the controller returned no producer ids: error {answer.error_code}")
        return range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)

"""A Kafka cluster inside a test: real brokers on real sockets, in threads of the test's own process.

    with LocalCluster(brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

There is no JVM and no ZooKeeper: the brokers share a tree in memory. Files are in a temporary directory that goes with
the cluster. The test controls the brokers, the network, the requests and the clock.
"""

import asyncio
import math
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.api.explanations import explain
from leadline.config.broker import BrokerConfig, broker_settings
from leadline.coordination.memory_tree import MemoryTreeServer
from leadline.model import TopicPartition
from leadline.runtime.event_loop import EventLoop
from leadline.testing import snapshots
from leadline.testing.broker_network import ClusterNetwork
from leadline.testing.clock import ClusterClock
from leadline.testing.errors import ClusterError
from leadline.testing.explanation import explanation_of
from leadline.testing.local_broker import BrokerState, LocalBroker
from leadline.testing.local_client import EARLIEST, LATEST, LocalClient
from leadline.testing.log_lines import BrokerLogLines
from leadline.testing.records import ConsumedRecord, record_of
from leadline.testing.requests import ClusterRequests
from leadline.testing.topic_schema import TopicSchema, schema_of

if TYPE_CHECKING:
    from leadline.testing.async_cluster import AsyncCluster

T = TypeVar("T")
HOST = "127.0.0.1"
TIMEOUT_S = 60.0
POLL_S = 0.01
TICK_S = 0.1  # between two checks of the sessions of the tree
ADVANCE_STEPS = 10  # in which the clock is moved: the effects of a time-out run in the next one
SETTLE_S = 20.0  # in which followers fetch again after a step of the clock, at most


def default_settings(brokers: int) -> dict[str, str]:
    """Kafka's defaults, except those that make a test wait, or a cluster of a few brokers impossible."""
    copies = str(min(brokers, 3))
    return {
        "default.replication.factor": copies,
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": str(min(brokers, 2)),
        "group.initial.rebalance.delay.ms": "0",
        "connections.max.idle.ms": "-1",
        "log.cleaner.enable": "false",
        "log.retention.check.interval.ms": "10000",
    }


class LocalCluster:
    """`settings` are Kafka's, for all brokers. `seed` repeats their random choices. `snapshot`: where to start from."""

    def __init__(
        self,
        brokers: int | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        seed: int | None = None,
        snapshot: str | os.PathLike[str] | None = None,
    ) -> None:
        self._snapshot = None if snapshot is None else snapshots.read(snapshot)
        count = brokers if brokers is not None else 1 if self._snapshot is None else self._snapshot.brokers
        if count < 1:
            raise ValueError(f"a cluster has at least one broker, not {count}")
        if self._snapshot is not None and count != self._snapshot.brokers:
            raise ValueError(f"the snapshot {snapshot} is of {self._snapshot.brokers} brokers, not of {count}")
        self.seed = seed
        self.ids = list(range(1, count + 1))
        stored = {} if self._snapshot is None else self._snapshot.settings
        self.settings = default_settings(count) | stored | _texts(settings or {})
        for name in ("broker.id", "log.dirs", "log.dir", "zookeeper.connect"):
            if name in self.settings:
                raise ValueError(f"{name} cannot be set: the cluster sets it for each broker")
        if unknown := _unknown(_texts(settings or {})):
            raise ValueError(f"settings that Kafka does not have: {', '.join(unknown)}")
        self.clock = ClusterClock(self._advance)
        self.network = ClusterNetwork(lambda: self.ids)
        self.network.changed.append(self._network_changed)
        self.requests = ClusterRequests(self.clock, lambda: self.ids)
        self.tree = MemoryTreeServer(self.clock)
        self.log_lines = BrokerLogLines(self.clock)
        self.addresses: dict[int, str] = {}
        self._ports: dict[int, int] = {}  # the brokers, by the ports of their listeners
        self._reserved: list[socket.socket] = []
        self._brokers: dict[int, LocalBroker] = {}
        self._condition = threading.Condition()
        self._loop: EventLoop | None = None
        self._client = LocalClient(self._client_addresses)
        self._directory = ""
        self.topic_suffix = ""  # of the names that `topic` makes
        self._has_ended = False

    def __repr__(self) -> str:
        states = ", ".join(f"{broker.id} {broker.state.value}" for broker in self._brokers.values())
        return f"<cluster of {len(self.ids)}: {states}>"

    # Its life

    def __enter__(self) -> "LocalCluster":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> "AsyncCluster":
        from leadline.testing.async_cluster import AsyncCluster

        await asyncio.to_thread(self.start)
        return AsyncCluster(self)

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def start(self) -> None:
        """Returns when all brokers serve, and know each other."""
        if self._loop is not None or self._has_ended:
            raise ClusterError("a cluster is started once: make another one")
        self.log_lines.start()
        self._directory = tempfile.mkdtemp(prefix="leadline-")
        self._loop = EventLoop()
        self._thread = threading.Thread(target=self._run, name="leadline-testing", daemon=True)
        self._thread.start()
        try:
            if self._snapshot is not None:
                snapshots.restore(self._snapshot, self._directory, self.tree, self.clock)
            for id in self.ids:
                self._brokers[id] = LocalBroker(self, id, self._settings_of(id))
            for broker in self._brokers.values():
                broker.begin()
            for broker in self._brokers.values():
                broker.wait_until_started()
            for id in self.ids:
                self.wait_until_joined(id)
        except BaseException:
            self.close()
            raise

    def _run(self) -> None:
        loop = self._loop
        assert loop is not None
        asyncio.set_event_loop(None)
        loop.call_soon(self._tick)
        try:
            loop.run_forever()
        finally:
            loop.close()

    def _tick(self) -> None:
        assert self._loop is not None
        self.tree.tick()
        self._loop.call_later(TICK_S, self._tick)

    def close(self) -> None:
        """End all brokers at once, and remove their files."""
        if self._loop is None or self._has_ended:
            return
        self._has_ended = True
        for broker in self._living():
            broker.pause()  # so that none reacts to the end of another
        for broker in self._brokers.values():
            broker.end()
        self._loop.call_soon_threadsafe(self._client.close)
        self._loop.call_soon_threadsafe(self._loop.call_soon, self._loop.stop)
        self._thread.join()
        for sock in self._reserved:
            sock.close()
        shutil.rmtree(self._directory, ignore_errors=True)
        self.log_lines.stop()

    def _settings_of(self, id: int) -> dict[str, str]:
        text = self.settings.get("listeners", f"PLAINTEXT://{HOST}:0")
        listeners = [self._with_port(id, listener.strip()) for listener in text.split(",")]
        settings = self.settings | {
            "broker.id": str(id),
            "log.dirs": os.path.join(self._directory, f"broker-{id}"),
            "listeners": ",".join(listeners),
        }
        if len(self.ids) > 1:
            settings["zookeeper.connect"] = "the tree in memory"
        self.addresses[id] = listeners[0].partition("://")[2]
        return settings

    def _with_port(self, id: int, listener: str) -> str:
        """A port of 0 becomes one that stays reserved, so that a broker that starts again gets it again."""
        start, _, port = listener.rpartition(":")
        if port == "0":
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((HOST, 0))
            self._reserved.append(sock)
            port = str(sock.getsockname()[1])
        self._ports[int(port)] = id
        return f"{start}:{port}"

    # For its brokers

    def broker_at(self, port: int) -> int | None:
        return self._ports.get(port)

    def changed(self) -> None:
        """A change that a caller may wait for."""
        with self._condition:
            self._condition.notify_all()

    def wait_until_joined(self, id: int) -> None:
        """All brokers that run know the broker, and it knows them, with their controller."""
        if len(self.ids) == 1:
            return
        running = [broker for broker in self._brokers.values() if broker.is_running]

        def is_joined() -> bool:
            ids = {broker.id for broker in running}
            return all(local.run(lambda broker: _knows(broker.metadata, ids)) for local in running)

        if self.network.is_whole:  # else some brokers may never hear of others
            self.wait_for(is_joined, f"broker {id} has joined the cluster")

    def _network_changed(self) -> None:
        for broker in self._living():
            broker.loop.call_soon_threadsafe(broker.network.changed)
        self.tree.tick()

    def _living(self) -> list[LocalBroker]:
        """The brokers that run or are paused."""
        return [
            broker for broker in self._brokers.values() if broker.state in (BrokerState.RUNNING, BrokerState.PAUSED)
        ]

    def _client_addresses(self) -> dict[int, tuple[str, int]]:
        running = [broker for broker in self._brokers.values() if broker.is_running]
        parts = {broker.id: broker.address.rpartition(":") for broker in running}
        return {id: (host, int(port)) for id, (host, _, port) in parts.items()}

    # The clock

    def _advance(self, seconds: float) -> None:
        steps = min(ADVANCE_STEPS, max(1, math.ceil(seconds)))
        for _ in range(steps):
            self._step(seconds / steps)

    def _step(self, seconds: float) -> None:
        running = [broker for broker in self._brokers.values() if broker.is_running]
        for broker in running:
            broker.call(broker.loop.hold_timers, seconds)
        before_s = self.clock.monotonic_s()
        self.clock.jump(seconds)
        self.tree.tick()
        for broker in running:
            broker.loop.call_soon_threadsafe(lambda: None)
        self._settle(running, before_s)
        for broker in running:
            broker.call(broker.loop.release_timers)
        for _ in range(2):  # timers run in the next turn of the loop, and their effects in the one after it
            for broker in running:
                broker.call(lambda: None)

    def _settle(self, running: Sequence[LocalBroker], before_s: float) -> None:
        """Wait until brokers that fetch from others have fetched again."""
        deadline = time.monotonic() + SETTLE_S
        ids = {broker.id for broker in running}
        while time.monotonic() < deadline:
            links = [(leader, broker.id) for broker in running for leader in broker.run(_leaders_followed) & ids]
            links = [link for link in links if not self.network.is_cut(*link) and not self.network.is_cut(*link[::-1])]
            if all(self.requests.fetched_s.get(link, math.inf) > before_s for link in links):
                return
            time.sleep(0.001)

    # For tests

    @property
    def bootstrap_servers(self) -> str:
        """The value for the setting bootstrap.servers of clients."""
        if not self.addresses:
            raise ClusterError("the cluster is not started: use it in a with statement, or call start()")
        return ",".join(self.addresses[id] for id in self.ids)

    def broker(self, id: int) -> LocalBroker:
        if id not in self._brokers:
            raise ClusterError(f"there is no broker {id}: the brokers are {', '.join(map(str, self.ids))}")
        return self._brokers[id]

    @property
    def brokers(self) -> list[LocalBroker]:
        return list(self._brokers.values())

    @property
    def controller(self) -> LocalBroker:
        """The broker that is the controller at the moment."""
        for broker in self._brokers.values():
            if broker.is_running and broker.run(lambda node: node.controller.is_active):
                return broker
        raise ClusterError("no broker that runs is the controller: wait for the next election")

    def wait_for(self, condition: Callable[[], object], what: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the condition holds. ClusterError, with what the brokers saw, if it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise ClusterError(f"not so after {timeout_s:g} s: {what or 'the condition'}\n{self.story()}")
            with self._condition:
                self._condition.wait(min(POLL_S, left_s))

    def create_topic(
        self,
        topic: str,
        partitions: int = 1,
        replication_factor: int = -1,
        configs: Mapping[str, object] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> str:
        """The name of the topic. All its partitions have leaders. A replication factor of -1 is the default."""
        self._do(self._client.create_topic(topic, partitions, replication_factor, _texts(configs or {}), timeout_s))
        return topic

    def topic(self, name: str, partitions: int = 1, **options: Any) -> str:
        """Create a topic of the test's own: its name gets a suffix in a fixture of pytest. Options: `create_topic`."""
        suffix = f"-{self.topic_suffix}" if self.topic_suffix else ""
        return self.create_topic(f"{name}{suffix}", partitions, **options)

    def delete_topics(self, *topics: str, timeout_s: float = TIMEOUT_S) -> None:
        self._do(self._client.delete_topics(topics, timeout_s))

    @property
    def topics(self) -> list[str]:
        """The topics, without Kafka's own."""
        names: set[str] = set()
        for broker in self._brokers.values():
            if broker.is_running:
                names |= broker.run(lambda node: set(node.metadata.topics))
        return sorted(topic for topic in names if not topic.startswith("__"))

    def produce(
        self,
        topic: str,
        records: Sequence[Any],
        *,
        partition: int | None = None,
        headers: Mapping[str, str | bytes | None] | None = None,
        timestamp_ms: int | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> dict[int, int]:
        """Write records, with acks=all: values, or tuples of key and value. The first offset, by partition."""
        if isinstance(records, str | bytes):
            raise TypeError(f"records are a list, not {type(records).__name__}: cluster.produce(topic, [...])")
        at_ms = self.clock.now_ms() if timestamp_ms is None else timestamp_ms
        built = [record_of(entry, at_ms, headers or {}) for entry in records]
        return self._do(self._client.produce(topic, built, partition, timeout_s))

    def records(
        self,
        topic: str,
        count: int | None = None,
        *,
        partition: int | None = None,
        committed: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> list[ConsumedRecord]:
        """The records of a topic, as a consumer gets them. With `count`: wait until there are that many."""
        read: list[ConsumedRecord] = []

        def is_there() -> bool:
            try:
                records = self._do(self._client.records(topic, partition, committed=committed, timeout_s=timeout_s))
            except ClusterError:
                if count is None or topic in self.topics:
                    raise
                return False
            read[:] = records
            return count is None or len(records) >= count

        if count is None:
            is_there()
        else:
            self.wait_for(is_there, f"topic {topic} has {count} records", timeout_s)
        return read

    def values(self, topic: str, count: int | None = None, **options: Any) -> list[str | None]:
        """The values of the records of a topic, as text. Options are those of `records`."""
        return [record.text for record in self.records(topic, count, **options)]

    def end_offsets(self, topic: str, *, committed: bool = True, timeout_s: float = TIMEOUT_S) -> dict[int, int]:
        """Where the next record will be, by partition."""
        return self._do(self._client.offsets(topic, LATEST, committed=committed, timeout_s=timeout_s))

    def start_offsets(self, topic: str, *, timeout_s: float = TIMEOUT_S) -> dict[int, int]:
        """The oldest record that retention has left, by partition."""
        return self._do(self._client.offsets(topic, EARLIEST, committed=False, timeout_s=timeout_s))

    def schema(self, topic: str) -> TopicSchema:
        """The types of keys and values that were sent to a topic, and the fields of JSON objects."""
        return schema_of(topic, self.records(topic))

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition, as most brokers see it; None if there is none."""
        leader = self._partition(topic, partition)[0]
        return None if leader < 0 else leader

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas of a partition."""
        return sorted(self._partition(topic, partition)[1])

    def _partition(self, topic: str, partition: int) -> tuple[int, tuple[int, ...]]:
        """Leader and ISR, by the highest leader epoch that a broker knows."""
        newest: tuple[int, int, tuple[int, ...]] | None = None
        for broker in self._brokers.values():
            if broker.is_running:
                state = broker.run(lambda node: _state_of(node.metadata, topic, partition))
                if state is not None and (newest is None or state[0] > newest[0]):
                    newest = state
        if newest is None:
            raise ClusterError(
                f"no broker that runs knows {topic}-{partition}: the topics are {', '.join(self.topics)}"
            )
        return newest[1], newest[2]

    def explain(self, topic: str, partition: int | None = None) -> str:
        """A text: the leader, the position of each replica, recent events and their reasons."""
        reports: dict[TopicPartition, dict[int, dict[str, Any]]] = {}
        for broker in self._brokers.values():
            if broker.is_running:
                for tp, report in broker.run(lambda node: _reports(node, topic, partition)).items():
                    reports.setdefault(tp, {})[broker.id] = report
        if not reports:
            raise ClusterError(f"no broker that runs has {topic}: the topics are {', '.join(self.topics)}")
        absent = {broker.id: broker.state.value for broker in self._brokers.values() if not broker.is_running}
        return "\n\n".join(explanation_of(tp, own, absent) for tp, own in sorted(reports.items()))

    def snapshot(self, path: str | os.PathLike[str]) -> None:
        """Write a snapshot to a new folder: `LocalCluster(snapshot=path)` starts from it."""
        living = [broker for broker in self._living() if broker.is_running]
        if len(living) < len(self.ids):
            raise ClusterError(f"a snapshot needs all brokers: {self!r}")
        for broker in living:
            broker.pause()
        try:
            snapshots.write(path, self._directory, self.ids, self.settings, self.tree, self.clock)
        finally:
            for broker in living:
                broker.resume()

    def story(self) -> str:
        """What the brokers saw: the last requests of clients, and the last lines of their logs."""
        parts = [f"{self!r}, {self.clock!r}, {self.network!r}"]
        if lines := self.requests.lines():
            parts += ["last requests:", *(f"  {line}" for line in lines)]
        if lines := self.log_lines.last():
            parts += ["last log lines:", *(f"  {line}" for line in lines)]
        return "\n".join(parts)

    def recover(self) -> None:
        """Undo what a test did to the brokers: no rules, a whole network, and all brokers run. The clock stays."""
        self.requests.clear()
        self.network.heal()
        for broker in self._brokers.values():
            if broker.state is BrokerState.PAUSED:
                broker.resume()
            elif not broker.is_running:
                broker.start()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """The client does the work, on its loop."""
        if self._loop is None or self._has_ended:
            work.close()
            raise ClusterError("the cluster does not run: use it inside its with statement")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


def _texts(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as Kafka writes them: True is true."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in settings.items()}


def _unknown(settings: Mapping[str, str]) -> list[str]:
    """Names that no broker knows, each with the nearest that it knows."""
    ignored = broker_settings({**settings, "log.dirs": "unused", "listeners": f"PLAINTEXT://{HOST}:0"}).ignored
    names = BrokerConfig.table()
    return [text for text in ignored if (name := text.partition(" ")[0]) not in names and "listener.name" not in name]


def _knows(metadata: Any, ids: "set[int]") -> bool:
    return ids <= metadata.brokers.keys() and metadata.controller in ids


def _state_of(metadata: Any, topic: str, partition: int) -> tuple[int, int, tuple[int, ...]] | None:
    cached = metadata.topics.get(topic)
    state = None if cached is None else cached.partitions.get(partition)
    return None if state is None else (state.leader_epoch, state.leader, state.isr)


def _leaders_followed(broker: Any) -> "set[int]":
    hosted = broker.replicas.hosted.values()
    return {partition.leader_id for partition in hosted if partition.follower_state is not None}


def _reports(broker: Any, topic: str, partition: int | None) -> dict[TopicPartition, dict[str, Any]]:
    return {
        tp: explain(hosted, broker.replicas.me, broker.clock.now_ms())
        for tp, hosted in broker.replicas.hosted.items()
        if tp.topic == topic and partition in (None, tp.partition)
    }

"""A cluster of real processes: ZooKeeper and Leadline brokers on the loopback interface, and what can happen to them.

with cluster(path) as found:
    found.create("orders")
    found.run_steps("kill leader, wait 1, start it, settle")

Steps are done one after the other:

    kill, start, stop, pause, resume WHO        SIGKILL, start again, SIGTERM, SIGSTOP, SIGCONT
    fill WHO                                    its disk takes nothing more, until its process ends; which is awaited
    isolate WHO PLACE                           nothing passes between it and the `brokers`, or `zookeeper`; or `all`
    mend                                        the network, whatever was isolated
    wait N                                      seconds
    missed                                      until the topic has a new leader epoch, as the other brokers tell:
                                                sessions end when ZooKeeper gets to it
    settle                                      until all brokers run and all replicas are in sync

WHO: leader, follower (of the topic that was created last, at that moment), controller, a number; or `it`: the broker
that the last step was about. ZooKeeper can be killed and started.
"""

import os
import resource
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from leadline.cli.cluster.zookeeper_server import ZooKeeperServer
from leadline.wire.messages import MetadataRequest, MetadataResponse
from tests.conformance.both import Connection
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import _free_port
from tests.support.broker import RunningBroker
from tests.support.network import Network, network
from tests.support.secured import ClusterSecurity
from tests.support.waiting import until

ROUNDS = int(os.environ.get("LEADLINE_ROUNDS", "1"))  # how often each sequence of steps runs
PATIENCE_S = 120.0
METADATA_VERSION = 9
ROOM_BYTES = 65536  # on a disk that is full, for what a broker says before it ends
SETTINGS = {
    "zookeeper.session.timeout.ms": "2000",
    "replica.lag.time.max.ms": "2000",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "log.retention.ms": "-1",
}


class Cluster:
    def __init__(
        self,
        path: Path,
        brokers: int,
        net: Network | None,
        settings: Mapping[str, str],
        security: ClusterSecurity | None = None,
    ) -> None:
        self.path, self.net, self.topic, self._broker_id, self.security = path, net, "", 0, security
        self._epoch_before = 0  # of the topic's first partition, when a broker was last paused or isolated
        self._zookeeper_port = _free_port()
        self.zookeeper = self._start_zookeeper()
        if security is not None:
            security.create_users(f"127.0.0.1:{self._zookeeper_port}")
        with ThreadPoolExecutor(brokers) as at_once:
            started = at_once.map(lambda id: self._new_broker(id, settings), range(1, brokers + 1))
            self.brokers = dict(enumerate(started, 1))
        self.bootstrap = ",".join(f"127.0.0.1:{_client_port(broker)}" for broker in self.brokers.values())
        self.client = {"bootstrap.servers": self.bootstrap, **({} if security is None else security.client())}
        self.admin = self._new_admin()

    def _new_admin(self) -> AdminClient:
        """librdkafka 2.16 waits for a controller that is gone: it asks no other broker for the next one."""
        return AdminClient(self.client | {"log_level": 0})

    def _start_zookeeper(self) -> ZooKeeperServer:
        return ZooKeeperServer.start(self.path / "zookeeper", self._zookeeper_port, f"{jars.libs()}/*")

    def _new_broker(self, id: int, settings: Mapping[str, str]) -> RunningBroker:
        port, connect = _free_port(), self._zookeeper_port
        own = {"broker.id": str(id), "listeners": f"PLAINTEXT://127.0.0.1:{port}"}
        if self.net is not None:
            connect, among = self.net.way("zookeeper", connect, source=f"broker {id}"), _free_port()
            advertised = self.net.way(f"broker {id}", among)
            own |= {
                "listeners": f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{among}",
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},BROKERS://127.0.0.1:{advertised}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
            }
        if self.security is not None:
            own |= self.security.settings(port, _free_port())
        own["zookeeper.connect"] = f"127.0.0.1:{connect}"
        return RunningBroker(self.path / f"broker{id}", {**SETTINGS, **own, **settings})

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, num_partitions=partitions, replication_factor=len(self.brokers), config=settings)
        until(lambda: self._is_done(lambda admin: admin.create_topics([new])))
        self.topic = topic
        self.settle()

    def delete(self, topic: str) -> None:
        until(lambda: self._is_done(lambda admin: admin.delete_topics([topic])))

    def _is_done(self, change: "Callable[[AdminClient], Mapping[str, Future[None]]]") -> bool:
        """The client does not look by itself for a controller that is another one by now.

        A controller that has just been elected may not have heard of all brokers yet.
        """
        admin = self._new_admin()
        try:
            for done in change(admin).values():
                done.result(PATIENCE_S)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError.NOT_CONTROLLER, KafkaError.INVALID_REPLICATION_FACTOR):
                return False
            raise
        return True

    def end(self) -> None:
        for broker in self.brokers.values():
            if broker.process.poll() is None:
                broker.kill()
        self.zookeeper.kill()

    # What is so

    def described(self, topic: str) -> list[tuple[int, list[int]]]:
        """Leader and ISR of each partition; nothing if no broker answers."""
        try:
            description = self.admin.describe_topics(TopicCollection([topic]), request_timeout=5)[topic].result(
                PATIENCE_S
            )
        except KafkaException:
            self.admin = self._new_admin()
            return []
        return [
            (partition.leader.id if partition.leader else -1, [node.id for node in partition.isr])
            for partition in description.partitions
        ]

    def leader(self, topic: str = "") -> int:
        """Of a topic's first partition, as soon as there is one."""
        leaders: list[int] = []

        def is_led() -> bool:
            leaders[:] = [leader for leader, _ in self.described(topic or self.topic)[:1]]
            return leaders[:1] > [0]

        until(is_led)
        return leaders[0]

    def controller(self) -> int:
        controllers: list[int] = []

        def is_known() -> bool:
            try:
                node = self.admin.describe_cluster(request_timeout=5).result(PATIENCE_S).controller
            except KafkaException:
                self.admin = self._new_admin()
                return False
            controllers[:] = [] if node is None else [node.id]
            return controllers[:1] > [0]

        until(is_known)
        return controllers[0]

    def settle(self, *topics: str) -> None:
        for id, broker in self.brokers.items():
            assert broker.process.poll() is None, f"broker {id} does not run:\n{broker.output()[-3000:]}"
        for topic in topics or (self.topic,):
            until(partial(self._is_in_sync, topic), partial(self._account, topic))

    def _account(self, topic: str) -> str:
        """The state of a topic, and what each broker wrote last."""
        tails = [f"broker {id}:\n{broker.output()[-3000:]}" for id, broker in self.brokers.items()]
        return "\n".join([str(self.described(topic)), *tails])

    def _is_in_sync(self, topic: str) -> bool:
        partitions = self.described(topic)
        return bool(partitions) and all(leader in isr and len(isr) == len(self.brokers) for leader, isr in partitions)

    # What happens

    def run_steps(self, steps: str) -> None:
        for step in steps.split(","):
            verb, *words = step.split()
            VERBS[verb](self, *words)

    def _broker(self, name: str) -> RunningBroker:
        if name == "leader":
            self._broker_id = self.leader()
        elif name == "follower":
            leader = self.leader()
            self._broker_id = next(id for id in self.brokers if id != leader)
        elif name == "controller":
            self._broker_id = self.controller()
        elif name != "it":
            self._broker_id = int(name)
        return self.brokers[self._broker_id]

    def _epoch_elsewhere(self) -> int:
        """The latest leader epoch of the topic's first partition in metadata of brokers other than `it`; -1: none."""
        topic = MetadataRequest.MetadataRequestTopic(name=self.topic)
        request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        epochs = [-1]
        for id, broker in self.brokers.items():
            if id != self._broker_id:
                # One that is away as well tells nothing.
                with suppress(OSError), closing(Connection("127.0.0.1", broker.port)) as connection:
                    answer = connection.ask(MetadataResponse, request, METADATA_VERSION)
                    epochs += [part.leader_epoch for part in answer.topics[0].partitions if part.partition_index == 0]
        return max(epochs)

    def _kill(self, name: str) -> None:
        (self.zookeeper if name == "zookeeper" else self._broker(name)).kill()

    def _start(self, name: str) -> None:
        if name == "zookeeper":
            self.zookeeper = self._start_zookeeper()
        else:
            self._broker(name).start()

    def _stop(self, name: str) -> None:
        assert self._broker(name).stop() == 0

    def _pause(self, name: str) -> None:
        broker = self._broker(name)
        self._epoch_before = self._epoch_elsewhere()
        broker.process.send_signal(signal.SIGSTOP)

    def _resume(self, name: str) -> None:
        self._broker(name).process.send_signal(signal.SIGCONT)

    def _fill(self, name: str) -> None:
        """No file may become longer than the longest is: each write beyond that fails."""
        broker = self._broker(name)
        sizes = [file.stat().st_size for file in broker.directory.glob(f"{self.topic}-*/*.log")]
        limit = max(*sizes, broker.log.stat().st_size + ROOM_BYTES)
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        broker.process.wait(PATIENCE_S)

    def _isolate(self, name: str, place: str) -> None:
        assert self.net is not None
        self._broker(name)
        self._epoch_before = self._epoch_elsewhere()
        brokers = [f"broker {id}" for id in self.brokers if id != self._broker_id]
        places = {"brokers": brokers, "zookeeper": ["zookeeper"], "all": [*brokers, "zookeeper"]}
        self.net.cut(f"broker {self._broker_id}", *places[place])

    def _mend(self) -> None:
        assert self.net is not None
        self.net.mend()

    def _wait(self, seconds: str) -> None:
        time.sleep(float(seconds))

    def _missed(self) -> None:
        until(lambda: self._epoch_elsewhere() > self._epoch_before, lambda: f"broker {self._broker_id} is not missed")


def _client_port(broker: RunningBroker) -> int:
    """Of the listener that clients use: the last one that is secured, if there is one."""
    last = broker.settings["listeners"].rpartition(":")[2]
    return int(last) if "SECURE" in broker.settings["listeners"] else broker.port


VERBS: dict[str, Callable[..., None]] = {
    "kill": Cluster._kill,
    "start": Cluster._start,
    "stop": Cluster._stop,
    "pause": Cluster._pause,
    "resume": Cluster._resume,
    "fill": Cluster._fill,
    "isolate": Cluster._isolate,
    "mend": Cluster._mend,
    "wait": Cluster._wait,
    "missed": Cluster._missed,
    "settle": Cluster.settle,
}


@contextmanager
def cluster(
    path: Path, brokers: int = 3, *, proxied: bool = False, security: ClusterSecurity | None = None, **settings: object
) -> Iterator[Cluster]:
    """`proxied`: with a network that can be cut. Settings with underscores for dots."""
    kafka_settings = {name.replace("_", "."): str(value) for name, value in settings.items()}
    with network() if proxied else nullcontext() as net:
        started = Cluster(path, brokers, net, kafka_settings, security)
        try:
            yield started
        finally:
            started.end()

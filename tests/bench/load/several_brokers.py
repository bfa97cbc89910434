"""One broker and two brokers of one host, under their supervisor, beside one broker of Kafka: what more cores bring.

Each generator of load is a process of its own with one connection and a topic of its own, whose requests were made
before. Brokers and generators share two cores, so the CPU time of both is shown: what generators use is not available
to brokers, and one that used a whole core would be the limit itself. What two cores could do follows from the CPU times
and does not depend on what else the machine does: a broker of Leadline uses one core at most, Kafka's all of them.
"""

import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import psutil

from leadline.wire.messages import CreateTopicsRequest, CreateTopicsResponse, MetadataRequest, MetadataResponse
from tests.bench.load.brokers import PATIENCE_S, SETTINGS, Broker, kafka
from tests.bench.load.client import (
    HOST,
    TIMEOUT_S,
    Connection,
    Producer,
    Refused,
    _all_led,
    delete_topic,
)
from tests.bench.load.steady import MIDDLE, SMALL, Load
from tests.bench.results import Row, Unit
from tests.bench.run import Run, in_turns
from tests.conformance.kafka.broker import ZooKeeper, zookeeper
from tests.support.ports import free_ports

CORES = 2
GENERATORS = 4
OF_GENERATORS = ("CPU of generators", "busiest generator")
LOADS = {SMALL: (40_000, 800), MIDDLE: (16_000, 400)}  # requests of all generators in one round; quick
ALONE, TWO = "1 broker", "2 brokers"
Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class BrokerGroup:
    """Brokers of one host that are measured together, by their supervisor's process if they have one."""

    name: str
    broker: Broker
    ports: dict[int, int]  # by broker id
    cores: int  # that they can use

    def wait_until_idle(self) -> None:
        self.broker.wait_until_idle()

    def stop(self) -> None:
        """All at once. Brokers whose supervisor is killed would take their time to stop cleanly."""
        if self.broker.process is not None:
            self.broker.process.send_signal(signal.SIGSTOP)  # it starts none of them again
            for member in psutil.Process(self.broker.process.pid).children(recursive=True):
                member.kill()
            self.broker.stop()

    def start(self) -> None:
        self.broker.start()
        deadline = time.monotonic() + PATIENCE_S
        while not all(self._brokers_known_to(port) == self.ports.keys() for port in self.ports.values()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not start")
            time.sleep(0.05)

    def _brokers_known_to(self, port: int) -> set[int]:
        try:
            with Connection(port) as connection:
                metadata = connection.ask(MetadataRequest(topics=[]), MetadataResponse, 4)
                return {node.node_id for node in metadata.brokers}
        except OSError:
            return set()

    def create(self, topics: list[str]) -> dict[str, int]:
        """Topics with one partition, on the brokers in turns; the port of each one's leader."""
        ids = [list(self.ports)[n % len(self.ports)] for n in range(len(topics))]
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=topic,
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[id])],
                    configs=[CreateTopicsRequest.CreateableTopicConfig(name="retention.ms", value="-1")],
                )
                for topic, id in zip(topics, ids, strict=True)
            ],
            timeout_ms=int(TIMEOUT_S * 1000),
        )
        with Connection(self._controller_port()) as connection:
            codes = {made.error_code for made in connection.ask(request, CreateTopicsResponse, 4).topics}
        if codes != {0}:
            raise Refused(f"creating topics was answered with {codes}")
        for port in self.ports.values():
            self._wait_until_led(port, topics)
        return {topic: self.ports[id] for topic, id in zip(topics, ids, strict=True)}

    def _wait_until_led(self, port: int, topics: list[str]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        with Connection(port) as connection:
            while not _all_led(connection, dict.fromkeys(topics, 1)):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name}: the new topics got no leaders")
                time.sleep(0.05)

    def _controller_port(self) -> int:
        with Connection(self.broker.port) as connection:
            controller = connection.ask(MetadataRequest(topics=[]), MetadataResponse, 4).controller_id
        if controller not in self.ports:
            raise Refused(f"{self.name} has no controller")
        return self.ports[controller]

    def delete(self, topics: list[str]) -> None:
        for topic in topics:
            delete_topic(self._controller_port(), topic)
        deadline = time.monotonic() + PATIENCE_S
        while any(name.startswith(tuple(topics)) for _, folders, _ in os.walk(self.broker.folder) for name in folders):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not remove its topics")
            time.sleep(0.05)


class Generated(NamedTuple):
    seconds: float
    cpu_seconds: float  # of the generator


def measure(run: Run) -> list[Row]:
    samples: dict[str, defaultdict[str, list[float]]] = {}
    with _groups(run.folder) as groups, ProcessPoolExecutor(GENERATORS, get_context("spawn")) as generators:
        for n in run.each_round("host"):
            for load, side in in_turns(LOADS, groups):
                group = groups[side]
                kept = samples.setdefault(group.name, defaultdict(list))
                for what, value in _produce(run, group, load, n, generators).items():
                    kept[what] += [value] if n else []
    return [
        Row(
            f"{name}: {what}",
            unit,
            None,
            samples[name][what],
            samples["Kafka"][what],
            is_compared=not what.endswith(OF_GENERATORS),
        )
        for name in (ALONE, TWO)
        for load in LOADS
        for what, unit in _quantities(load).items()
    ]


def _quantities(load: Load) -> dict[str, Unit]:
    name = f"produce {load.name}"
    return {
        name: "/s",
        f"{name}, by CPU time": "/s",
        f"{name}: CPU of brokers": "us",
        f"{name}: CPU of generators": "us",
        f"{name}: busiest generator": "cores",
    }


def _produce(run: Run, group: BrokerGroup, load: Load, n: int, generators: ProcessPoolExecutor) -> Values:
    count = run.sized(*LOADS[load]) // GENERATORS
    topics = [f"{load.topic}-{n}-{generator}" for generator in range(GENERATORS)]
    ports = group.create(topics)
    group.wait_until_idle()
    results: list[Generated] = []

    def work() -> None:
        futures = [generators.submit(_generate, ports[topic], topic, load, count) for topic in topics]
        results.extend(future.result() for future in futures)

    spent = group.broker.measure(work)
    group.delete(topics)
    requests = count * GENERATORS
    cpu_s, own_cpu_s = spent.cpu_seconds / requests, sum(result.cpu_seconds for result in results) / requests
    rate, reckoned, brokers, own, busiest = _quantities(load)
    return {
        rate: requests / spent.seconds,
        reckoned: min(group.cores / cpu_s, CORES / (cpu_s + own_cpu_s)),
        brokers: cpu_s * 1e6,
        own: own_cpu_s * 1e6,
        busiest: max(result.cpu_seconds / result.seconds for result in results),
    }


def _generate(port: int, topic: str, load: Load, count: int) -> Generated:
    """In a process of its own."""
    with closing(Producer(port, topic, load.batch, records=load.records)) as producer:
        began, cpu = time.perf_counter(), time.process_time()
        producer.send(count)
        return Generated(time.perf_counter() - began, time.process_time() - cpu)


@contextmanager
def _groups(folder: Path) -> Iterator[list[BrokerGroup]]:
    with zookeeper(folder / "zookeeper") as keeper, ExitStack() as ends:
        apache = kafka(folder / "kafka", keeper)
        groups = [
            _leadline(ALONE, folder / "one", keeper, 1),
            _leadline(TWO, folder / "two", keeper, 2),
            BrokerGroup("Kafka", apache, {0: apache.port}, CORES),
        ]
        for group in groups:
            ends.callback(group.stop)
            group.start()
        yield groups


def _leadline(name: str, folder: Path, keeper: ZooKeeper, count: int) -> BrokerGroup:
    port = free_ports(count)
    settings = {
        **SETTINGS,
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{HOST}:{port}",
        "log.dirs": str(folder),
        "zookeeper.connect": f"{keeper.connect}/{folder.name}",
    }
    properties = folder.with_suffix(".properties")
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = [sys.executable, "-m", "leadline", "start", str(properties), "--brokers", str(count)]
    return BrokerGroup(name, Broker(name, folder, port, command), {id: port + id for id in range(count)}, count)

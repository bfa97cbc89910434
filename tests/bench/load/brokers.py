"""Two brokers on one machine: Leadline's process, and a JVM as Kafka's own start script runs it, on the same disk.

Both have the settings they come with. Only topics that were deleted leave the disk at once, to make room for more.
A broker counts with its whole family: the processes that it starts are part of what it costs.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from tests.bench.load.client import HOST, Connection
from tests.bench.sides import BROKER_OPTIONS
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import ZooKeeper, zookeeper

PATIENCE_S = 120
POLL_S = 0.002
TICK_S = 1 / os.sysconf("SC_CLK_TCK")  # CPU time is counted in these: less than one is not known
LOOK_S, IDLE = 0.2, 0.1  # idle is who uses less than so much of a core
SETTINGS = {"log.segment.delete.delay.ms": "100", "log.initial.task.delay.ms": "500"}


@dataclass(frozen=True, slots=True)
class Spent:
    """What a piece of work took: of time, and of the broker's CPU."""

    seconds: float
    cpu_seconds: float


@dataclass(slots=True)
class Broker:
    name: str
    folder: Path  # of its partitions
    port: int
    command: list[str]
    secure_port: int = 0  # of a listener with SASL_SSL, if it has one
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    def start(self) -> float:
        """The seconds from the start of its process to the first answer."""
        with self.folder.with_suffix(".out").open("ab") as output:
            began = time.perf_counter()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=_environment()
            )
        while not self._answers():
            if self.process.poll() is not None or time.perf_counter() - began > PATIENCE_S:
                tail = self.folder.with_suffix(".out").read_text(errors="replace")[-4000:]
                raise RuntimeError(f"{self.name} did not start:\n{tail}")
            time.sleep(POLL_S)
        return time.perf_counter() - began

    def _answers(self) -> bool:
        try:
            with Connection(self.port) as connection:
                return connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0).error_code == 0
        except OSError:
            return False

    def stop(self) -> None:
        """At once and without a farewell: nothing of it is needed any more."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.communicate()

    def measure(self, work: Callable[[], object]) -> Spent:
        spent = self.meter()
        work()
        return spent()

    def meter(self) -> Callable[[], Spent]:
        """From now until it is called."""
        cpu, wall = self._cpu_seconds(), time.perf_counter()

        def spent() -> Spent:
            seconds = time.perf_counter() - wall
            return Spent(seconds, max(self._cpu_seconds() - cpu, TICK_S))

        return spent

    @property
    def resident_mb(self) -> float:
        return sum(member.memory_info().rss for member in self._family()) / 1e6

    def _cpu_seconds(self) -> float:
        return sum(sum(member.cpu_times()[:4]) for member in self._family())  # its own, and of children that ended

    def _family(self) -> list[psutil.Process]:
        assert self.process is not None
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def wait_until_idle(self) -> None:
        """A broker has things to do when its clients have gone: a JVM compiles and collects garbage."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before = self._cpu_seconds()
            time.sleep(LOOK_S)
            if self._cpu_seconds() - before <= IDLE * LOOK_S:
                return

    def wait_until_gone(self, topic: str) -> None:
        """Until no byte of a deleted topic is on the disk."""
        deadline = time.monotonic() + PATIENCE_S
        while any(name.startswith(topic) for name in os.listdir(self.folder)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} did not remove {topic}")
            time.sleep(0.05)


def leadline(folder: Path, settings: Mapping[str, str] = SETTINGS) -> Broker:
    port, secure_port = _free_port(), _free_port()
    sets = {**_places(folder, port, secure_port, settings), **settings}.items()
    arguments = [part for name, value in sets for part in ("--set", f"{name}={value}")]
    return Broker("Leadline", folder, port, [sys.executable, "-m", "leadline", "start", *arguments], secure_port)


def kafka(folder: Path, keeper: ZooKeeper, settings: Mapping[str, str] = SETTINGS) -> Broker:
    """Each in a corner of its own of one ZooKeeper."""
    port, secure_port = _free_port(), _free_port()
    own = {"broker.id": "0", "zookeeper.connect": f"{keeper.connect}/{folder.name}"}
    properties = folder.with_suffix(".properties")
    all_settings = {**_places(folder, port, secure_port, settings), **own, **settings}
    properties.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items()))
    classes = f"{jars.compiled(jars.HERE / 'java' / 'Leash.java')}{os.pathsep}{jars.libs()}/*"
    logging = f"-Dlog4j.configuration={jars.LOG4J.as_uri()}"
    command = [jars.java(), *BROKER_OPTIONS, logging, "-cp", classes, "Leash", "kafka.Kafka", str(properties)]
    return Broker("Kafka", folder, port, command, secure_port)


def _places(folder: Path, port: int, secure_port: int, settings: Mapping[str, str]) -> dict[str, str]:
    listeners = f"PLAINTEXT://{HOST}:{port}"
    if "ssl.keystore.location" in settings:
        listeners += f",SASL_SSL://{HOST}:{secure_port}"
    return {"log.dirs": str(folder), "listeners": listeners}


def _environment() -> dict[str, str]:
    """This one's, but with bytecode: what is installed has been compiled before."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Pair:
    leadline: Broker
    kafka: Broker

    def __iter__(self) -> Iterator[Broker]:
        return iter((self.leadline, self.kafka))


@contextmanager
def pairs(folder: Path, count: int = 1, more: Mapping[str, str] | None = None) -> Iterator[list[Pair]]:
    """So many times Leadline and Kafka, all of them running; with more settings than the usual."""
    settings = {**SETTINGS, **(more or {})}
    with zookeeper(folder / "zookeeper") as keeper, ExitStack() as ends:
        made = []
        for n in range(count):
            ours = leadline(folder / f"leadline-{n}", settings)
            pair = Pair(ours, kafka(folder / f"kafka-{n}", keeper, settings))
            for broker in pair:
                ends.callback(broker.stop)
                broker.start()
            made.append(pair)
        yield made

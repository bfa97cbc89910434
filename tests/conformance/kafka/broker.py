"""Real servers: ZooKeeper and Kafka brokers on free ports of the loopback interface.

A server is ready when its context is entered: it has answered over its own protocol. Unless a test
stops it, it is killed at the end of the context; and it halts when its stdin ends, so it never outlives the test run.
"""

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import jars

READY_S = 180
STOP_S = 60
POLL_S = 0.05
ANSWER_S = 5  # then the question is put again, until READY_S are over


@dataclass
class Server:
    """A JVM that runs until it is stopped. Its output is in `log`."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def stop(self) -> None:
        """SIGTERM, then wait until it has shut down in order."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure(f"did not stop within {STOP_S} s") from None
        if code not in (0, 128 + signal.SIGTERM, -signal.SIGTERM):
            raise self._failure(f"ended with {code}")

    def kill(self) -> None:
        """SIGKILL, as a crash."""
        self.process.kill()
        self.process.wait()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while not _answers(ready):
            if self.process.poll() is not None:
                raise self._failure(f"ended with {self.process.returncode} before it was ready")
            if time.monotonic() > deadline:
                raise self._failure(f"was not ready within {READY_S} s")
            time.sleep(POLL_S)

    def _failure(self, what: str) -> RuntimeError:
        tail = self.log.read_text(errors="replace").splitlines()[-40:]
        return RuntimeError("\n".join([f"{self.name} {what}; its log ends with:", *tail]))


@dataclass
class ZooKeeper(Server):
    port: int

    @property
    def connect(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass
class Broker(Server):
    port: int
    id: int
    log_dir: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def zookeeper(
    dir: Path, settings: Mapping[str, str] | None = None, options: tuple[str, ...] = ()
) -> Iterator[ZooKeeper]:
    """A ZooKeeper with its data in `dir`. `options`: of its JVM."""
    port = _free_port()
    all_settings = {
        "dataDir": str(dir / "data"),
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "tickTime": "500",  # fine-grained, so that a test may ask for a short session
        "maxSessionTimeout": "60000",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
    } | dict(settings or {})
    file = _properties(dir / "zookeeper.properties", all_settings)
    options = ("-Dzookeeper.forceSync=no", *options)
    with _running(dir / "zookeeper.log", "org.apache.zookeeper.server.quorum.QuorumPeerMain", file, options) as process:
        server = ZooKeeper("ZooKeeper", process, dir / "zookeeper.log", port)
        server.wait_until(lambda: _four_letters(server.connect, "ruok") == "imok")
        yield server


@contextmanager
def broker(
    dir: Path, zookeeper: ZooKeeper | str, options: tuple[str, ...] = (), /, **settings: object
) -> Iterator[Broker]:
    """A broker with its data in `dir`/data, known to the controller. `log_segment_bytes=9` sets log.segment.bytes.

    `options`: of its JVM. `port`: a free one, unless it is given.

    Listeners, where they are given, have one without security on $port.
    One that was killed comes back once its session is over: zookeeper.session.timeout.ms, 18 s unless given.
    """
    port = int(str(settings.pop("port", 0))) or _free_port()
    connect = zookeeper if isinstance(zookeeper, str) else zookeeper.connect
    own_settings = {name if "." in name else name.replace("_", "."): str(value) for name, value in settings.items()}
    own_settings = {name: value.replace("$port", str(port)) for name, value in own_settings.items()}
    all_settings = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": str(dir / "data"),
        "zookeeper.connect": connect,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
    } | own_settings
    file = _properties(dir / "server.properties", all_settings)
    id = int(all_settings["broker.id"])
    wait_for_the_end_of(id, connect)
    with _running(dir / "broker.log", "kafka.Kafka", file, options) as process:
        server = Broker(
            f"broker {id}", process, dir / "broker.log", port, id, Path(all_settings["log.dirs"].split(",")[0])
        )
        server.wait_until(lambda: id in _brokers_known_to(port))
        yield server


@contextmanager
def _running(log: Path, main: str, file: Path, options: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    classes = jars.compiled(jars.HERE / "java" / "Leash.java")
    command = jars.command("Leash", main, str(file), classes=classes, options=options)
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _properties(path: Path, settings: dict[str, str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _free_port() -> int:
    """A port that the kernel assigns to no other socket for a minute: it is in TIME_WAIT, and a server may bind it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address: tuple[str, int] = listener.getsockname()
        with socket.create_connection(address) as client:
            accepted, _ = listener.accept()
            accepted.close()
            client.recv(1)
    return address[1]


def _answers(ready: Callable[[], bool]) -> bool:
    try:
        return ready()
    except OSError:
        return False


def _four_letters(address: str, word: str) -> str:
    """One of ZooKeeper's four-letter words, and its answer."""
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_S) as connection:
        connection.sendall(word.encode())
        with connection.makefile("rb") as answer:
            return answer.read().decode()


def wait_for_the_end_of(id: int, connect: str) -> None:
    """Until ZooKeeper has noticed that a killed broker is gone: a broker that finds its own znode refuses to start."""
    address, _, chroot = connect.partition("/")
    znode = "/".join(["", *filter(None, [chroot]), "brokers", "ids", str(id)])
    deadline = time.monotonic() + READY_S
    while not _answers(lambda: znode not in _four_letters(address, "dump").split()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{znode} is still there after {READY_S} s")
        time.sleep(POLL_S)


def _brokers_known_to(port: int) -> set[int]:
    """The brokers that a broker's Metadata response (v1) names; none before there is a controller."""
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        connection.sendall(struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0))  # Metadata v1, no client id, no topics
        with connection.makefile("rb") as reply:
            size, _, count = struct.unpack(">iii", _exactly(reply.read(12), 12))
            body = _exactly(reply.read(size - 8), size - 8)
    at, brokers = 0, set[int]()
    for _ in range(count):
        id, host = struct.unpack_from(">ih", body, at)
        rack = struct.unpack_from(">h", body, at + 6 + host + 4)[0]
        at += 6 + host + 4 + 2 + max(rack, 0)
        brokers.add(id)
    controller = struct.unpack_from(">i", body, at)[0]
    return brokers if controller >= 0 else set()


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) < size:
        raise ConnectionError("the broker closed the connection")
    return data

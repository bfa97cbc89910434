"""The two sides of a benchmark: a process of Leadline and a JVM with Kafka's storage classes, asked alike.

Each runs alone on one request at a time: one JSON line in, one JSON line out. The JVM has the settings with which
Kafka's own start script runs a broker.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any

import psutil

from tests.conformance.kafka import jars

JAVA_SOURCES = Path(__file__).parent / "java"
BROKER_OPTIONS = """
    -Xmx1G -Xms1G -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35
    -XX:+ExplicitGCInvokesConcurrent -XX:MaxInlineLevel=15 -Djava.awt.headless=true
""".split()


class DifferentWork(Exception):
    """The two sides did not do the same: their times cannot be compared."""


def same(what: str, leadline: object, kafka: object) -> None:
    if leadline != kafka:
        raise DifferentWork(f"{what}: {_brief(leadline)} in Leadline, {_brief(kafka)} in Kafka")


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}..."


class Side:
    def __init__(self, name: str, process: subprocess.Popen[str], complaints: IO[bytes]) -> None:
        self.name, self._process, self._complaints = name, process, complaints

    def ask(self, op: str, **arguments: object) -> Any:
        """Have one piece of work done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **arguments}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        reply = json.loads(line) if line else {"error": f"it ended with {self._process.wait()}"}
        if "error" in reply:
            self._complaints.seek(0)
            complaints = self._complaints.read().decode(errors="replace")[-4000:]
            raise RuntimeError(f"{self.name} failed at {op}:\n{reply['error']}\n{complaints}".rstrip())
        return reply["ok"]

    @property
    def resident_mb(self) -> float:
        return psutil.Process(self._process.pid).memory_info().rss / 1e6


def leadline() -> AbstractContextManager[Side]:
    return _running("Leadline", [sys.executable, "-m", "tests.bench.leadline_side"])


def kafka() -> AbstractContextManager[Side]:
    sources = [*sorted(JAVA_SOURCES.glob("*.java")), jars.HERE / "java" / "Json.java"]
    path = f"{jars.compiled(*sources)}{os.pathsep}{jars.libs()}/*"
    logging = f"-Dlog4j.configuration={jars.LOG4J.as_uri()}"
    return _running("Kafka", [jars.java(), *BROKER_OPTIONS, logging, "-cp", path, "Bench"])


@contextmanager
def _running(name: str, command: list[str]) -> Iterator[Side]:
    """A new process, which ends with the context."""
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True)
        try:
            yield Side(name, process, complaints)
        finally:
            process.kill()
            process.communicate()


@contextmanager
def both() -> Iterator[tuple[Side, Side]]:
    """Leadline and Kafka."""
    with leadline() as ours, kafka() as theirs:
        for side in (ours, theirs):
            side.ask("ping")
        yield ours, theirs

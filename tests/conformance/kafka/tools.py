"""Kafka's command-line tools, many of them in one JVM: a tool takes a moment then, instead of seconds."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from struct import Struct
from typing import NamedTuple

from . import jars
from .broker import TOOLS

_INT = Struct(">i")


class Done(NamedTuple):
    code: int
    out: str
    err: str


class ToolBox:
    """`tools("topics", "--list", ...)` runs one of TOOLS. One at a time, whoever calls."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process, self._busy = process, threading.Lock()

    def __call__(self, name: str, *arguments: object) -> Done:
        assert self._process.stdin is not None
        with self._busy:
            self._process.stdin.write("\x1f".join([TOOLS[name], *map(str, arguments)]).encode() + b"\n")
            self._process.stdin.flush()
            return Done(self._int(), self._text(), self._text())

    def _text(self) -> str:
        return self._read(self._int()).decode()

    def _int(self) -> int:
        found: int = _INT.unpack(self._read(_INT.size))[0]
        return found

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        found = self._process.stdout.read(count)
        assert len(found) == count, "the JVM ended"
        return found


@contextmanager
def tool_box() -> Iterator[ToolBox]:
    classes = jars.compiled(jars.HERE / "java" / "Tools.java")
    command = jars.command("Tools", classes=classes)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield ToolBox(process)
    finally:
        process.kill()
        process.communicate()

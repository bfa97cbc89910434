"""The line to the oracle's JVM: one JSON request per line, one JSON reply per line. Bytes travel as base64."""

import base64
import json
import os
import selectors
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from . import jars
from .answers import KafkaError

TIMEOUT_S = 120  # for one answer


@contextmanager
def channel() -> Iterator["Channel"]:
    """To a new JVM, which ends with the context."""
    command = jars.command("LogOracle", classes=jars.compiled(*sorted((jars.HERE / "java").glob("*.java"))))
    with tempfile.TemporaryFile() as stderr:
        jvm = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
        try:
            yield Channel(jvm, stderr.fileno())
        finally:
            jvm.kill()
            jvm.communicate()


class Channel:
    def __init__(self, jvm: subprocess.Popen[bytes], stderr: int) -> None:
        self._jvm = jvm
        self._stderr = stderr

    def warnings(self) -> str:
        """What Kafka logged so far, warnings and above. Read without a seek: the JVM shares the position."""
        return os.pread(self._stderr, os.fstat(self._stderr).st_size, 0).decode(errors="replace")

    def ask(self, op: str, **arguments: object) -> Any:
        line = self._exchange(json.dumps({"op": op, **arguments}).encode() + b"\n")
        if not line.endswith(b"\n"):
            raise RuntimeError(f"no answer to {op}:\n{self.warnings()}")
        reply = json.loads(line)
        if "error" in reply:
            error = reply["error"]
            raise KafkaError(**error | {"record_errors": [tuple(entry) for entry in error["record_errors"]]})
        return reply["ok"]

    def _exchange(self, request: bytes) -> bytes:
        requests, replies = _pipe(self._jvm.stdin), _pipe(self._jvm.stdout)
        try:
            requests.write(request)
            requests.flush()
        except BrokenPipeError:
            return b""
        with selectors.DefaultSelector() as selector:
            selector.register(replies, selectors.EVENT_READ)
            if not selector.select(TIMEOUT_S):
                self._jvm.kill()
        return replies.readline()


def _pipe(end: IO[bytes] | None) -> IO[bytes]:
    assert end is not None
    return end


def to_text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def from_text(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)

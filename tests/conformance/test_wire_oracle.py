"""Kafka's own message classes as an oracle, in a JVM of their own; and that it answers at all."""

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.conformance.kafka import jars

pytestmark = pytest.mark.conformance


class Refused(Exception):
    """Kafka would not; `exception` is the name of what it threw."""

    def __init__(self, exception: str, message: str) -> None:
        super().__init__(f"{exception}: {message}")
        self.exception = exception


@dataclass(frozen=True)
class Written:
    data: bytes
    json: Any  # as Kafka's converter shows it; None if there is none


@dataclass(frozen=True)
class WireOracle:
    jvm: "subprocess.Popen[bytes]"

    def apis(self) -> dict[int, dict[str, Any]]:
        return {int(key): value for key, value in self._ask(op="apis").items()}

    def rewrite(self, name: str, data: bytes, read: int, write: int) -> Written:
        text = base64.b64encode(data).decode()
        return _written(self._ask(op="rewrite", name=name, bytes=text, read=read, write=write))

    def default(self, name: str, version: int) -> Written:
        return _written(self._ask(op="default", name=name, write=version))

    def _ask(self, **request: object) -> Any:
        assert self.jvm.stdin is not None
        assert self.jvm.stdout is not None
        self.jvm.stdin.write(json.dumps(request).encode() + b"\n")
        self.jvm.stdin.flush()
        reply = json.loads(self.jvm.stdout.readline())
        if "error" in reply:
            raise Refused(**reply["error"])
        return reply["ok"]


def _written(answer: dict[str, Any]) -> Written:
    return Written(base64.b64decode(answer["bytes"]), answer["json"])


@contextmanager
def wire_oracle() -> Iterator[WireOracle]:
    classes = jars.compiled(jars.HERE / "wire" / "WireOracle.java")
    command = jars.command("WireOracle", classes=classes)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as jvm:
        try:
            yield WireOracle(jvm)
        finally:
            jvm.kill()


def test_the_oracle_knows_its_messages_and_refuses_others() -> None:
    with wire_oracle() as oracle:
        assert oracle.default("HeartbeatRequest", 0).json == {"groupId": "", "generationId": 0, "memberId": ""}
        with pytest.raises(Refused, match="ClassNotFoundException"):
            oracle.default("NoSuchRequest", 0)

"""Kafka's command-line tools. Most run one after another in one JVM: a tool takes a moment then, instead of seconds.

That JVM starts with the first call of a test process, and ends with it.
"""

import atexit
import functools
import subprocess
import threading
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from . import jars

TOOL_S = 180

TOOLS = {
    "acls": "kafka.admin.AclCommand",
    "api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "console-producer": "kafka.tools.ConsoleProducer",
    "delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "dump-log": "kafka.tools.DumpLogSegments",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "reassign": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "replica-verification": "org.apache.kafka.tools.ReplicaVerificationTool",
    "topics": "org.apache.kafka.tools.TopicCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "zk-shell": "org.apache.zookeeper.ZooKeeperMain",
}

# They read stdin, or print their last lines when their JVM ends.
IN_A_JVM_OF_THEIR_OWN = {"console-producer", "verifiable-consumer", "verifiable-producer", "zk-shell"}

_INT = Struct(">i")


class Done(NamedTuple):
    code: int
    out: str
    err: str


def tool(name: str, *arguments: str | Path) -> str:
    """Runs one of TOOLS; what it printed on stdout. RuntimeError if it fails."""
    done = run(name, *arguments)
    if done.code:
        raise RuntimeError(f"{name} ended with {done.code}:\n{done.out}\n{done.err}")
    return done.out


def run(name: str, *arguments: object, stdin: str = "") -> Done:
    """Runs one of TOOLS, however it ends. `given`: its stdin, for one in a JVM of its own."""
    if name not in IN_A_JVM_OF_THEIR_OWN:
        return _shared_jvm()(TOOLS[name], *map(str, arguments))
    command = jars.command(TOOLS[name], *map(str, arguments))
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_S)
    return Done(done.returncode, done.stdout, done.stderr)


@functools.cache
def _shared_jvm() -> "_SharedJvm":
    jvm = _SharedJvm()
    atexit.register(jvm.end)
    return jvm


class _SharedJvm:
    """Runs one tool at a time for all callers: java/Tools.java."""

    def __init__(self) -> None:
        self._busy = threading.Lock()
        self._start()

    def _start(self) -> None:
        command = jars.command("Tools", classes=jars.compiled(jars.HERE / "java" / "Tools.java"))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *call: str) -> Done:
        with self._busy:
            assert self._process.stdin is not None
            late = threading.Timer(TOOL_S, self._process.kill)
            late.start()
            try:
                self._process.stdin.write("\x1f".join(call).encode() + b"\n")
                self._process.stdin.flush()
                return Done(self._int(), self._text(), self._text())
            except OSError as error:
                self.end()
                self._start()
                raise RuntimeError(f"the JVM ended, or {TOOL_S} s were over, at {' '.join(call)}") from error
            finally:
                late.cancel()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _text(self) -> str:
        return self._read(self._int()).decode()

    def _int(self) -> int:
        value: int = _INT.unpack(self._read(_INT.size))[0]
        return value

    def _read(self, count: int) -> bytes:
        assert self._process.stdout is not None
        data = self._process.stdout.read(count)
        if len(data) < count:
            raise ConnectionError("the JVM ended")
        return data

"""The Java process of a Spark session, and the gateway to it.

pyspark's launcher loses its process when it is interrupted, and that process never ends. This module ends it:
    the process has its own process group: Ctrl-C on a terminal does not reach it, and one call kills the whole group
    a start that fails or is interrupted kills the group, then raises the error
    a process that has started ends when its stdin is closed, which the kernel does whenever this process ends

py4j has one connection per thread. When a call is interrupted, py4j asks Java to shut its socket down, and Java then
closes every connection: it compares the local port, which all of them share. Calls of other threads fail, and so does
the next call of this one. Here an interrupted call closes its own connection, and py4j then sends no such request.
"""

import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseServer
from types import FrameType
from typing import IO, Any

from py4j.clientserver import ClientServerConnection  # type: ignore[import-untyped]
from py4j.java_gateway import JavaGateway  # type: ignore[import-untyped]
from pyspark import SparkConf, accumulators
from pyspark.java_gateway import launch_gateway
from pyspark.serializers import UTF8Deserializer, read_int

from leadline.spark import java

POLL_S = 0.05
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class JavaExited(Exception):
    """The Java process ended before it listened."""


@contextmanager
def java_gateway(conf: SparkConf, log: IO[bytes]) -> Iterator[JavaGateway]:
    """A gateway to a new Java process, which writes its output to `log`. If the block fails, the process is killed.

    spark-submit starts a Java process for the script that it runs: such a script gets the gateway to that process.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # py4j logs the errors that it raises, with tracebacks
    logging.getLogger().addFilter(_is_not_of_py4j)
    ClientServerConnection.send_command = _send_command
    for server in _accumulator_servers():
        server.handle_error = _report_unless_java_ended  # type: ignore[assignment, method-assign]
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        yield launch_gateway()  # type: ignore[no-untyped-call]
        return
    with tempfile.TemporaryDirectory(prefix="leadline-gateway-") as folder:
        address = Path(folder, "address")
        process = None
        try:
            with _deferred_signals():
                process = _start(conf, log, address)
            yield _connect(process, address)
        except BaseException:
            if process is not None:
                _kill(process)
            raise


_py4j_send_command = ClientServerConnection.send_command


def _send_command(connection: ClientServerConnection, command: str) -> str:
    """Sends a call and returns its answer. An interrupted call closes the connection: its answer is never read."""
    try:
        answer: str = _py4j_send_command(connection, command)
    except Exception:
        raise  # py4j closes the connection, or tries again
    except BaseException:
        connection.close()
        raise
    return answer


def _accumulator_servers() -> list[type[BaseServer]]:
    """Their names and their number depend on the version of Spark."""
    kinds = [kind for kind in vars(accumulators).values() if isinstance(kind, type)]
    return [kind for kind in kinds if issubclass(kind, BaseServer)]


def _report_unless_java_ended(server: BaseServer, request: Any, client_address: Any) -> None:
    """A Java process that ends, or is interrupted with this one, closes its connection: no reason for a traceback."""
    if not isinstance(sys.exception(), EOFError | ConnectionError):
        BaseServer.handle_error(server, request, client_address)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """py4j writes some records to the root logger."""
    return not record.pathname.endswith(os.path.join("py4j", "java_gateway.py"))


def _start(conf: SparkConf, log: IO[bytes], address: Path) -> "subprocess.Popen[bytes]":
    settings = [part for name, value in conf.getAll() for part in ("--conf", f"{name}={value}")]
    arguments = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return subprocess.Popen(
        [Path(java.spark_home(), "bin", "spark-submit"), *settings, *arguments],
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        env={**os.environ, "SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(address)},
        process_group=0,
    )


def _connect(process: "subprocess.Popen[bytes]", address: Path) -> JavaGateway:
    """Java writes its port and a secret to the file `address` once it listens."""
    while not address.exists():
        if process.poll() is not None:
            raise JavaExited
        time.sleep(POLL_S)
    with address.open("rb") as file:
        port, secret = read_int(file), UTF8Deserializer().loads(file)  # type: ignore[no-untyped-call]
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}  # pyspark starts no process
    try:
        gateway = launch_gateway()  # type: ignore[no-untyped-call]
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc = process  # the gateway keeps the stdin of the process open
    return gateway


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """A signal that arrives in the block is handled after it. So no signal comes between a start and its result."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def defer(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    handlers: dict[int, Any] = {number: signal.getsignal(number) for number in SIGNALS}
    handlers = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    for number in handlers:
        signal.signal(number, defer)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived:
            signal.raise_signal(number)

"""Reads of up to 1 MB: finding the slice of the file for an offset, and sending it to a socket without copying it.

The socket is a loopback connection to this process, which throws away what comes without looking at it. The CPU time is
that of the sender alone.
"""

import random
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.bench.batches import Maker, fill, partition_folder
from tests.bench.results import Row
from tests.bench.run import Run, settle
from tests.bench.sides import Side, both, same

MAX_BYTES = 1 << 20
RECORDS = 16
WARM_UP = 4


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    offsets: list[int]
    send: bool


def measure(run: Run) -> list[Row]:
    size = run.sized(512_000_000, 32_000_000)
    run.say("read: making the log")
    maker = Maker(RECORDS, 1000)
    log = fill(run.folder / "leadline", size, maker)
    log.close()
    folders = partition_folder(run.folder / "leadline"), partition_folder(run.folder / "kafka")
    shutil.copytree(*folders)
    settle(*folders)
    rows: list[Row] = []
    with both() as (leadline, kafka):
        ours = leadline.ask("read_open", dir=str(folders[0]), config={})
        same("log_end", ours, kafka.ask("read_open", dir=str(folders[1]), config={}))
        for case in _cases(run, log.log_end, maker.batch_bytes):
            rows += _measure_case(run, case, leadline, kafka)
        for side in (leadline, kafka):
            side.ask("read_close")
    return rows


def _cases(run: Run, log_end: int, batch_bytes: int) -> list[Case]:
    step = MAX_BYTES // batch_bytes * RECORDS
    sequential = list(range(0, log_end, step))
    draw = random.Random(20)
    anywhere = [draw.randrange(log_end) for _ in range(run.sized(20_000, 1000))]
    often = run.sized(20_000, 1000)
    return [
        Case("locate, in order", (sequential * often)[:often], send=False),
        Case("locate, anywhere", anywhere, send=False),
        Case("locate, the last batch", [log_end - 1] * often, send=False),
        Case("send, in order", sequential * run.sized(2, 1), send=True),
        Case("send, anywhere", anywhere[: run.sized(1000, 50)], send=True),
    ]


def _measure_case(run: Run, case: Case, leadline: Side, kafka: Side) -> list[Row]:
    same(f"slices of {case.name}", *(_ask(side, case, verify=True) for side in (leadline, kafka)))
    if case.send:
        rows = [Row(f"{case.name}, 1 MB", "MB/s"), Row(f"{case.name}, 1 MB: CPU", "ms/MB")]
    else:
        rows = [Row(f"{case.name}, 1 MB", "/s")]
    for n in run.each_round(f"read, {case.name}"):
        for _ in range(1 if n else WARM_UP):
            ours, theirs = _ask(leadline, case), _ask(kafka, case)
            same("bytes", ours["bytes"], theirs["bytes"])
        if n and case.send:
            rows[0].add(*(done["bytes"] / 1e6 / done["seconds"] for done in (ours, theirs)))
            rows[1].add(*(done["cpu_seconds"] * 1e3 / (done["bytes"] / 1e6) for done in (ours, theirs)))
        elif n:
            rows[0].add(*(done["count"] / done["seconds"] for done in (ours, theirs)))
    return rows


def _ask(side: Side, case: Case, *, verify: bool = False) -> Any:
    arguments = {"offsets": case.offsets, "max_bytes": MAX_BYTES, "verify": verify}
    if verify or not case.send:
        return side.ask("read", **arguments, port=0)
    with sink() as drain:
        measured = side.ask("read", **arguments, port=drain.port)
    same("bytes received and sent", drain.received, measured["bytes"])
    return measured


@dataclass(slots=True)
class Drain:
    listener: socket.socket
    received: int = 0
    _buffer: bytearray = field(default_factory=lambda: bytearray(MAX_BYTES))

    @property
    def port(self) -> int:
        port: int = self.listener.getsockname()[1]
        return port

    def run(self) -> None:
        """Reads one connection to its end, without copying its bytes (MSG_TRUNC, on Linux)."""
        connection, _ = self.listener.accept()
        with connection:
            while count := connection.recv_into(self._buffer, MAX_BYTES, socket.MSG_TRUNC):
                self.received += count


@contextmanager
def sink() -> Iterator[Drain]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        drain = Drain(listener)
        thread = threading.Thread(target=drain.run, daemon=True)
        thread.start()
        yield drain
        thread.join()

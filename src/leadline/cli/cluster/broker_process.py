"""A broker of a cluster on this machine, in its own process.

Its folder holds its settings (server.properties, written at each start), its data and its output (broker.log).
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from leadline.cli.processes import holder_of

HOST = "localhost"


READY_S, STOP_S, POLL_S, WATCH_S = 60, 60, 0.05, 0.5


# Exit codes after SIGTERM. The last two: the broker had not started yet.
CLEAN_EXIT_CODES = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


SETTINGS_FILE, LOG_FILE, DATA_FOLDER = "server.properties", "broker.log", "data"


HEAD = "# Written by `leadline cluster up` at each start. Use its option --set for other settings.\n"


class BrokerPlan(NamedTuple):
    """A broker to start."""

    id: int
    port: int
    folder: Path
    settings: Mapping[str, str]


def plans(folder: Path, count: int, first_port: int, connect: str, overrides: Mapping[str, str]) -> list[BrokerPlan]:
    """As many replicas as brokers, at most three. With three, writes continue while one broker is away."""
    replication_factor = str(min(3, count))
    min_isr = "2" if count >= 3 else "1"
    common = {
        "zookeeper.connect": connect,
        "default.replication.factor": replication_factor,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": replication_factor,
        "transaction.state.log.replication.factor": replication_factor,
        "transaction.state.log.min.isr": min_isr,
        **overrides,
    }
    broker_plans = []
    for id in range(1, count + 1):
        broker_folder, port = folder / f"broker-{id}", first_port + id - 1
        identity = {
            "broker.id": str(id),
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(broker_folder / DATA_FOLDER),
        }
        broker_plans.append(BrokerPlan(id, port, broker_folder, identity | common))
    return broker_plans


def brokers_in(folder: Path) -> int:
    """The number of brokers that an earlier run left in the folder."""
    ids = [int(file.parent.name.rpartition("-")[2]) for file in folder.glob(f"broker-[0-9]*/{SETTINGS_FILE}")]
    return max(ids, default=0)


@dataclass(slots=True)
class BrokerProcess:
    """A broker that was started by this command, or later by hand."""

    plan: BrokerPlan
    process: Process
    restarted_pid: int | None = None  # the process that was started by hand after this one ended

    @property
    def log(self) -> Path:
        return self.plan.folder / LOG_FILE

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    @property
    def is_away(self) -> bool:
        return self.has_ended and self.restarted_pid is None

    @property
    def pid(self) -> int:
        return self.process.pid if self.restarted_pid is None else self.restarted_pid

    def holder(self) -> int | None:
        """The process that has its log directory open."""
        return holder_of(self.plan.folder / DATA_FOLDER)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    async def wait(self) -> None:
        """Wait until the broker has ended. After STOP_S it is killed."""
        if self.restarted_pid is None:
            await wait_or_kill(self.process)
            return
        deadline = time.monotonic() + STOP_S
        while self.holder() == self.restarted_pid:
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError):
                    os.kill(self.restarted_pid, signal.SIGKILL)
            await asyncio.sleep(POLL_S)

    @property
    def ended_cleanly(self) -> bool:
        """The exit code of a broker that was started by hand is unknown here, and counts as clean."""
        return self.restarted_pid is not None or self.process.returncode in CLEAN_EXIT_CODES

    def ended_text(self) -> str:
        assert self.process.returncode is not None
        return f"broker {self.plan.id} (pid {self.process.pid}) {exit_text(self.process.returncode)}"

    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1].removeprefix("leadline: ") if lines else "its log is empty"


async def start_broker(plan: BrokerPlan) -> Process:
    """Start a broker in a process group of its own: Ctrl-C on the terminal does not reach it."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    file = plan.folder / SETTINGS_FILE
    file.write_text(HEAD + "".join(f"{name}={value}\n" for name, value in plan.settings.items()))
    with (plan.folder / LOG_FILE).open("ab") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "leadline",
            "start",
            str(file),
            stdin=DEVNULL,
            stdout=log,
            stderr=STDOUT,
            process_group=0,
        )


async def wait_or_kill(process: Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def exit_text(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"

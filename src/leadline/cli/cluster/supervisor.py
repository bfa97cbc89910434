"""The brokers of a cluster on this machine, from their start until all have ended."""

import asyncio
import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from leadline import __version__
from leadline.cli.cluster.broker_process import (
    CLEAN_EXIT_CODES,
    HOST,
    POLL_S,
    READY_S,
    SETTINGS_FILE,
    WATCH_S,
    BrokerPlan,
    BrokerProcess,
    exit_text,
    start_broker,
)
from leadline.cli.cluster.zookeeper_server import ZooKeeperServer
from leadline.cli.errors import Failure, print_error
from leadline.cli.formatting import count_text, time_text
from leadline.cli.options import DEFAULT_SERVER
from leadline.cli.signals import ending_signals
from leadline.cli.terminal import StatusLine, print_or_drop

ANSWER_S = 2.0  # one attempt to get the metadata of a broker
CLIENT_PROPERTIES: dict[str, str | int | float | bool] = {
    "client.id": "leadline",
    "log_level": 0,
    "reconnect.backoff.ms": 20,  # a broker starts within a second
    "reconnect.backoff.max.ms": 50,
}


class ClusterSupervisor:
    """`await run()` starts the brokers and returns when all have ended. `started_s`: when the first process started."""

    def __init__(
        self,
        plans: Sequence[BrokerPlan],
        zookeeper: ZooKeeperServer | None,
        connect: str,
        status: StatusLine,
        started_s: float,
    ) -> None:
        self.plans, self.zookeeper, self.connect = plans, zookeeper, connect
        self.members: list[BrokerProcess] = []
        self._status, self._started_s = status, started_s

    async def run(self) -> int:
        stop = asyncio.Event()
        for number in ending_signals():
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        tasks = [asyncio.create_task(stop.wait()), asyncio.create_task(self._run_brokers())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[1].done():
                await tasks[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            stopped_cleanly = await self._stop()
        return 0 if stopped_cleanly else 1

    async def _run_brokers(self) -> None:
        """Start the brokers and watch them. A Failure once none is running."""
        for plan in self.plans:
            self.members.append(BrokerProcess(plan, await start_broker(plan)))
        await self._wait_until_ready()
        self._print(*self.ready_lines(time.monotonic() - self._started_s))
        watches = [asyncio.create_task(self._watch(member)) for member in self.members]
        if self.zookeeper is not None:
            watches.append(asyncio.create_task(self._watch_zookeeper(self.zookeeper)))
        try:
            while not all(member.is_away for member in self.members):  # noqa: ASYNC110  brokers that were started by hand have no event
                await asyncio.sleep(WATCH_S)
        finally:
            for watch in watches:
                watch.cancel()
        raise Failure("no broker is running any more")

    async def _wait_until_ready(self) -> None:
        """Wait until each broker knows all others."""
        ids = {plan.id for plan in self.plans}
        for plan in self.plans:
            self._status.show(f"starting broker {plan.id} of {len(ids)}")
            while not ids <= await asyncio.to_thread(brokers_reported_by, plan):
                for member in self.members:
                    if member.has_ended:
                        raise Failure(f"{member.ended_text()}: {member.last_line()}")
                if time.monotonic() > self._started_s + READY_S:
                    raise Failure(f"the brokers do not see each other after {READY_S} s: see {short_path(plan.folder)}")
                await asyncio.sleep(POLL_S)

    def ready_lines(self, seconds: float) -> list[str]:
        port = self.members[0].plan.port
        where = "" if f"{HOST}:{port}" == DEFAULT_SERVER else f" --bootstrap-server {HOST}:{port}"
        rows = [
            [f"broker {member.plan.id}", f"{HOST}:{member.plan.port}", f"pid {member.pid}", short_path(member.log)]
            for member in self.members
        ]
        zookeeper = ["", ""]
        if self.zookeeper is not None:
            zookeeper = [f"pid {self.zookeeper.process.pid}", short_path(self.zookeeper.log)]
        rows.insert(0, ["zookeeper", self.connect, *zookeeper])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        examples = [f"leadline topics create orders --partitions 6{where}"]
        if len(self.members) > 1:
            examples.append(f"kill -9 {self.members[-1].process.pid}")
        examples += [f"leadline {command}{where}" for command in ("topics describe orders", "explain orders:0")]
        return [
            f"Leadline {__version__}, a cluster of {len(self.members)}, ready after {time_text(seconds)}",
            *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
            *(f"  {'' if n else 'try':{widths[0]}}  {command}" for n, command in enumerate(examples)),
            "Ctrl-C stops them all.",
        ]

    async def _watch(self, member: BrokerProcess) -> None:
        """Print when a broker ends, and when it was started again by hand."""
        await member.process.wait()
        self._print_ended(member, member.ended_text())
        while True:
            holder = member.holder()
            if holder is not None and member.restarted_pid is None:
                member.restarted_pid = holder
                self._print(f"{now_text()} broker {member.plan.id} is back (pid {holder}); {self._running_text()}.")
            elif holder is None and member.restarted_pid is not None:
                before, member.restarted_pid = member.restarted_pid, None
                self._print_ended(member, f"broker {member.plan.id} (pid {before}) ended")
            await asyncio.sleep(WATCH_S)

    def _print_ended(self, member: BrokerProcess, what: str) -> None:
        command = f"leadline start {short_path(member.plan.folder / SETTINGS_FILE)}"
        self._print(f"{now_text()} {what}; {self._running_text()}. To start it again: {command}")

    def _running_text(self) -> str:
        left = sum(not member.is_away for member in self.members)
        return f"{left} of {len(self.members)} run"

    async def _watch_zookeeper(self, server: ZooKeeperServer) -> None:
        while server.process.poll() is None:  # noqa: ASYNC110  asyncio did not start this process
            await asyncio.sleep(WATCH_S)
        self._print(
            f"{now_text()} ZooKeeper {exit_text(server.process.returncode)}: no leader can be elected until it is back"
        )

    async def _stop(self) -> bool:
        """Stop all running brokers at the same time. Whether all stopped cleanly."""
        for member in self.members:
            if member.has_ended:
                member.restarted_pid = member.holder()
        running = [member for member in self.members if not member.is_away]
        if not running:
            return False
        self._status.show(f"stopping {count_text(len(running), 'broker')}")
        for member in running:
            member.terminate()
        started_s = time.monotonic()
        await asyncio.gather(*(member.wait() for member in running))
        failed = [member for member in running if not member.ended_cleanly]
        for member in failed:
            print_error(f"{member.ended_text()}: {member.last_line()}")
        failed_before = [
            member
            for member in self.members
            if member not in running and member.process.returncode not in CLEAN_EXIT_CODES
        ]
        if not failed:
            result = "everything is on disk" if not failed_before else "the data of these brokers is on disk"
            self._print(f"stopped after {time_text(time.monotonic() - started_s)}; {result}")
        for member in failed_before:
            print_error(f"{member.ended_text()} earlier; it recovers its data when it starts again")
        return not failed

    def _print(self, *lines: str) -> None:
        self._status.show("")
        print_or_drop("\n".join(lines))


def brokers_reported_by(plan: BrokerPlan, timeout_s: float = ANSWER_S) -> set[int]:
    """The ids of the brokers in the metadata of one broker; none before it answers.

    A new client asks only its bootstrap server. The client is librdkafka, as in all commands.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    server = f"{HOST}:{plan.port}"
    admin = AdminClient({"bootstrap.servers": server, **CLIENT_PROPERTIES}, error_cb=lambda error: None)
    try:
        return set(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return set()


def short_path(path: Path) -> str:
    """A path as a person types it: relative, if it is below the current directory."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def now_text() -> str:
    return datetime.now().strftime("%H:%M:%S")

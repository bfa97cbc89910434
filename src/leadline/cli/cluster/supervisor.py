"""The brokers of a cluster on this machine, from their start until all have ended.

A broker that ends is not started again: a person may do so by hand. It is found through the lock of its log directory,
counts again, and is stopped with the others.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from leadline import __version__
from leadline.admin.connection import DEFAULT_SERVER
from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, time_text
from leadline.cli.cluster.broker_plan import HOST, BrokerPlan
from leadline.cli.cluster.zookeeper_server import ZooKeeperServer
from leadline.cli.errors import print_error
from leadline.cli.metrics_address import metrics_url
from leadline.cli.supervisor.broker_process import BrokerProcess, exit_text, now_text
from leadline.cli.supervisor.supervision import HAVE_PROCESS, ProcessState, SupervisionPolicy
from leadline.cli.supervisor.supervisor import Supervisor
from leadline.cli.terminal import StatusLine, print_or_drop

READY_S, STOP_S, POLL_S, WATCH_S = 60, 60, 0.05, 0.5
ANSWER_S = 2.0  # one attempt to get the metadata of a broker
POLICY = SupervisionPolicy(restarts=False, stops_in_turn=False, needs_all=True, kill_after_s=STOP_S)
CLIENT_PROPERTIES: dict[str, str | int | float | bool] = {
    "client.id": "leadline",
    "log_level": 0,
    "reconnect.backoff.ms": 20,  # a broker starts within a second
    "reconnect.backoff.max.ms": 50,
}


class ClusterSupervisor(Supervisor):
    """`started_s`: when the first process started."""

    def __init__(
        self,
        plans: Sequence[BrokerPlan],
        zookeeper: ZooKeeperServer | None,
        connect: str,
        status: StatusLine,
        started_s: float,
    ) -> None:
        super().__init__([plan.process for plan in plans], POLICY)
        self.plans, self.zookeeper, self.connect = {plan.id: plan for plan in plans}, zookeeper, connect
        self._status, self._started_s = status, started_s
        self._is_ready = False
        self._failure = ""  # why the cluster ends

    async def run(self) -> int:
        for plan in self.plans.values():
            plan.write_settings()
        self.run_task(self._limit_start())
        return await super().run()

    # Coming up

    async def _limit_start(self) -> None:
        self._status.show(f"starting {count_text(len(self.plans), 'broker')}")
        await asyncio.sleep(self._started_s + READY_S - time.monotonic())
        if not self._is_ready:
            folder = short_path(next(iter(self.plans.values())).folder.parent)
            self._fail(f"the brokers do not see each other after {READY_S} s: see {folder}")

    def _fail(self, reason: str) -> None:
        if not self.supervision.stop_requests:
            self._failure = reason
            self.stop()

    async def all_serve(self) -> None:
        """Wait until each broker knows all others. Then report, and poll for changes that raise no event."""
        for plan in self.plans.values():
            while not self.plans.keys() <= await asyncio.to_thread(brokers_reported_by, plan):  # noqa: ASYNC110  nothing announces it
                await asyncio.sleep(POLL_S)
        self._is_ready = True
        self._print(*self.ready_lines(time.monotonic() - self._started_s))
        self.run_task(self._watch_brokers())
        if self.zookeeper is not None:
            self.run_task(self._watch_zookeeper(self.zookeeper))

    def ready_lines(self, seconds: float) -> list[str]:
        plans = list(self.plans.values())
        port = plans[0].port
        where = "" if f"{HOST}:{port}" == DEFAULT_SERVER else f" --bootstrap-server {HOST}:{port}"
        pids = [self.members[plan.id].pid for plan in plans]
        rows = [
            [f"broker {plan.id}", f"{HOST}:{plan.port}", f"pid {pid}", short_path(plan.log), _metrics_text(plan)]
            for plan, pid in zip(plans, pids, strict=True)
        ]
        zookeeper = ["", "", ""]
        if self.zookeeper is not None:
            zookeeper = [f"pid {self.zookeeper.process.pid}", short_path(self.zookeeper.log), ""]
        rows.insert(0, ["zookeeper", self.connect, *zookeeper])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        examples = [f"leadline topics create orders --partitions 6{where}"]
        if len(plans) > 1:
            examples.append(f"kill -9 {pids[-1]}")
        examples += [f"leadline {command}{where}" for command in ("topics describe orders", "explain orders:0")]
        return [
            f"Leadline {__version__}, a cluster of {len(plans)}, ready after {time_text(seconds)}",
            *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
            *(f"  {'' if n else 'try':{widths[0]}}  {command}" for n, command in enumerate(examples)),
            "Ctrl-C stops them all.",
        ]

    # Brokers that end, and come back by hand

    def broker_ended(self, member: BrokerProcess) -> None:
        if self._is_ready:
            self._print_ended(member, member.ended_text())
        elif self.supervision.missing == member.id:
            self._failure = member.ended_text_with_reason()

    async def _watch_brokers(self) -> None:
        while True:
            for member in self.members.values():
                self._look_for(member)
            await asyncio.sleep(WATCH_S)

    def _look_for(self, member: BrokerProcess) -> None:
        """The process that was started by hand, or its end."""
        state = self.supervision.brokers[member.id].state
        if state is ProcessState.AWAY:
            member.restarted_pid = member.holder()
            if member.restarted_pid is not None:
                self.supervision.came_back(member.id, time.monotonic())
                back = f"broker {member.id} is back (pid {member.restarted_pid})"
                self._print(f"{now_text()} {back}; {self._running_text()}.")
        elif state in HAVE_PROCESS and member.restarted_pid not in (None, member.holder()):
            self.ended(member, is_clean=True)

    def _print_ended(self, member: BrokerProcess, what: str) -> None:
        if member.restarted_pid is not None:
            what = f"broker {member.id} (pid {member.restarted_pid}) ended"
            member.restarted_pid = None
        plan = self.plans[member.id]
        metrics = "" if plan.metrics is None else f" --metrics {plan.metrics}"
        command = f"leadline start {short_path(plan.settings_file)}{metrics}"
        self._print(f"{now_text()} {what}; {self._running_text()}. To start it again: {command}")

    def _running_text(self) -> str:
        return f"{self.supervision.count(*HAVE_PROCESS)} of {len(self.members)} run"

    async def _watch_zookeeper(self, server: ZooKeeperServer) -> None:
        while server.process.poll() is None:  # noqa: ASYNC110  asyncio did not start this process
            await asyncio.sleep(WATCH_S)
        self._print(
            f"{now_text()} ZooKeeper {exit_text(server.process.returncode)}: no leader can be elected until it is back"
        )

    # The end

    def stop(self) -> None:
        for member in self.members.values():
            if self._is_ready:
                self._look_for(member)
        self._status.show(f"stopping {count_text(self.supervision.count(*HAVE_PROCESS), 'broker')}")
        super().stop()

    def finished(self) -> None:
        """Report how the brokers ended. A Failure if they did not end by a signal."""
        supervision = self.supervision
        if not supervision.stop_requests:
            raise Failure("no broker is running any more")
        earlier = [member for member in self.members.values() if self._ended_earlier(member)]
        for id in supervision.unclean:
            print_error(self.members[id].ended_text_with_reason())
        if not supervision.unclean and len(earlier) < len(self.members):
            result = "everything is on disk" if not earlier else "the data of these brokers is on disk"
            self._print(f"stopped after {time_text(time.monotonic() - self.stopped_s)}; {result}")
        for member in earlier:
            print_error(f"{member.ended_text()} earlier; it recovers its data when it starts again")
        if self._failure:
            raise Failure(self._failure)

    def _ended_earlier(self, member: BrokerProcess) -> bool:
        """Whether a broker had ended, and not cleanly, before all stopped."""
        return member.id not in self.supervision.unclean and not member.ended_cleanly

    def _print(self, *lines: str) -> None:
        self._status.show("")
        print_or_drop("\n".join(lines))


def _metrics_text(plan: BrokerPlan) -> str:
    return metrics_url(plan.metrics) if plan.metrics is not None and plan.metrics.port else ""


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

"""leadline start --brokers N: several brokers of this host under one supervisor, from one file of settings.

Each broker is a process: `leadline start FILE` with the derived settings as --set. It reads the file again when it is
started again. Its output is the supervisor's, with the broker's id before each line.
"""

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

from leadline import __version__
from leadline.admin.formatting import count_text, host_text, ids_text, time_text
from leadline.cli.errors import print_error
from leadline.cli.metrics_address import MAX_PORT, MetricsAddress, metrics_url
from leadline.cli.processes import listener_on, process_text
from leadline.cli.start.derived_settings import DerivedBroker, folder_of
from leadline.cli.supervisor.broker_output import PrefixedLines
from leadline.cli.supervisor.broker_process import BrokerProcess, now_text
from leadline.cli.supervisor.supervision import ProcessState, SupervisionPolicy, backoff_s
from leadline.cli.supervisor.supervisor import Supervisor
from leadline.cli.terminal import print_or_drop
from leadline.log.names import META_PROPERTIES_FILE
from leadline.runtime.notify_socket import NotifySender

KILL_AFTER_S = 300.0  # a broker with much to flush takes long, and one that is killed recovers at its next start
POLICY = SupervisionPolicy(restarts=True, stops_in_turn=True, needs_all=False, kill_after_s=KILL_AFTER_S)
EXTEND = "EXTEND_TIMEOUT_USEC"


def run_brokers(
    brokers: Sequence[DerivedBroker],
    log_dirs: Sequence[str],
    arguments: Sequence[str],
    metrics: MetricsAddress | None = None,
) -> int:
    """`log_dirs`: those of the file. `arguments`: those of `leadline start`, without --brokers, --port and --metrics.

    `metrics`: the address of the first broker.
    """
    addresses = [None if metrics is None else metrics.shifted(n) for n in range(len(brokers))]
    problems = [*_taken_ports(brokers, addresses), *_mixed_directories(log_dirs)]
    for problem in problems:
        print_error(problem)
    if problems:
        return 1
    warn_of_others(brokers, log_dirs)
    print_or_drop("\n".join(first_lines(brokers, addresses)))
    return asyncio.run(HostSupervisor(brokers, arguments, NotifySender(os.environ), addresses).run())


def first_lines(brokers: Sequence[DerivedBroker], metrics: Sequence[MetricsAddress | None] = ()) -> list[str]:
    common = brokers[0].settings.broker
    rows = [
        (
            f"broker {broker.id}",
            " ".join(map(str, broker.settings.listeners.bound)),
            _advertised_text(broker),
            " ".join(broker.settings.storage.log_dirs),
            metrics_url(address) if address is not None and address.port else "",
        )
        for broker, address in zip_longest(brokers, metrics)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        f"Leadline {__version__}, {count_text(len(brokers), 'broker')} of this host",
        f"  cluster   {common.zookeeper_connect}",
        f"  rack      {common.broker_rack}",
        *(
            "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width).rstrip()
            for row in rows
        ),
    ]


def _advertised_text(broker: DerivedBroker) -> str:
    listeners = broker.settings.listeners
    return "" if listeners.advertised == listeners.bound else f"as {' '.join(map(str, listeners.advertised))}"


# Starts that are certain to fail


def _taken_ports(brokers: Sequence[DerivedBroker], metrics: Sequence[MetricsAddress | None]) -> Iterator[str]:
    for broker, own in zip(brokers, metrics, strict=True):
        addresses = [(listener.name, listener.host, listener.port) for listener in broker.settings.listeners.bound]
        addresses += [] if own is None else [("metrics", own.host, own.port)]
        for name, host, port in addresses:
            if (error := _bind_error(host, port)) is not None:
                pid = listener_on(port)
                by = "" if pid is None else f", by {process_text(pid)}"
                yield f"broker {broker.id} cannot listen on {host_text(host)}:{port} ({name}): {error}{by}"


def _bind_error(host: str, port: int) -> str | None:
    """Why the address cannot be used. The broker itself reports a host that has no address."""
    if not port:
        return None
    if port > MAX_PORT:
        return f"a port is at most {MAX_PORT}"
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        return None
    with closing(socket.socket(family, kind)) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind(address)
            bound.listen()
        except OSError as error:
            return error.strerror
    return None


def _mixed_directories(log_dirs: Sequence[str]) -> Iterator[str]:
    """A directory that holds the logs of one broker cannot hold those of several."""
    for path in log_dirs:
        if os.path.exists(os.path.join(path, META_PROPERTIES_FILE)):
            yield (
                f"log.dirs: {path} holds the logs of one broker. Move its contents to the folder "
                f"{folder_of(_id_in(path))} in it, or set log.dirs to another directory"
            )


def _id_in(path: str) -> int:
    text = Path(path, META_PROPERTIES_FILE).read_text(errors="replace")
    ids = [line.partition("=")[2] for line in text.splitlines() if line.startswith("broker.id=")]
    return int(ids[0]) if ids and ids[0].isdecimal() else 0


def brokers_in(path: str) -> list[int]:
    """The ids of the brokers that have logs in a directory of the file."""
    folders = (file.parent.name for file in Path(path).glob(f"broker_*/{META_PROPERTIES_FILE}"))
    return sorted(int(id) for name in folders if (id := name.removeprefix("broker_")).isdecimal())


def warn_of_others(brokers: Sequence[DerivedBroker], log_dirs: Sequence[str]) -> None:
    ids = {broker.id for broker in brokers}
    if others := sorted({id for path in log_dirs for id in brokers_in(path)} - ids):
        print_error(
            f"log.dirs also has the logs of brokers that are not started ({ids_text(others)}): partitions that no "
            "other broker holds are offline"
        )


class HostSupervisor(Supervisor):
    """Reports to the terminal and to the service manager."""

    def __init__(
        self,
        brokers: Sequence[DerivedBroker],
        arguments: Sequence[str],
        manager: NotifySender,
        metrics: Sequence[MetricsAddress | None] = (),
    ) -> None:
        width = max(len(str(broker.id)) for broker in brokers)
        members = [
            _process(broker, arguments, f"broker {broker.id:{width}} | ", address)
            for broker, address in zip_longest(brokers, metrics)
        ]
        super().__init__(members, POLICY)
        self._manager, self._started_s = manager, time.monotonic()
        self._is_announced = False

    async def all_serve(self) -> None:
        self._is_announced = True
        after = time_text(time.monotonic() - self._started_s)
        self._report(f"all {len(self.members)} brokers serve after {after}. Ctrl-C stops them one after another")
        self._manager.notify("READY=1", f"STATUS={self._status()}")

    def broker_serves(self, member: BrokerProcess) -> None:
        again = " again" if self._is_announced else ""
        self._report(f"broker {member.id} serves{again} (pid {member.pid}); {self._status()}")
        self._notify_status()

    def broker_notified(self, member: BrokerProcess, notice: dict[str, str]) -> None:
        """A broker that takes long to start asks for more time. Its request is passed on."""
        lines = [f"STATUS=broker {member.id}: {notice['STATUS']}"] if "STATUS" in notice else []
        lines += [f"{EXTEND}={notice[EXTEND]}"] if EXTEND in notice else []
        if lines and not self.supervision.stop_requests:
            self._manager.notify(*lines)

    def broker_ended(self, member: BrokerProcess) -> None:
        broker = self.supervision.brokers[member.id]
        text = f"{self._ended_text(member)}; {self._status()}"
        if broker.state is ProcessState.WAITING:
            text += f". It is started again in {time_text(backoff_s(broker.ends))}"
        self._report(text)
        self._notify_status()

    def _ended_text(self, member: BrokerProcess) -> str:
        """How a broker ended, with the reason if the broker itself wrote one."""
        is_killed = member.process is not None and (member.process.returncode or 0) < 0
        return member.ended_text() if is_killed or member.ended_cleanly else member.ended_text_with_reason()

    def broker_stopped(self, member: BrokerProcess) -> None:
        if not member.ended_cleanly:
            print_error(self._ended_text(member))
        self._notify_status()

    def stopping(self, number: signal.Signals, requests: int) -> None:
        texts = {
            1: "the brokers stop one after another, the last one first. A second signal stops all at once",
            2: "all brokers stop at once. A third signal kills them, and the next start recovers",
        }
        self._report(f"{number.name}: {texts.get(requests, 'the brokers are killed')}")
        self._manager.notify("STOPPING=1", f"STATUS=stopping; {self._status()}")

    def finished(self) -> None:
        took = time_text(time.monotonic() - self.stopped_s)
        if not self.supervision.unclean:
            self._report(f"stopped after {took}; everything is on disk")
            return
        ids = ", ".join(f"broker {id}" for id in sorted(self.supervision.unclean))
        print_error(f"stopped after {took}, but not cleanly: {ids}. The next start recovers")

    def _status(self) -> str:
        serving = self.supervision.count(ProcessState.SERVING)
        return f"{serving} of {len(self.members)} brokers serve"

    def _notify_status(self) -> None:
        prefix = "stopping; " if self.supervision.stop_requests else ""
        self._manager.notify(f"STATUS={prefix}{self._status()}")

    def _report(self, text: str) -> None:
        print_or_drop(f"{now_text()} {text}")


def _process(
    broker: DerivedBroker, arguments: Sequence[str], prefix: str, metrics: MetricsAddress | None
) -> BrokerProcess:
    own = [part for name, value in broker.own.items() for part in ("--set", f"{name}={value}")]
    own += [] if metrics is None else ["--metrics", str(metrics)]
    log_dir = Path(broker.settings.storage.log_dirs[0])
    return BrokerProcess(broker.id, [*arguments, *own], log_dir, PrefixedLines(prefix, print_or_drop))

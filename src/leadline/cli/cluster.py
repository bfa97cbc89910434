"""leadline cluster: a ZooKeeper and some brokers on this machine, each in a process of its own, until Ctrl-C.

All lies in one folder: `zookeeper`, and for each broker one like `broker-1`, with its settings (server.properties,
written anew at each start), its data, and what it says (broker.log). Started on the same folder again, the cluster goes
on with its data.

A broker that ended may be started again by hand, on its settings. It is known by who holds its log directory, is one of
the cluster again, and is stopped with it.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, STDOUT, Process
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from leadline import __version__
from leadline.cli import COMMANDS
from leadline.cli.client import DEFAULT_SERVER, Failure, add_command, at_least, complain, key_value
from leadline.cli.processes import holder_of, listener_on, process_text
from leadline.cli.terminal import StatusLine, count_text, ends_it, say, time_text
from leadline.cli.zookeeper_server import ServerFailed, ToolMissing, ZooKeeperServer
from leadline.cluster.broker_client import PeerLost, TcpBrokerClient
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.wire.messages import MetadataRequest, MetadataResponse

HOST = "localhost"
FIRST_PORT, ZOOKEEPER_PORT = 9092, 2181
BROKERS = 3  # unless told otherwise, or the folder holds another number
READY_S, STOP_S, POLL_S, WATCH_S = 60, 60, 0.05, 0.5
METADATA_VERSION = 9
OWN_SETTINGS = ("broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect")
# Exit codes of those that were told to stop; the latter two before they had begun.
IN_ORDER = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
SETTINGS_FILE, LOG_FILE, DATA_FOLDER = "server.properties", "broker.log", "data"
HEAD = "# Written by `leadline cluster up` at each start: its --set is the place for other settings.\n"

UP = """
  leadline cluster up                                        3 brokers from localhost:9092 on, all in ./leadline-cluster
  leadline cluster up --brokers 5 --dir /tmp/five --port 19092
  leadline cluster up --set auto.create.topics.enable=false  a setting of each broker
  leadline cluster up --port 19092 --zookeeper-port 12181    beside another cluster
  leadline cluster up --zookeeper zk1:2181,zk2:2181/test     with a ZooKeeper that runs elsewhere
"""
DESCRIPTION = """
Runs a real ZooKeeper and some brokers on this machine, one process each, in the foreground. Ctrl-C stops them all
cleanly; on the same folder they go on with their data.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "cluster", prog="leadline cluster", help=COMMANDS["cluster"], usage="leadline cluster COMMAND ..."
    )
    under = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    up = add_command(
        under,
        "up",
        _up,
        help="start a cluster on this machine, and stop it on Ctrl-C",
        usage="cluster up [options]",
        description=DESCRIPTION.strip(),
        examples=UP,
        connects=False,
    )
    up.add_argument(
        "--brokers", type=at_least(1), metavar="N", help="how many (default 3, or as many as the folder has)"
    )
    up.add_argument("--dir", type=Path, default=Path("leadline-cluster"), help="where all lies (./leadline-cluster)")
    up.add_argument(
        "--port", type=at_least(1), default=FIRST_PORT, help="of the first broker; the others follow (9092)"
    )
    up.add_argument("--zookeeper", metavar="CONNECT", help="a ZooKeeper that runs already; none is started then")
    up.add_argument(
        "--zookeeper-port", type=at_least(1), metavar="N", help="of the ZooKeeper (default 2181, or one that is free)"
    )
    up.add_argument(
        "--set", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="one setting of each broker"
    )


# What is to run


class BrokerPlan(NamedTuple):
    """One broker that is to run."""

    id: int
    port: int
    folder: Path
    settings: Mapping[str, str]


def plans(folder: Path, count: int, first_port: int, connect: str, given: Mapping[str, str]) -> list[BrokerPlan]:
    """Copies as many as there are brokers, up to three; with three, one may be away and writes still go on."""
    copies = str(min(3, count))
    needed = "2" if count >= 3 else "1"
    common = {
        "zookeeper.connect": connect,
        "default.replication.factor": copies,
        "min.insync.replicas": needed,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": needed,
        **given,
    }
    found = []
    for id in range(1, count + 1):
        own, port = folder / f"broker-{id}", first_port + id - 1
        place = {"broker.id": str(id), "listeners": f"PLAINTEXT://{HOST}:{port}", "log.dirs": str(own / DATA_FOLDER)}
        found.append(BrokerPlan(id, port, own, place | common))
    return found


def brokers_in(folder: Path) -> int:
    """How many the folder has from the last time."""
    ids = [int(each.parent.name.rpartition("-")[2]) for each in folder.glob(f"broker-[0-9]*/{SETTINGS_FILE}")]
    return max(ids, default=0)


def _check(options: argparse.Namespace, count: int) -> None:
    """What is certain to fail fails before anything has started."""
    given = dict(options.set)
    for name in OWN_SETTINGS:
        if name in given:
            raise Failure(f"--set {name}: each broker has its own; see --dir, --port and --zookeeper")
    if options.zookeeper is not None and options.zookeeper_port is not None:
        raise Failure("--zookeeper-port: none is started with --zookeeper")
    if (options.zookeeper_port or 0) > 65_535:
        raise Failure(f"--zookeeper-port {options.zookeeper_port}: a port is a number from 1 to 65535")
    if options.port + count - 1 > 65_535:
        raise Failure(f"--port {options.port}: {count} brokers need the ports up to {options.port + count - 1}")
    try:
        for plan in plans(options.dir, count, options.port, "localhost", given):
            broker_settings(plan.settings)
            if not _is_free(plan.port):
                raise Failure(_taken(plan.port, "--port"))
            if (pid := holder_of(plan.folder / DATA_FOLDER)) is not None:
                raise Failure(f"broker {plan.id} of {options.dir} runs already: {process_text(pid)}")
        if options.zookeeper_port is not None and not _is_free(options.zookeeper_port):
            raise Failure(_taken(options.zookeeper_port, "--zookeeper-port"))
    except InvalidSetting as error:
        raise Failure(str(error)) from None


def _taken(port: int, option: str) -> str:
    pid = listener_on(port)
    by = f" by {process_text(pid)}" if pid is not None else ""
    return f"{HOST}:{port} is taken{by}: choose another with {option}"


def _is_free(port: int) -> bool:
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def _zookeeper_port(chosen: int | None) -> int:
    """The chosen or usual one, or one that is free."""
    if chosen is not None:
        return chosen
    if _is_free(ZOOKEEPER_PORT):
        return ZOOKEEPER_PORT
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


# Running it


def _up(options: argparse.Namespace) -> int:
    before = brokers_in(options.dir)
    count = options.brokers or before or BROKERS
    _check(options, count)
    if count < before:
        complain(
            f"{options.dir} has {before} brokers: those above {count} stay down, and with them what only they hold"
        )
    begun = time.monotonic()
    folder = options.dir.resolve()
    with StatusLine() as status, _zookeeper(options, folder / "zookeeper", status) as server:
        connect = options.zookeeper if server is None else server.connect
        members = plans(folder, count, options.port, connect, dict(options.set))
        return asyncio.run(ClusterSupervisor(members, server, connect, status, begun).run())


@contextmanager
def _zookeeper(options: argparse.Namespace, folder: Path, status: StatusLine) -> Iterator[ZooKeeperServer | None]:
    if options.zookeeper is not None:
        yield None
        return
    status.show("starting ZooKeeper")
    try:
        server = ZooKeeperServer.start(folder, _zookeeper_port(options.zookeeper_port))
    except (ToolMissing, ServerFailed) as error:
        raise Failure(str(error)) from None
    try:
        yield server
    finally:
        server.stop()


@dataclass(slots=True)
class BrokerProcess:
    """A broker that was started, here or later by hand."""

    plan: BrokerPlan
    process: Process
    by_hand: int | None = None  # the process that runs it since this one ended

    @property
    def log(self) -> Path:
        return self.plan.folder / LOG_FILE

    @property
    def has_ended(self) -> bool:
        return self.process.returncode is not None

    @property
    def is_away(self) -> bool:
        return self.has_ended and self.by_hand is None

    @property
    def pid(self) -> int:
        return self.process.pid if self.by_hand is None else self.by_hand

    def holder(self) -> int | None:
        """The process that has its log directory open."""
        return holder_of(self.plan.folder / DATA_FOLDER)

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    async def wait(self) -> None:
        """Until it has ended; after STOP_S, killed."""
        if self.by_hand is None:
            await ended(self.process)
            return
        deadline = time.monotonic() + STOP_S
        while self.holder() == self.by_hand:
            if time.monotonic() > deadline:
                with suppress(ProcessLookupError):
                    os.kill(self.by_hand, signal.SIGKILL)
            await asyncio.sleep(POLL_S)

    @property
    def ended_in_order(self) -> bool:
        """Of one that was started by hand only its own terminal knows."""
        return self.by_hand is not None or self.process.returncode in IN_ORDER

    def epitaph(self) -> str:
        assert self.process.returncode is not None
        return f"broker {self.plan.id} (pid {self.process.pid}) {ending(self.process.returncode)}"

    def last_words(self) -> str:
        said = self.log.read_text(errors="replace").splitlines()
        return said[-1].removeprefix("leadline: ") if said else "it said nothing"


class ClusterSupervisor:
    """`await run()` starts the brokers and returns when all have ended. `begun`: when the first process was started."""

    def __init__(
        self,
        plans: Sequence[BrokerPlan],
        zookeeper: ZooKeeperServer | None,
        connect: str,
        status: StatusLine,
        begun: float,
    ) -> None:
        self.plans, self.zookeeper, self.connect = plans, zookeeper, connect
        self.members: list[BrokerProcess] = []
        self._status, self._begun = status, begun

    async def run(self) -> int:
        stop = asyncio.Event()
        for number in ends_it():
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        tasks = [asyncio.create_task(stop.wait()), asyncio.create_task(self._live())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[1].done():
                await tasks[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            in_order = await self._end()
        return 0 if in_order else 1

    async def _live(self) -> None:
        """Until no broker is left, which is a Failure."""
        for plan in self.plans:
            self.members.append(BrokerProcess(plan, await started(plan)))
        await self._ready()
        self._say(*self.greeting(time.monotonic() - self._begun))
        watches = [asyncio.create_task(self._watch(each)) for each in self.members]
        if self.zookeeper is not None:
            watches.append(asyncio.create_task(self._watch_zookeeper(self.zookeeper)))
        try:
            while not all(each.is_away for each in self.members):  # noqa: ASYNC110  also those that others started
                await asyncio.sleep(WATCH_S)
        finally:
            for watch in watches:
                watch.cancel()
        raise Failure("no broker is left")

    async def _ready(self) -> None:
        """Once each broker knows all the others."""
        ids = {plan.id for plan in self.plans}
        for plan in self.plans:
            self._status.show(f"starting broker {plan.id} of {len(ids)}")
            while not ids <= await known_to(plan):
                for each in self.members:
                    if each.has_ended:
                        raise Failure(f"{each.epitaph()}: {each.last_words()}")
                if time.monotonic() > self._begun + READY_S:
                    raise Failure(f"the brokers do not know each other after {READY_S} s: see {shown(plan.folder)}")
                await asyncio.sleep(POLL_S)

    def greeting(self, seconds: float) -> list[str]:
        port = self.members[0].plan.port
        where = "" if f"{HOST}:{port}" == DEFAULT_SERVER else f" --bootstrap-server {HOST}:{port}"
        rows = [
            [f"broker {each.plan.id}", f"{HOST}:{each.plan.port}", f"pid {each.pid}", shown(each.log)]
            for each in self.members
        ]
        zookeeper = ["", ""]
        if self.zookeeper is not None:
            zookeeper = [f"pid {self.zookeeper.process.pid}", shown(self.zookeeper.log)]
        rows.insert(0, ["zookeeper", self.connect, *zookeeper])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        tries = [f"leadline topics create orders --partitions 6{where}"]
        if len(self.members) > 1:
            tries.append(f"kill -9 {self.members[-1].process.pid}")
        tries += [f"leadline {command}{where}" for command in ("topics describe orders", "explain orders:0")]
        return [
            f"Leadline {__version__}, a cluster of {len(self.members)}, ready after {time_text(seconds)}",
            *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows),
            *(f"  {'' if n else 'try':{widths[0]}}  {command}" for n, command in enumerate(tries)),
            "Ctrl-C stops them all.",
        ]

    async def _watch(self, member: BrokerProcess) -> None:
        """Tells that a broker ended, and that somebody brought it back."""
        await member.process.wait()
        self._tell_away(member, member.epitaph())
        while True:
            holder = member.holder()
            if holder is not None and member.by_hand is None:
                member.by_hand = holder
                self._say(f"{now_text()} broker {member.plan.id} is back (pid {holder}); {self._going_on()}.")
            elif holder is None and member.by_hand is not None:
                before, member.by_hand = member.by_hand, None
                self._tell_away(member, f"broker {member.plan.id} (pid {before}) ended")
            await asyncio.sleep(WATCH_S)

    def _tell_away(self, member: BrokerProcess, what: str) -> None:
        again = f"leadline start {shown(member.plan.folder / SETTINGS_FILE)}"
        self._say(f"{now_text()} {what}; {self._going_on()}. To bring it back: {again}")

    def _going_on(self) -> str:
        left = sum(not each.is_away for each in self.members)
        return f"{left} of {len(self.members)} run"

    async def _watch_zookeeper(self, server: ZooKeeperServer) -> None:
        while server.process.poll() is None:  # noqa: ASYNC110  a process that is not asyncio's
            await asyncio.sleep(WATCH_S)
        self._say(f"{now_text()} ZooKeeper {ending(server.process.returncode)}: nobody is elected while it is away")

    async def _end(self) -> bool:
        """Stop all that run, at once. Whether they ended in order."""
        for each in self.members:
            if each.has_ended:
                each.by_hand = each.holder()
        running = [each for each in self.members if not each.is_away]
        if not running:
            return False
        self._status.show(f"stopping {count_text(len(running), 'broker')}")
        for each in running:
            each.terminate()
        began = time.monotonic()
        await asyncio.gather(*(each.wait() for each in running))
        failed = [each for each in running if not each.ended_in_order]
        for each in failed:
            complain(f"{each.epitaph()}: {each.last_words()}")
        gone = [each for each in self.members if each not in running and each.process.returncode not in IN_ORDER]
        if not failed:
            said = "everything is on disk" if not gone else "what these held is on disk"
            self._say(f"stopped after {time_text(time.monotonic() - began)}; {said}")
        for each in gone:
            complain(f"{each.epitaph()} before: its next start recovers what it held")
        return not failed

    def _say(self, *lines: str) -> None:
        self._status.show("")
        say("\n".join(lines))


async def started(plan: BrokerPlan) -> Process:
    """A broker's process, which Ctrl-C on the terminal does not reach: it is stopped in order."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    file = plan.folder / SETTINGS_FILE
    file.write_text(HEAD + "".join(f"{name}={value}\n" for name, value in plan.settings.items()))
    with (plan.folder / LOG_FILE).open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "leadline", "start", str(file)),
            stdin=DEVNULL,
            stdout=log,
            stderr=STDOUT,
            process_group=0,
        )


async def ended(process: Process) -> None:
    try:
        async with asyncio.timeout(STOP_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def known_to(plan: BrokerPlan) -> set[int]:
    """The brokers that a broker knows to be there; nobody before it answers."""
    channel = TcpBrokerClient(HOST, plan.port, "leadline")
    try:
        answer = await channel.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION, READY_S)
        return {each.node_id for each in answer.brokers}
    except PeerLost:
        return set()
    finally:
        channel.close()


def ending(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def shown(path: Path) -> str:
    """A path as one would type it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def now_text() -> str:
    return datetime.now().strftime("%H:%M:%S")

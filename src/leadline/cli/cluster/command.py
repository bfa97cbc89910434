"""leadline cluster: a ZooKeeper and some brokers on this machine, each in its own process, until Ctrl-C.

One folder holds everything: `zookeeper`, and a folder such as `broker-1` for each broker, with its settings
(server.properties, written at each start), its data and its output (broker.log). A cluster that is started on the same
folder again continues with its data.

A broker that ended may be started again by hand, with its server.properties. The command finds it through the lock of
its log directory, counts it again, and stops it at the end.
"""

import argparse
import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leadline.admin.errors import Failure
from leadline.cli import COMMANDS
from leadline.cli.cluster.broker_plan import (
    DATA_FOLDER,
    HOST,
    brokers_in,
    plans,
)
from leadline.cli.cluster.supervisor import ClusterSupervisor
from leadline.cli.cluster.zookeeper_server import ServerFailed, ToolMissing, ZooKeeperServer
from leadline.cli.errors import print_error
from leadline.cli.metrics_address import MAX_PORT, metrics_address
from leadline.cli.options import add_command, add_subcommands, at_least, key_value
from leadline.cli.processes import holder_of, listener_on, process_text
from leadline.cli.terminal import StatusLine
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting

FIRST_PORT, ZOOKEEPER_PORT = 9092, 2181
BROKERS = 3  # default, if the folder holds no brokers yet
OWN_SETTINGS = ("broker.id", "listeners", "advertised.listeners", "log.dir", "log.dirs", "zookeeper.connect")

UP = """
  leadline cluster up                                        3 brokers on ports 9092 to 9094, data in ./leadline-cluster
  leadline cluster up --brokers 5 --dir /tmp/five --port 19092
  leadline cluster up --set auto.create.topics.enable=false  set it for each broker
  leadline cluster up --port 19092 --zookeeper-port 12181    a second cluster on this machine
  leadline cluster up --zookeeper zk1:2181,zk2:2181/test     use a ZooKeeper that already runs
"""
DESCRIPTION = """
Run a real ZooKeeper and several brokers on this machine, one process each, in the foreground. Ctrl-C stops them all
cleanly. A cluster that is started on the same directory again continues with its data.
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "cluster", COMMANDS["cluster"].help)
    up = add_command(
        subcommands,
        "up",
        _up,
        help="start a cluster on this machine; Ctrl-C stops it",
        usage="cluster up [options]",
        description=DESCRIPTION.strip(),
        examples=UP,
        connects=False,
    )
    up.add_argument(
        "--brokers", type=at_least(1), metavar="N", help="number of brokers (default 3, or the number in the directory)"
    )
    up.add_argument(
        "--dir", type=Path, default=Path("leadline-cluster"), help="data directory (default ./leadline-cluster)"
    )
    up.add_argument(
        "--port",
        type=at_least(1),
        default=FIRST_PORT,
        help="port of the first broker; the others use the next ports (default 9092)",
    )
    up.add_argument("--zookeeper", metavar="CONNECT", help="use this ZooKeeper instead of starting one")
    up.add_argument(
        "--zookeeper-port", type=at_least(1), metavar="N", help="port of the ZooKeeper (default 2181, or a free port)"
    )
    up.add_argument(
        "--metrics",
        type=metrics_address,
        metavar="HOST:PORT",
        help="serve metrics of the first broker there; the others use the next ports (default: off)",
    )
    up.add_argument(
        "--set",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one setting of each broker; repeatable",
    )


def _check(options: argparse.Namespace, count: int) -> None:
    """Refuse a start that is certain to fail, before any process is started."""
    overrides = dict(options.set)
    for name in OWN_SETTINGS:
        if name in overrides:
            raise Failure(f"--set {name}: this setting differs between brokers; use --dir, --port and --zookeeper")
    if options.zookeeper is not None and options.zookeeper_port is not None:
        raise Failure("--zookeeper-port: with --zookeeper no ZooKeeper is started")
    if (options.zookeeper_port or 0) > 65_535:
        raise Failure(f"--zookeeper-port {options.zookeeper_port}: a port is a number from 1 to 65535")
    if options.metrics is not None and options.metrics.port + count - 1 > MAX_PORT:
        raise Failure(f"--metrics {options.metrics}: {count} brokers need ports up to {MAX_PORT} at most")
    if options.port + count - 1 > 65_535:
        raise Failure(f"--port {options.port}: {count} brokers need the ports up to {options.port + count - 1}")
    try:
        for plan in plans(options.dir, count, options.port, "localhost", overrides, options.metrics):
            broker_settings(plan.settings)
            if not _is_free(plan.port):
                raise Failure(_taken(plan.port, "--port"))
            if plan.metrics is not None and not _is_free(plan.metrics.port):
                raise Failure(_taken(plan.metrics.port, "--metrics"))
            if (pid := holder_of(plan.folder / DATA_FOLDER)) is not None:
                raise Failure(f"broker {plan.id} of {options.dir} is already running: {process_text(pid)}")
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
    """The chosen port, or the default port, or any free port."""
    if chosen is not None:
        return chosen
    if _is_free(ZOOKEEPER_PORT):
        return ZOOKEEPER_PORT
    with socket.create_server((HOST, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _up(options: argparse.Namespace) -> int:
    existing = brokers_in(options.dir)
    count = options.brokers or existing or BROKERS
    _check(options, count)
    if count < existing:
        print_error(
            f"{options.dir} has {existing} brokers: those above {count} are not started, "
            "and partitions that only they hold are offline"
        )
    started_s = time.monotonic()
    folder = options.dir.resolve()
    with StatusLine() as status, _zookeeper(options, folder / "zookeeper", status) as server:
        connect = options.zookeeper if server is None else server.connect
        members = plans(folder, count, options.port, connect, dict(options.set), options.metrics)
        return asyncio.run(ClusterSupervisor(members, server, connect, status, started_s).run())


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

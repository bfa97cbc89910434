"""leadline start: runs a broker in the foreground until Ctrl-C.

The first lines name the listeners, the log directories and a command to try. An error is one line and exit code 1.
"""

import argparse
import asyncio
import errno
import gc
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from leadline import __version__
from leadline.admin.formatting import count_text, host_text, size_text, time_text
from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.cli import COMMANDS
from leadline.cli.metrics_address import MetricsAddress, metrics_address, metrics_url
from leadline.cli.options import at_least
from leadline.cli.processes import holder_of, listener_on, process_text
from leadline.cli.signals import ending_signals
from leadline.cli.start.console_process import ConsoleOptions, ConsoleProcess, check_console, open_listener
from leadline.cli.start.derived_settings import derived_brokers, folder_of
from leadline.cli.start.log_lines import JSON, PERIOD_S, TEXT, CondensedLines
from leadline.cli.start.several_brokers import brokers_in, run_brokers
from leadline.cli.terminal import StatusLine, print_or_drop
from leadline.cluster.metadata_cache import Endpoint
from leadline.config.broker import BrokerSettings, broker_settings
from leadline.config.listeners import Listeners
from leadline.config.properties import decode_properties
from leadline.config.values import InvalidSetting
from leadline.coordination.database import TreeInUse
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import TreeError
from leadline.errors import CorruptFile, InconsistentIdentity, LogDirFailed, LogDirLocked, ResourceExhausted
from leadline.log.log_dir import LogDir
from leadline.log.log_loading import RecoveryProgress
from leadline.records import walker
from leadline.runtime.network import TcpNetwork
from leadline.runtime.notify_socket import NotifySender
from leadline.runtime.parent_pipe import parent_pipe
from leadline.runtime.ports import raise_descriptor_limit, shortage
from leadline.runtime.selector import TimedSelector

REFUSALS = (  # errors that are printed as one line
    InvalidSetting,
    InconsistentIdentity,
    LogDirLocked,
    LogDirFailed,
    CorruptFile,
    MalformedNode,
    TreeInUse,
    TreeError,
    OSError,
)
PROGRESS_S = 5.0  # interval of progress lines during a long start, without a terminal
MORE_TIME_S = 60  # extends the start timeout of the service manager, while there is progress
METRICS_PORT = "(metrics)"  # in the error of a port that is taken
MAX_OFFLINE_SHOWN = 10  # offline partitions that are listed after the start
DEFAULT_LISTENERS = "PLAINTEXT://localhost:9092"  # Kafka's default listens on all interfaces


class StartCancelled(Exception):
    """A signal ended the broker before it served."""


DESCRIPTION = """\
Run a broker in the foreground.

Without zookeeper.connect the broker is a single node: it needs neither a JVM nor ZooKeeper. With zookeeper.connect it
joins a cluster, which may have brokers of Apache Kafka.

After a crash the broker recovers its data. It stops cleanly on Ctrl-C, on SIGTERM and when its terminal is closed
(SIGHUP). On SIGUSR1 it logs how busy its event loop is. As a service of systemd (Type=notify) it reports when it serves
and when it stops.

One broker uses about one core. With --brokers N, N brokers of a cluster run from one file of settings, which needs
broker.id and zookeeper.connect. The n-th broker, counted from 0, gets
  broker.id             that of the file plus n
  listeners             each port plus n, or plus 2n, 3n, ... if the listeners of the file are close together;
                        advertised.listeners likewise
  log.dirs              the folder broker_<id> in each of these directories
  broker.rack           the name of this host, unless the file sets it
One supervisor starts them and prints their output, with the id before each line. It restarts a broker that ends,
after 0.5 s at first and 30 s at most. Ctrl-C, SIGTERM and SIGHUP stop the brokers one after another, so that others
lead their partitions. A second signal stops all at once, a third one kills them. The exit code is 0 if all stopped
cleanly. If the supervisor is killed, its brokers stop cleanly by themselves."""
EPILOG = """
examples:
  leadline start                                  listen on localhost:9092, keep the data in ./leadline-data
  leadline start --port 9192                      listen on another port
  leadline start server.properties                read the settings from Kafka's own file
  leadline start --set log.dirs=/data/logs --set log.retention.hours=24
  leadline start --set zookeeper.connect=localhost:2181/kafka --set broker.id=3    join a cluster
  leadline start server.properties --brokers 4    4 brokers, for 4 cores
  leadline start --metrics 127.0.0.1:9404         http://127.0.0.1:9404/metrics for Prometheus
  leadline start --console 127.0.0.1:8080         with web pages for a browser on this machine
"""


class StartOptions(NamedTuple):
    """How one broker runs, beside its settings."""

    console: ConsoleOptions | None = None
    metrics: MetricsAddress | None = None
    log_format: str = TEXT


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "start",
        help=COMMANDS["start"].help,
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("properties", nargs="?", type=Path, help="file of settings, as Kafka's server.properties")
    parser.add_argument(
        "--port",
        type=port_number,
        metavar="N",
        help="port of the listener (default 9092; 0: any free port); overrides the file and --set",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="one setting; overrides the file"
    )
    parser.add_argument(
        "--brokers", type=at_least(1), metavar="N", help="run N brokers of a cluster; their settings are derived"
    )
    parser.add_argument(
        "--metrics",
        type=metrics_address,
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz over HTTP (default: off); with --brokers, the n-th uses PORT+n",
    )
    parser.add_argument(
        "--log-format", choices=(TEXT, JSON), default=TEXT, help="log lines as text or as JSON objects (default text)"
    )
    console = parser.add_argument_group("the console, which `leadline console --help` describes")
    console.add_argument("--console", metavar="HOST:PORT", help="serve the console there, in a process of its own")
    console.add_argument("--console-allow-changes", action="store_true", help="let it make changes")
    console.add_argument(
        "--console-config", type=Path, metavar="FILE", help="its client properties, where listeners require a login"
    )
    parser.set_defaults(run=run)


def port_number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65_535):
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to 65535, not {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    try:
        properties = _properties(options)
        console = _console(options)
        if options.brokers is not None:
            brokers = derived_brokers(properties, options.brokers, TcpNetwork.host_name())
            log_dirs = broker_settings(properties).storage.log_dirs
            return run_brokers(brokers, log_dirs, _arguments(options), options.metrics)
        settings = broker_settings(properties)
        _check_directories(settings.storage.log_dirs)
        if console is not None:
            check_console(console, settings.listeners)
        selector = TimedSelector()
        with asyncio.Runner(loop_factory=selector.new_loop) as runner:
            return _run(runner, settings, selector, StartOptions(console, options.metrics, options.log_format))
    except (OSError, RuntimeError, MemoryError, ResourceExhausted) as error:
        if (text := shortage(error)) is None:
            if not isinstance(error, OSError):
                raise
            text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        print(f"leadline: {text}", file=sys.stderr)
    except REFUSALS as error:
        print(f"leadline: {error}", file=sys.stderr)
    return 1


def _console(options: argparse.Namespace) -> ConsoleOptions | None:
    if options.console is None:
        return None
    if options.brokers is not None:
        raise InvalidSetting("--console and --brokers cannot be combined: run `leadline console` beside the brokers")
    return ConsoleOptions(options.console, options.console_allow_changes, options.console_config)


def _run(runner: asyncio.Runner, settings: BrokerSettings, selector: TimedSelector, options: StartOptions) -> int:
    """Errors about a port or directory in use get the name of the process that uses it."""
    try:
        return runner.run(_run_with_log(settings, selector, options))
    except LogDirLocked as error:
        holders = {holder_of(Path(path)) for path in settings.storage.log_dirs} - {None}
        raise LogDirLocked(f"{error}{_holders_text(holders)}") from None
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise OSError(error.errno, f"{error.strerror}: this machine does not have that address") from None
        if error.errno != errno.EADDRINUSE:
            raise
        ports, option = [listener.port for listener in settings.listeners.bound], "--port"
        if options.metrics is not None and METRICS_PORT in (error.strerror or ""):
            ports, option = [options.metrics.port], "--metrics"
        holders = {listener_on(port) for port in ports} - {None}
        raise OSError(
            error.errno,
            f"{error.strerror}{_holders_text(holders)}. Stop that process, or choose another port with {option}",
        ) from None


def _holders_text(holders: "set[int | None]") -> str:
    return "".join(f", by {process_text(pid)}" for pid in holders if pid is not None)


def _properties(options: argparse.Namespace) -> dict[str, str]:
    properties: dict[str, str] = {}
    if options.properties is not None:
        properties |= decode_properties(options.properties.read_bytes())
    for pair in options.set:
        key, _, value = pair.partition("=")
        if "=" not in pair or not key.strip():
            raise InvalidSetting(f"--set {pair}: expected KEY=VALUE")
        properties[key.strip()] = value
    properties.setdefault("listeners", DEFAULT_LISTENERS)
    return properties if options.port is None else with_port(properties, options.port)


def _arguments(options: argparse.Namespace) -> list[str]:
    """The arguments of each of several brokers. --port is part of the derived settings."""
    file = [] if options.properties is None else [str(options.properties)]
    settings = [part for pair in options.set for part in ("--set", pair)]
    return [*file, *settings, *(("--log-format", options.log_format) if options.log_format != TEXT else ())]


def _check_directories(log_dirs: Sequence[str]) -> None:
    """One broker on the directories of several would start without their logs."""
    for path in log_dirs:
        if ids := brokers_in(path):
            raise InvalidSetting(
                f"log.dirs={path}: holds the logs of {count_text(len(ids), 'broker')}, in folders such as "
                f"{folder_of(ids[0])}: start them with --brokers, or set log.dirs to one of these folders"
            )


_PORT = re.compile(r":(\d+)\s*$")


def with_port(properties: Mapping[str, str], port: int) -> dict[str, str]:
    """Change the port of the only listener, and of its advertised listener if that has the same port."""
    listeners = properties["listeners"]
    if "," in listeners:
        raise InvalidSetting(
            f"--port {port}: listeners={listeners} has several listeners; set their ports with --set listeners=..."
        )
    changed = {**properties, "listeners": _PORT.sub(f":{port}", listeners)}
    advertised, before = properties.get("advertised.listeners", ""), _PORT.search(listeners)
    if (
        before is not None
        and (port_advertised := _PORT.search(advertised)) is not None
        and port_advertised[1] == before[1]
    ):
        changed["advertised.listeners"] = _PORT.sub(f":{port}", advertised)
    return changed


async def _run_with_log(settings: BrokerSettings, selector: TimedSelector, options: StartOptions) -> int:
    lines = CondensedLines(options.log_format)
    logging.basicConfig(level=logging.INFO, handlers=[lines], force=True)
    condensing = asyncio.create_task(_condense(lines))
    try:
        unwritten = await _run_broker(settings, selector, options)
    except StartCancelled:
        print_or_drop("stopped before it was ready; the next start begins again")
        return 0
    finally:
        condensing.cancel()
        lines.end_period()
    if unwritten:
        text = f"leadline: stopped, but not everything is on disk: {unwritten}. The next start recovers"
        print_or_drop(text, sys.stderr)
        return 1
    print_or_drop("stopped; everything is on disk")
    return 0


async def _condense(lines: CondensedLines) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        lines.end_period()


async def _run_broker(settings: BrokerSettings, selector: TimedSelector, options: StartOptions) -> str:
    """Run until a signal or a failure. Why not everything is on disk; empty: everything is.

    StartCancelled if the signal came before it served.
    """
    logging.getLogger("kazoo").setLevel(logging.CRITICAL)  # the broker reports errors itself
    stop, loop, console = asyncio.Event(), asyncio.get_running_loop(), options.console
    for number in ending_signals():
        loop.add_signal_handler(number, _stop_on, number.name, stop)
    if (pipe := parent_pipe(os.environ)) is not None:
        loop.add_reader(pipe, _stop_without_parent, pipe, stop)
    manager = NotifySender(os.environ)
    if settings.ignored:
        logging.warning("settings without effect: %s", "; ".join(settings.ignored))
    raise_descriptor_limit()
    broker = Broker(settings, Ports(environment=os.environ))
    started = time.monotonic()
    with _served_metrics(broker, selector, options.metrics) as metrics:
        await _start(broker, manager, stop)
        gc.freeze()  # long-lived objects: the garbage collector skips them from now on
        print_or_drop(_ready_text(broker, time.monotonic() - started, metrics))
        await _run_until_stopped(broker, selector, manager, stop, console)
    if broker.failed.is_set():
        raise LogDirFailed(",".join(broker.dirs.offline), "running", OSError("no log directory is left"))
    return "; ".join(broker.dirs.not_closed.values())


@contextmanager
def _served_metrics(
    broker: Broker, selector: TimedSelector, address: MetricsAddress | None
) -> Iterator[MetricsAddress | None]:
    """Serves metrics from before the start until after the stop, so that the state can be seen. Yields the address."""
    if address is None:
        yield None
        return
    from leadline.metrics.metrics_server import MetricsServer  # imported only if it is used
    from leadline.metrics.scrape import BrokerMetrics
    from leadline.metrics.sources import metrics_sources

    server = MetricsServer(BrokerMetrics(metrics_sources(broker, selector)), broker.ports.network)
    host, port = server.listen(*address)
    server.start()
    try:
        yield MetricsAddress(host, port)
    finally:
        server.stop()


async def _run_until_stopped(
    broker: Broker,
    selector: TimedSelector,
    manager: NotifySender,
    stop: asyncio.Event,
    console: ConsoleOptions | None,
) -> None:
    loop = asyncio.get_running_loop()
    manager.notify("READY=1", f"STATUS=serves {count_text(len(broker.dirs.logs), 'partition')}")
    loop.add_signal_handler(signal.SIGUSR1, _log_loop_statistics, broker, selector)
    console_process = None if console is None else ConsoleProcess(console)
    if console_process is not None:
        await console_process.start(broker.settings.listeners, broker.advertised)
    ends = [asyncio.create_task(stop.wait()), asyncio.create_task(broker.failed.wait())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    manager.notify("STOPPING=1", "STATUS=stopping")
    _log_loop_statistics(broker, selector)
    if console_process is not None:
        await console_process.stop()
    await broker.stop()


def _stop_on(reason: str, stop: asyncio.Event) -> None:
    """Start a clean stop. A second signal logs how to end the broker at once."""
    if stop.is_set():
        logging.info("%s: the broker is already stopping; SIGKILL ends it at once, and the next start recovers", reason)
    else:
        logging.info("%s: the broker stops", reason)
    stop.set()


def _stop_without_parent(pipe: int, stop: asyncio.Event) -> None:
    asyncio.get_running_loop().remove_reader(pipe)
    _stop_on("the supervisor has ended", stop)


async def _start(broker: Broker, manager: NotifySender, stop: asyncio.Event) -> None:
    """Start the broker. A status line shows the progress; without a terminal, a log line every PROGRESS_S.

    The service manager gets the progress as well, and is asked to wait for the next report. StartCancelled after a
    signal: what was opened is closed again, and recovery goes no further.
    """
    starting = asyncio.create_task(broker.start())
    next_line_s = time.monotonic() + PROGRESS_S
    with StatusLine() as status:
        while not starting.done():
            await asyncio.wait([starting], timeout=0.2)
            if stop.is_set() and starting.cancel():
                await asyncio.wait([starting])
            if text := _progress(broker.dirs.recovery):
                status.show(text)
                if time.monotonic() >= next_line_s:
                    manager.notify(f"STATUS={text}", f"EXTEND_TIMEOUT_USEC={MORE_TIME_S * 1_000_000}")
                    if not sys.stderr.isatty():
                        logging.info("%s", text)
                    next_line_s = time.monotonic() + PROGRESS_S
    if starting.cancelled():
        raise StartCancelled
    await starting


def _progress(recovery: RecoveryProgress) -> str:
    """The progress of loading or recovery; empty once it is done."""
    if recovery.logs_done == recovery.logs:
        return ""
    partitions = f"{recovery.logs_done} of {recovery.logs} partitions"
    if not recovery.bytes_total:
        return f"loading {partitions}"
    done = f"{recovery.bytes_read / recovery.bytes_total:.0%} of {size_text(recovery.bytes_total)}"
    return f"recovering {done}, {partitions}"


def _ready_text(broker: Broker, seconds: float, metrics: MetricsAddress | None) -> str:
    dirs = broker.dirs
    size = sum(log.size for log in dirs.logs.values())
    offline, zookeeper = dirs.offline_logs(), broker.settings.broker.zookeeper_connect
    lines = [f"Leadline {__version__}, ready after {time_text(seconds)} ({walker.DESCRIPTION})"]
    lines += [f"  listens  {name} on {host_text(at.host)}:{at.port}" for name, at in broker.addresses.items()]
    for path, log_dir in dirs.dirs.items():
        lines.append(f"  data     {path} ({_state(log_dir, len(dirs.logs_in(log_dir)))})")
    if zookeeper:
        lines.append(f"  cluster  {zookeeper}, as broker {broker.services.metadata.me.id}")
    lines += [f"  offline  {path}" for path in dirs.offline]
    lines += [f"  offline  {partition.tp}: {partition.error}" for partition in offline[:MAX_OFFLINE_SHOWN]]
    if len(offline) > MAX_OFFLINE_SHOWN:
        lines.append(f"  offline  {count_text(len(offline) - MAX_OFFLINE_SHOWN, 'more partition')}")
    lines += [] if metrics is None else [f"  metrics  {metrics_url(metrics)}"]
    lines.append(f"  holds    {count_text(len(dirs.logs), 'partition')}, {size_text(size)}")
    lines.append(f"  try      leadline topics list {bootstrap_options(broker.settings.listeners, broker.advertised)}")
    return "\n".join(lines)


def bootstrap_options(listeners: Listeners, advertised: Mapping[str, Endpoint]) -> str:
    """The options of a command that connects to an open listener, if there is one."""
    name = open_listener(listeners)
    endpoint = advertised[next(iter(advertised)) if name is None else name]
    return f"--bootstrap-server {endpoint.host}:{endpoint.port}{' --command-config FILE' if name is None else ''}"


def _state(log_dir: LogDir, logs: int) -> str:
    """The state of a log directory when it was opened."""
    if log_dir.was_clean:
        state = "stopped cleanly"
    elif logs or log_dir.has_leftovers:
        state = "recovered"
    else:
        state = "new" if log_dir.is_new else "empty"
    offline = len(log_dir.offline_logs)
    return f"{state}, without {count_text(offline, 'offline partition')}" if offline else state


def _log_loop_statistics(broker: Broker, selector: TimedSelector) -> None:
    """Logs how busy the loop is: on SIGUSR1, and at the end."""
    connections = len(broker.net.connections)
    logging.info(
        "%d connections, %d requests in %d turns of the event loop, the longest turn since the last report took %s",
        connections,
        broker.requests.metrics.requests,
        selector.turns,
        time_text(selector.pop_longest_turn_s()),
    )

"""The parts that all jobs of `leadline pipeline` use: Spark session, checks, errors, status line."""

import argparse
import functools
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.admin.formatting import age_text, size_text
from leadline.admin.formatting import count_text as count_text
from leadline.admin.json_values import Json
from leadline.cli.errors import Run, print_error
from leadline.cli.options import key_value
from leadline.cli.output import is_text, print_result
from leadline.cli.signals import signal_of, terminable
from leadline.cli.terminal import StatusLine
from leadline.errors import CorruptFile, CorruptMessage
from leadline.spark.errors import JobFailed, without_credentials

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFUSED_S = 1.0  # refused connections are retried for this long
LINE_INTERVAL_S = 10.0  # where stderr is not a terminal


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument(
        "--master", default="local[*]", metavar="URL", help="Spark master (default local[*]: this machine)"
    )
    group.add_argument(
        "--conf", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="one Spark setting; repeatable"
    )


def client_properties(options: argparse.Namespace) -> dict[str, str]:
    """The client properties that --bootstrap-server, --command-config and --property set."""
    return dict(ClusterConnection(options).configured_properties)


def check_reachable(properties: Mapping[str, str], timeout_s: float, topics: Collection[str] | None = None) -> None:
    """Check before Spark starts that the cluster answers and has these topics.

    A broker may take `timeout_s` to answer. Refused connections are retried for REFUSED_S only.
    """
    from leadline.spark.client.cluster import ClusterClient, addresses

    servers = list(addresses(properties["bootstrap.servers"]))
    limits = {
        "default.api.timeout.ms": str(int(min(timeout_s, REFUSED_S) * 1000)),
        "request.timeout.ms": str(max(int(timeout_s * 1000 / max(len(servers), 1)), 1)),
    }
    with ClusterClient({**properties, **limits}) as cluster:
        if topics is None:
            cluster.topics()
        else:
            cluster.existing_topics(topics)


MODULES = {  # by the extra of the package that installs them
    "spark": ("deltalake", "numpy", "pyarrow", "pyspark"),
    "iceberg": ("pyiceberg", "pyiceberg_core", "sqlalchemy"),
    "avro": ("fastavro",),
    "protobuf": ("google.protobuf",),
}


def require(extras: Sequence[str]) -> None:
    """Check before anything starts that all modules of these extras are installed."""
    missing = {extra: [module for module in MODULES[extra] if not _is_installed(module)] for extra in extras}
    modules = [module for extra in extras for module in missing[extra]]
    if modules:
        verb = "is" if len(modules) == 1 else "are"
        raise Failure(f"{', '.join(modules)} {verb} not installed: {_install_command(filter(missing.get, extras))}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _install_command(extras: Iterable[str]) -> str:
    return f"pip install 'leadline[{','.join(extras)}]'"


def _extra_with(module: str) -> str:
    package = module.partition(".")[0]
    return next((extra for extra, names in MODULES.items() for name in names if name.split(".")[0] == package), "spark")


def extras_of(options: argparse.Namespace) -> list[str]:
    """The extras that a job needs, by its options."""
    chosen = {vars(options).get("table_format"), (vars(options).get("format") or "").removeprefix("debezium-")}
    return ["spark", *(extra for extra in MODULES if extra in chosen)]


def job(run: Run) -> Run:
    """A job as a command. A missing module, an error of the job or a signal is reported in one line."""

    @functools.wraps(run)
    def guarded(options: argparse.Namespace) -> int:
        try:
            with terminable():
                require(extras_of(options))
                with job_errors():
                    return run(options)
        except KeyboardInterrupt as interrupt:
            print_error(f"stopped by {signal_of(interrupt).name}")
            return 128 + signal_of(interrupt)

    return guarded


@contextmanager
def job_errors() -> Iterator[None]:
    """Turns errors of a job into a Failure with one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        module = error.name or str(error)
        raise Failure(f"{module} is not installed: {_install_command([_extra_with(module)])}") from None
    except (CorruptFile, CorruptMessage, JobFailed) as error:
        raise Failure(without_credentials(" ".join(str(error).split()))) from None
    except Exception as error:
        if (ended := _ended_java(error)) is None:
            raise
        raise Failure(
            f"Spark's Java process {ended}: what was committed stays, and the same command continues"
        ) from None


def _ended_java(error: Exception) -> str | None:
    """How Spark's Java process ended, if that is why this error occurred."""
    if "py4j" not in sys.modules:
        return None
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    from leadline.spark.session import java_end

    return java_end() if isinstance(error, Py4JError | OSError) else None


def start_spark(options: argparse.Namespace, app: str) -> "SparkSession":
    from leadline.spark.session import session

    with StatusLine() as status:
        status.show("starting Spark ...")
        return session(f"leadline {app}", master=options.master, settings=dict(options.conf))


def stop_spark(spark: "SparkSession") -> None:
    """Stops a session. Without its Java process there is nothing to stop, and nothing to warn of."""
    from leadline.spark.session import java_end

    if java_end(wait_s=0) is None:
        spark.stop()


def until_ended(work: Callable[[], None], *, endless: bool = False) -> int:
    """The exit code of a job that a signal may end. After a signal it is 0 for an `endless` job."""
    try:
        work()
    except KeyboardInterrupt as interrupt:
        if sys.stderr.isatty():
            print(file=sys.stderr)  # the terminal wrote ^C there
        return 0 if endless else 128 + signal_of(interrupt)
    return 0


def print_totals(options: argparse.Namespace, totals: Json, text: str) -> None:
    """The last word of a job: a line on stderr for a person, or JSON on stdout."""
    if is_text(options):
        print(text, file=sys.stderr)
    else:
        print_result(options, totals, text)


class ProgressLine:
    """The progress of a job: a status line on a terminal, elsewhere a line every LINE_INTERVAL_S."""

    def __init__(self) -> None:
        self._status = StatusLine()
        self._printed_s = time.monotonic()

    def __enter__(self) -> "ProgressLine":
        return self

    def show(self, text: str) -> None:
        self._status.show(text)
        if not sys.stderr.isatty() and time.monotonic() - self._printed_s >= LINE_INTERVAL_S:
            self._printed_s = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._status.__exit__(kind, error, at)


def lag_text(offsets: int, size: int, newest_ms: int) -> str:
    """The lag in offsets, bytes and time."""
    if not offsets:
        return "no lag"
    age_ms = max(time.time_ns() // 1_000_000 - newest_ms, 0) if newest_ms >= 0 else 0
    return f"lag {offsets:,} offsets, {size_text(size)}, {age_text(age_ms)}"

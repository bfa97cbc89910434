"""What the jobs of `leadline pipeline` share: a session of Spark, errors in one line, a line of progress."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from leadline.cli.client import Connection, Failure, key_value
from leadline.cli.terminal import Status, age_text, size_text
from leadline.cli.terminal import count_text as count_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE_EVERY_S = 10.0  # where nobody looks at a terminal


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Spark")
    group.add_argument("--master", default="local[*]", metavar="URL", help="where it runs (default local[*]: here)")
    group.add_argument("--conf", type=key_value, action="append", default=[], metavar="KEY=VALUE", help="of Spark")


def client_properties(options: argparse.Namespace) -> dict[str, str]:
    """Of the cluster's clients, as --bootstrap-server, --command-config and --property say."""
    return dict(Connection(options).properties)


def soon(options: argparse.Namespace) -> dict[str, str]:
    """Who does not answer within --timeout counts as out of reach."""
    return {"default.api.timeout.ms": str(int(options.timeout * 1000))}


def reach(options: argparse.Namespace, *topics: str) -> None:
    """Before Spark is started for nothing: the cluster answers within --timeout, and has these topics."""
    from leadline.spark.client.cluster import Cluster

    with Cluster(client_properties(options) | soon(options)) as cluster:
        cluster.existing(topics)


EXTRAS = {"pyiceberg": "iceberg", "sqlalchemy": "iceberg", "fastavro": "avro", "google": "protobuf"}


@contextmanager
def explained() -> Iterator[None]:
    """What may go wrong in a job, as one line for a person."""
    try:
        with _explained():
            yield
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(module, "spark")
        raise Failure(f"{module} is not installed: pip install 'leadline[{extra}]'") from None


@contextmanager
def _explained() -> Iterator[None]:
    from leadline.errors import CorruptMessage
    from leadline.spark.client.cluster import Answered, NoSuchTopic
    from leadline.spark.client.connection import Refused, Unreachable
    from leadline.spark.client.transaction import Fenced
    from leadline.spark.java import NoJava
    from leadline.spark.mirror.alike import TooFewPartitions
    from leadline.spark.mirror.mirror import BadMirror
    from leadline.spark.positions import DataLoss
    from leadline.spark.session import NoSession, TaskFailed
    from leadline.spark.table.tables import TableError
    from leadline.spark.topics.options import BadOption
    from leadline.spark.topics.staging import StagingFailed

    try:
        yield
    except (
        Answered,
        BadMirror,
        BadOption,
        CorruptMessage,
        DataLoss,
        Fenced,
        NoJava,
        NoSession,
        NoSuchTopic,
        Refused,
        StagingFailed,
        TableError,
        TaskFailed,
        TooFewPartitions,
        Unreachable,
    ) as error:
        raise Failure(" ".join(str(error).split())) from None


def start_spark(options: argparse.Namespace, app: str) -> "SparkSession":
    from leadline.spark.session import session

    with Status() as status:
        status.show("starting Spark ...")
        return session(f"leadline {app}", master=options.master, settings=dict(options.conf))


def until_ended(work: Callable[[], None], *, would_go_on: bool = False) -> int:
    """The exit code of a job that a person may end with Ctrl-C; of one that would go on for ever, that is its end."""
    try:
        work()
    except KeyboardInterrupt:
        print(file=sys.stderr)  # the terminal wrote ^C there
        return 0 if would_go_on else 130
    return 0


class ProgressLine:
    """How far a job is: in place on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._status = Status()
        self._told_s = time.monotonic()

    def __enter__(self) -> "ProgressLine":
        return self

    def show(self, text: str) -> None:
        self._status.show(text)
        if not sys.stderr.isatty() and time.monotonic() - self._told_s >= LINE_EVERY_S:
            self._told_s = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._status.__exit__(kind, error, at)


def lag_text(offsets: int, size: int, newest_ms: int) -> str:
    """How far behind: in offsets, bytes and seconds."""
    if not offsets:
        return "nothing behind"
    age_ms = max(time.time_ns() // 1_000_000 - newest_ms, 0) if newest_ms >= 0 else 0
    return f"{offsets:,} offsets behind, {size_text(size)}, {age_text(age_ms)}"

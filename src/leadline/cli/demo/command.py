"""leadline demo: shows the pipeline, from an empty directory to a verified table, with a crash on the way.

Each step prints what it does and why, and the command that a person could type. The demo stops all processes that it
started, also when it fails. All files stay in one directory.
"""

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text, size_text, time_text
from leadline.cli import COMMANDS
from leadline.cli.demo.orders import BROKEN, BUSIEST, SHOPS, OrderWriter
from leadline.cli.errors import reports_errors
from leadline.cli.pipeline.job import job
from leadline.cli.processes import processes_of_session
from leadline.cli.terminal import TextStyles

if TYPE_CHECKING:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.table import TableState

T = TypeVar("T")

TOPIC, PARTITIONS = "orders", 6
MARK = ".leadline-demo"  # marks a directory that a demo created and the next demo may delete
STEP_TIMEOUT_S = 300
POLL_S = 0.1

DESCRIPTION = """\
Show the pipeline. The demo starts a broker, writes orders of coffee shops to a topic, streams them into a Delta table,
kills the pipeline with SIGKILL, restarts it, proves that each order is in the table once, and writes a report. It takes
a minute or two and needs only this installation. Everything is kept in one directory."""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "demo",
        help=COMMANDS["demo"].help,
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--dir", type=Path, default=Path("leadline-demo"), help="directory of the demo (default ./leadline-demo)"
    )
    parser.add_argument("--rate", type=int, default=3000, metavar="N", help="orders per second, about (default 3000)")
    parser.set_defaults(run=reports_errors(run))


@job
def run(options: argparse.Namespace) -> int:
    from leadline.spark.java import cache_dir, find

    find(cache_dir())  # raises NoJava before a broker is started
    started = time.monotonic()
    with ExitStack() as cleanup:
        Demo(clear_directory(options.dir), options.rate, cleanup).run()
    print(f"\nThe demo took {time_text(time.monotonic() - started)}; all its processes have ended.")
    return 0


def clear_directory(folder: Path) -> Path:
    """An empty directory. The files of an earlier demo are deleted."""
    if folder.exists():
        if not (folder / MARK).exists():
            raise Failure(f"{folder} already exists and was not made by a demo: choose another directory with --dir")
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    (folder / MARK).touch()
    return folder.absolute()


class Demo:
    def __init__(self, folder: Path, rate: int, cleanup: ExitStack) -> None:
        self.folder, self.rate, self._cleanup = folder, rate, cleanup
        self.table = folder / "orders-table"
        self.paint, self._step = TextStyles(sys.stdout), 0
        self.server = ""

    def run(self) -> None:
        self.start_broker()
        writer = self.write_orders()
        pipeline = self.stream()
        self.crash(pipeline)
        self.resume(writer)
        self.verify()
        self.query_table()
        self.report()

    def _print_step(self, title: str, why: str) -> None:
        self._step += 1
        print(f"\n{self.paint.bold(f'{self._step}. {title}')}\n   {why}", flush=True)

    def _print(self, text: str) -> None:
        print("\n".join(f"   {line}" for line in text.splitlines()), flush=True)

    def _command(self, *arguments: str) -> list[str]:
        """Print a command as a person would type it. Returns it for a subprocess."""
        self._print(self.paint.cyan(self._short_paths(f"$ leadline {shlex.join(arguments)}")))
        return [sys.executable, "-m", "leadline", *arguments]

    def _short_paths(self, text: str) -> str:
        """Paths relative to the parent of the demo's directory."""
        return text.replace(f"{self.folder}{os.sep}", f"{self.folder.name}{os.sep}")

    def start_broker(self) -> None:
        self._print_step(
            "A broker", "One process without a JVM and without ZooKeeper. Kafka clients take it for Apache Kafka 3.8."
        )
        data, started = self.folder / "broker", time.monotonic()
        sets = ["--set", f"log.dirs={data}", "--set", "listeners=PLAINTEXT://localhost:0"]
        log = self.folder / "broker.log"
        broker = self._start([sys.executable, "-m", "leadline", "start", *sets], log)
        address = _wait_for(lambda: re.search(r"on (\S+:\d+)", log.read_text()), broker, log)
        self.server = address.group(1)
        self._print(f"listens on {self.server}, {time_text(time.monotonic() - started)} after it was started")

    def write_orders(self) -> OrderWriter:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        why = f"{len(SHOPS)} coffee shops write orders as JSON to a topic, about {self.rate:,} per second from now on."
        self._print_step(
            "Orders", f"{why}\n   {BUSIEST} is far busier than the others; one order in {BROKEN} is incomplete."
        )
        admin = AdminClient({"bootstrap.servers": self.server, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        producer = Producer({"bootstrap.servers": self.server, "log_level": 0, "linger.ms": 20, "acks": "all"})
        writer = OrderWriter(producer, TOPIC, self.rate)
        self._cleanup.callback(writer.halt)
        self._print(f"topic {TOPIC} with {PARTITIONS} partitions")
        return writer

    def stream(self) -> "subprocess.Popen[bytes]":
        self._print_step(
            "The topic becomes a table", "Spark follows the topic. Files, offsets and the batch number are one commit."
        )
        return self._follow(commits=2)

    def _follow(self, commits: int) -> "subprocess.Popen[bytes]":
        """Start the pipeline and wait for this many commits."""
        log, before = self.folder / "pipeline.log", _batch(self._state())
        arguments = ["pipeline", "table", TOPIC, str(self.table), "--format", "json", "--interval", "1s"]
        pipeline = self._start(self._command(*arguments, "--bootstrap-server", self.server), log)
        started = time.monotonic()
        _wait_for(lambda: _batch(self._state()) >= before + commits, pipeline, log)
        after = f"{time_text(time.monotonic() - started)} after the start of Spark"
        self._print(f"{count_text(commits, 'commit')}, {after}: {self._table_text()}")
        return pipeline

    def crash(self, pipeline: "subprocess.Popen[bytes]") -> None:
        self._print_step(
            "kill -9",
            "The pipeline is killed when a batch has written files and not committed them. New orders still arrive.",
        )
        _wait_for(lambda: self._uncommitted_files() > 0, pipeline, self.folder / "pipeline.log")
        _kill(pipeline)
        left = self._uncommitted_files()
        files, them = count_text(left, "file"), "it" if left == 1 else "them"
        self._print(f"{files} without a commit: readers do not see {them}, and `table vacuum` deletes {them}")
        self._print(f"the table is at batch {_batch(self._state())}: {self._table_text()}")

    def resume(self, writer: OrderWriter) -> None:
        self._print_step("The same command again", "It reads its position from the table and continues there.")
        pipeline = self._follow(commits=1)
        written = writer.stop()
        self._print(f"the shops close: {written:,} orders in total, all acknowledged")
        _wait_for(self._caught_up, pipeline, self.folder / "pipeline.log")
        os.kill(pipeline.pid, signal.SIGINT)
        pipeline.wait(STEP_TIMEOUT_S)
        self._print(f"caught up at batch {_batch(self._state())}: {self._table_text()}")

    def verify(self) -> None:
        self._print_step(
            "Is each order in the table once?", "Topic and table are compared offset by offset, and by checksum."
        )
        self._run("pipeline", "verify", str(self.table), "--bootstrap-server", self.server)

    def query_table(self) -> None:
        import pyarrow.compute as pc
        from deltalake import DeltaTable

        self._print_step(
            "Query the table", "It is an ordinary Delta table. This query uses deltalake and pyarrow, without Spark."
        )
        rows = DeltaTable(self.table).to_pyarrow_table(columns=["shop", "total"])
        by_shop = rows.group_by("shop").aggregate([("total", "sum"), ("total", "count")])
        best = by_shop.sort_by([("total_sum", "descending")])
        for shop in best.slice(0, 3).to_pylist():
            self._print(f"{shop['shop']:<12} {shop['total_count']:>9,} orders  {shop['total_sum']:>14,.2f} EUR")
        self._print(f"{'all':<12} {rows.num_rows:>9,} orders  {pc.sum(rows['total']).as_py():>14,.2f} EUR")

    def report(self) -> None:
        self._print_step("What is in the topic?", "Spark reads the topic once and writes an HTML page.")
        out = self.folder / "report.html"
        self._run("pipeline", "report", TOPIC, "--out", str(out), "--bootstrap-server", self.server)
        print(f"\n{self.paint.bold('Look at')}")
        self._print(f"{out.as_uri()}\n  the plot of the consumer lag shows the crash")
        self._print(f"{self.table}\n  the table; ..._dead_letters has the incomplete orders, each with its error")
        self._print(f"leadline start --set log.dirs={self.folder / 'broker'}\n  starts the broker again with its data")

    def _state(self) -> "TableState | None":
        from leadline.spark.table.table_format import open_table

        return open_table("delta", str(self.table)).state()

    def _uncommitted_files(self) -> int:
        """The number of Parquet files in the directory that no commit contains."""
        from deltalake import DeltaTable

        committed = {Path(uri.removeprefix("file://")).name for uri in DeltaTable(self.table).file_uris()}
        return len({file.name for file in self.table.rglob("*.parquet")} - committed)

    def _table_text(self) -> str:
        state = self._state()
        done = sum(state.progress.offsets.values()) if state is not None else 0
        size = sum(file.stat().st_size for file in self.table.rglob("*.parquet"))
        return f"{done:,} orders of {self._end_offset():,}, {size_text(size)} of Parquet"

    def _end_offset(self) -> int:
        return sum(self._latest().values())

    def _latest(self) -> Mapping[int, int]:
        with self._cluster() as cluster:
            partitions = cluster.existing_topics([TOPIC])[TOPIC].partitions
            return {tp.partition: end for tp, end in cluster.latest(partitions, committed=True).items()}

    def _cluster(self) -> "ClusterClient":
        from leadline.spark.client.cluster import ClusterClient

        return ClusterClient({"bootstrap.servers": self.server})

    def _caught_up(self) -> bool:
        state = self._state()
        return state is not None and dict(state.progress.offsets) == dict(self._latest())

    def _start(self, arguments: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        """Start a process in a session of its own. The demo stops it at the end."""
        output = self._cleanup.enter_context(log.open("ab"))
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        self._cleanup.callback(_stop, process)
        return process

    def _run(self, *arguments: str) -> None:
        """Run a command and print its output."""
        log = self.folder / "commands.log"
        with log.open("ab") as errors, _running(self._command(*arguments), errors) as process:
            assert process.stdout is not None
            for line in process.stdout:
                self._print(self._short_paths(line.rstrip()))
        if process.returncode:
            raise Failure(f"the command ended with {process.returncode}: {_tail(log)}")


@contextmanager
def _running(arguments: Sequence[str], errors: IO[bytes]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    )
    try:
        yield process
        process.wait()
    finally:
        _stop(process)


def _stop(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """Stop a process and its children, if it has not ended."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """Kill the whole session of a process: Spark's Java has its own process group in it."""
    for pid in processes_of_session(process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def _batch(state: "TableState | None") -> int:
    return -1 if state is None else state.progress.batch


def _wait_for(condition: Callable[[], T | None], process: "subprocess.Popen[bytes]", log: Path) -> T:
    """The first true result of `condition`. A Failure if the process ends before, or after STEP_TIMEOUT_S."""
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while not (result := condition()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failure(f"this step failed; {log} ends with: {_tail(log)}")
        time.sleep(POLL_S)
    return result


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-3:])

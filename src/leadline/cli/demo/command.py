"""leadline demo: the pipeline at work, from an empty directory to a verified table, with a crash on the way.

Every step says what it does and why, and shows the command that does it: each can be typed by hand. All that is started
here is ended here, however the demo ends; what was made stays in one directory, to look at.
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

from leadline.cli import COMMANDS
from leadline.cli.demo.orders import BROKEN, BUSIEST, SHOPS, OrderWriter
from leadline.cli.errors import Failure, reports_errors
from leadline.cli.formatting import size_text, time_text
from leadline.cli.pipeline.job import count_text, job
from leadline.cli.terminal import Paint

if TYPE_CHECKING:
    from leadline.spark.client.cluster import ClusterClient
    from leadline.spark.table.table import TableState

T = TypeVar("T")

TOPIC, PARTITIONS = "orders", 6
MARK = ".leadline-demo"  # in a directory that a demo made: another one may take its place
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

    find(cache_dir())  # before a broker is started: NoJava if there is none
    started = time.monotonic()
    with ExitStack() as cleanup:
        Demo(clear_directory(options.dir), options.rate, cleanup).run()
    print(f"\nAll of it took {time_text(time.monotonic() - started)}; everything that ran has ended.")
    return 0


def clear_directory(folder: Path) -> Path:
    """An empty directory; what an earlier demo left there goes."""
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
        self.paint, self._step = Paint(sys.stdout), 0
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

    # What is said

    def _print_step(self, title: str, why: str) -> None:
        self._step += 1
        print(f"\n{self.paint.bold(f'{self._step}. {title}')}\n   {why}", flush=True)

    def _print(self, text: str) -> None:
        print("\n".join(f"   {line}" for line in text.splitlines()), flush=True)

    def _command(self, *arguments: str) -> list[str]:
        """Shown as one would type it, with the paths that one sees."""
        self._print(self.paint.cyan(self._short_paths(f"$ leadline {shlex.join(arguments)}")))
        return [sys.executable, "-m", "leadline", *arguments]

    def _short_paths(self, text: str) -> str:
        """With paths as one sees them from where the demo plays."""
        return text.replace(f"{self.folder}{os.sep}", f"{self.folder.name}{os.sep}")

    # The steps

    def start_broker(self) -> None:
        self._print_step(
            "A broker", "One process, no JVM, no ZooKeeper; any Kafka client takes it for Apache Kafka 3.8."
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

        why = f"{len(SHOPS)} coffee shops write orders as JSON to a topic, about {self.rate:,} a second from now on."
        self._print_step(
            "Orders", f"{why}\n   {BUSIEST} is far busier than the others; one order in {BROKEN} is cut off."
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
            "The topic becomes a table", "Spark follows it. Files, offsets and the batch's number are one commit."
        )
        return self._follow(commits=2)

    def _follow(self, commits: int) -> "subprocess.Popen[bytes]":
        """The pipeline, once it has committed so many times."""
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
            "kill -9", "As soon as a batch has written files and not committed them. The orders keep coming."
        )
        _wait_for(lambda: self._uncommitted_files() > 0, pipeline, self.folder / "pipeline.log")
        _kill(pipeline)
        files = count_text(self._uncommitted_files(), "file")
        self._print(f"it left {files} of a batch that never was: no reader sees that, and `table vacuum` deletes it")
        self._print(f"the table stands at batch {_batch(self._state())}: {self._table_text()}")

    def resume(self, writer: OrderWriter) -> None:
        self._print_step(
            "The same command again", "It asks the table how far it has come, and takes the orders from there."
        )
        pipeline = self._follow(commits=1)
        written = writer.stop()
        self._print(f"the shops close: {written:,} orders in all, each of them acknowledged")
        _wait_for(self._caught_up, pipeline, self.folder / "pipeline.log")
        os.kill(pipeline.pid, signal.SIGINT)
        pipeline.wait(STEP_TIMEOUT_S)
        self._print(f"caught up at batch {_batch(self._state())}: {self._table_text()}")

    def verify(self) -> None:
        self._print_step("Is each order there once?", "Topic and table are compared offset by offset, and by checksum.")
        self._run("pipeline", "verify", str(self.table), "--bootstrap-server", self.server)

    def query_table(self) -> None:
        import pyarrow.compute as pc
        from deltalake import DeltaTable

        self._print_step(
            "Ask the table", "It is an ordinary Delta table: here with deltalake and pyarrow, without Spark."
        )
        rows = DeltaTable(self.table).to_pyarrow_table(columns=["shop", "total"])
        by_shop = rows.group_by("shop").aggregate([("total", "sum"), ("total", "count")])
        best = by_shop.sort_by([("total_sum", "descending")])
        for shop in best.slice(0, 3).to_pylist():
            self._print(f"{shop['shop']:<12} {shop['total_count']:>9,} orders  {shop['total_sum']:>14,.2f} EUR")
        self._print(f"{'all':<12} {rows.num_rows:>9,} orders  {pc.sum(rows['total']).as_py():>14,.2f} EUR")

    def report(self) -> None:
        self._print_step("What is in the topic?", "One pass of Spark over its batches, and a page to look at.")
        out = self.folder / "report.html"
        self._run("pipeline", "report", TOPIC, "--out", str(out), "--bootstrap-server", self.server)
        print(f"\n{self.paint.bold('Look at')}")
        self._print(
            f"{out.as_uri()}\n  under Consumer lag one sees the kill: it rises, and falls when the pipeline is back"
        )
        self._print(f"{self.table}\n  the table; beside it ..._dead_letters: the orders that were cut off, and why")
        self._print(
            f"leadline start --set log.dirs={self.folder / 'broker'}\n  the broker again, with all that is in it"
        )

    # What the table says

    def _state(self) -> "TableState | None":
        from leadline.spark.table.table_format import open_table

        return open_table("delta", str(self.table)).state()

    def _uncommitted_files(self) -> int:
        """That were written for the table, and are no part of it."""
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

    # Processes

    def _start(self, arguments: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        """In a session of its own, which ends with the demo."""
        output = self._cleanup.enter_context(log.open("ab"))
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        self._cleanup.callback(_stop, process)
        return process

    def _run(self, *arguments: str) -> None:
        """What it prints is shown."""
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
    """With all that it started, if it has not ended by itself."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            _kill(process)


def _kill(process: "subprocess.Popen[bytes] | subprocess.Popen[str]") -> None:
    """With its whole session, in which Spark's Java has a group of its own."""
    for pid in [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]:
        with suppress(ProcessLookupError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _batch(state: "TableState | None") -> int:
    return -1 if state is None else state.progress.batch


def _wait_for(condition: Callable[[], T | None], process: "subprocess.Popen[bytes]", log: Path) -> T:
    """What comes of it, once it is something. Failure if the process ends before, or time does."""
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while not (result := condition()):
        if process.poll() is not None or time.monotonic() > deadline:
            raise Failure(f"this step failed; {log} ends with: {_tail(log)}")
        time.sleep(POLL_S)
    return result


def _tail(log: Path) -> str:
    return " / ".join(log.read_text(errors="replace").splitlines()[-3:])

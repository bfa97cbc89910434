"""The SparkSession of all jobs and tests.

Times are UTC. Tasks run in the interpreter that spark.pyspark.python or PYSPARK_PYTHON names, such as one of
spark.archives; else in the interpreter of this process. The Java process and its workers write stderr to a file; if
Spark does not start, the error shows the last lines of the file.
"""

import hashlib
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from leadline.spark import java
from leadline.spark.errors import JobFailed
from leadline.spark.gateway import JavaExited, java_gateway

T = TypeVar("T")
R = TypeVar("R")

TRIES = 4  # of a task
JAVA_END_S = 5.0
LOG_LINES = 5  # of Java's log, in an error

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}
CONNECT = "sc://"
LOCAL_ONLY = ("spark.driver.host", "spark.driver.bindAddress")  # executors on other machines must reach the driver


class NoSession(JobFailed):
    """Spark did not start. The text gives the reason in one line."""


def session(
    app: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    java_options: str = "",
    cache: Path | None = None,
) -> SparkSession:
    """The session of this process. An existing session is returned unchanged."""
    if master.startswith(CONNECT):
        raise NoSession(
            f"{master} is Spark Connect, which has no SparkContext for the tasks of this job: --master names a cluster "
            'itself, such as spark://, yarn or k8s://. format("leadline") works with Spark Connect'
        )
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    configs = SETTINGS | dict(settings or {})
    if not master.startswith("local"):
        configs = {name: value for name, value in configs.items() if name not in LOCAL_ONLY or name in (settings or {})}
    conf = SparkConf(loadDefaults=False).setMaster(with_retries(master)).setAppName(app)
    for name, value in configs.items():
        conf.set(name, value)
    _launch(conf, java_options, java.cache_dir() if cache is None else cache)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def with_retries(master: str) -> str:
    """A local master with retries: a task whose process died is retried, as on a cluster."""
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TRIES}]", master)


def _launch(conf: SparkConf, options: str, cache: Path) -> None:
    """Starts the Java process and a context in it. If that fails with an archive, tries again without one."""
    cache = _usable(cache)
    found_java = java.find(cache)
    os.environ["PYSPARK_PYTHON"] = task_interpreter(conf.get("spark.pyspark.python"), os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if "SPARK_HOME" not in os.environ and conf.get("spark.master", "").startswith("local"):
        os.environ["SPARK_HOME"] = str(home_without_zips(cache))
    archive = java.archive_options(found_java, cache)
    with _java_home(found_java.home):
        try:
            _context(conf, [shlex.join(archive), options])
        except NoSession:
            if not archive:
                raise
            java.drop_archives(found_java, cache)
            _context(conf, [options])


def task_interpreter(setting: str | None, environment: Mapping[str, str]) -> str:
    """The interpreter of tasks. `setting`: spark.pyspark.python."""
    return setting or environment.get("PYSPARK_PYTHON") or sys.executable


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """Sets JAVA_HOME for the launcher. Other processes find Java by themselves."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = before


def home_without_zips(cache: Path) -> Path:
    """A SPARK_HOME without pyspark.zip. Python processes then import the installed pyspark.

    From the zip, each process would compile pyspark again, which takes a second of CPU. On a cluster the zip is needed:
    Spark sends it to the executors.
    """
    installed = Path(java.spark_home())
    home = cache / f"home-{hashlib.sha256(str(installed).encode()).hexdigest()[:16]}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            new = Path(scratch, "home")
            new.mkdir()
            for part in ("bin", "jars", "sbin"):
                (new / part).symlink_to(installed / part)
            with suppress(OSError):  # another process was quicker
                new.rename(home)
    return home


def _usable(cache: Path) -> Path:
    """The cache, or a temporary directory if the user has no home directory."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
    except OSError:
        cache = Path(tempfile.gettempdir()) / f"leadline-{os.getuid()}"
        cache.mkdir(exist_ok=True)
    return cache


def _context(conf: SparkConf, java_options: list[str]) -> None:
    conf.set("spark.driver.extraJavaOptions", " ".join(filter(None, java_options)))
    with tempfile.NamedTemporaryFile(prefix="leadline-spark-", suffix=".log") as log:
        try:
            with java_gateway(conf, log) as gateway:
                SparkContext(conf=conf, gateway=gateway)
        except JavaExited:
            raise NoSession(f"Spark did not start: {_last_lines(Path(log.name))}") from None


def _last_lines(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-LOG_LINES:]) or "Java ended without a message"


def java_end(wait_s: float = JAVA_END_S) -> str | None:
    """How the Java process ended. None: it runs, or another program started it.

    A connection breaks a moment before the process has ended.
    """
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = int(process.wait(wait_s))
    except subprocess.TimeoutExpired:
        return None
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


class TaskFailed(JobFailed):
    """A task of a job failed in every try. The text is one line."""


def run_tasks(spark: SparkSession, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Runs `work` on each item in a Spark task. Returns the results in order."""
    try:
        results: list[R] = spark.sparkContext.parallelize(tasks, max(len(tasks), 1)).map(work).collect()
    except (Py4JJavaError, PySparkException) as error:
        raise TaskFailed(f"a task failed: {_cause(str(error))}") from error
    except UnboundLocalError as error:  # pyspark raises it if it cannot connect to the process with the results
        raise TaskFailed(f"Spark did not return the results of the tasks: {_cause(str(error.__context__))}") from error
    return results


def _cause(text: str) -> str:
    """The line of a long error that names the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Failed|Interrupt)\b", line)]
    java = [line for line in lines if line.startswith("Caused by:")]
    return (python or java or lines or ["no reason"])[-1]

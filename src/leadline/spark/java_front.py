"""The program that Spark's launcher runs as `java`. It adapts the arguments and runs the real Java.

Usage: `python java_front.py JAVA ARGUMENTS`.
    --add-modules omits a module that this Java lacks
    the class path names every file once: Java 21 refuses a class-data archive if a file is named twice
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

OPTIONAL = "--add-modules=jdk.incubator.vector"


def adapted(arguments: Sequence[str], files_in: Callable[[str], list[str]], has_optional: bool) -> list[str]:
    adapted_arguments = [argument for argument in arguments if has_optional or argument != OPTIONAL]
    if "-cp" in adapted_arguments[:-1]:
        at = adapted_arguments.index("-cp") + 1  # the class path follows
        adapted_arguments[at] = os.pathsep.join(_class_path(adapted_arguments[at].split(os.pathsep), files_in))
    return adapted_arguments


def _class_path(entries: Sequence[str], files_in: Callable[[str], list[str]]) -> list[str]:
    files = [file for entry in entries for file in (files_in(entry[:-1]) if entry.endswith("/*") else [entry])]
    return list(dict.fromkeys(files))


def jars_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.jar"))


def has_module(java: str) -> bool:
    """Whether this Java has the optional module: from its `release` file, or from its own list if it has no file."""
    release = Path(java).resolve().parent.parent / "release"
    if release.exists():
        return "jdk.incubator.vector" in release.read_text()
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.incubator.vector" in listed.stdout


if __name__ == "__main__":
    _, real, *rest = sys.argv
    os.execv(real, [real, *adapted(rest, jars_in, OPTIONAL not in rest or has_module(real))])

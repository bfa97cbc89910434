"""What Spark's launcher takes for `java`: hands over to the real one, with arguments that it can do more with.

Run as `python java_front.py JAVA ARGUMENTS`.
    a module that is asked for by --add-modules and that this Java lacks is left out
    the class path names every file once: Java 21 takes no class-data archive for one that names a file twice
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

OPTIONAL = "--add-modules=jdk.incubator.vector"


def adapted(arguments: Sequence[str], files_in: Callable[[str], list[str]], has_optional: bool) -> list[str]:
    kept = [argument for argument in arguments if has_optional or argument != OPTIONAL]
    if "-cp" in kept[:-1]:
        at = kept.index("-cp") + 1
        kept[at] = os.pathsep.join(_class_path(kept[at].split(os.pathsep), files_in))
    return kept


def _class_path(entries: Sequence[str], files_in: Callable[[str], list[str]]) -> list[str]:
    files = [file for entry in entries for file in (files_in(entry[:-1]) if entry.endswith("/*") else [entry])]
    return list(dict.fromkeys(files))


def jars_in(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).glob("*.jar"))


def has_module(java: str) -> bool:
    """Told by the file where a Java says what it is made of; by itself where there is none."""
    release = Path(java).resolve().parent.parent / "release"
    if release.exists():
        return "jdk.incubator.vector" in release.read_text()
    listed = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=False)
    return "jdk.incubator.vector" in listed.stdout


if __name__ == "__main__":
    _, real, *rest = sys.argv
    os.execv(real, [real, *adapted(rest, jars_in, OPTIONAL not in rest or has_module(real))])

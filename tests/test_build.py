"""The package as it is built: compiled where there is a compiler, pure Python where there is none."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hatch_build import NotCompiled, compile_walker

ROOT = Path(__file__).resolve().parent.parent
NO_COMPILER = {"CC": "no-such-compiler"}


def built(folder: Path, environment: dict[str, str]) -> tuple[str, list[str]]:
    """The name of the wheel, and the names of the files of `records` in it."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    return wheel.name, [name for name in names if name.startswith("leadline/records/")]


def test_the_wheel_holds_the_compiled_walk_for_all_versions_of_python(tmp_path: Path) -> None:
    try:
        compile_walker(tmp_path)
    except NotCompiled as error:
        pytest.skip(f"needs a C compiler and Python's headers: {error}")
    name, files = built(tmp_path, {})
    assert "-cp311-abi3-linux_" in name
    assert "leadline/records/compiled_walker.abi3.so" in files


def test_without_a_compiler_the_wheel_is_pure(tmp_path: Path) -> None:
    name, files = built(tmp_path, NO_COMPILER)
    assert name.endswith("-py3-none-any.whl")
    assert "leadline/records/python_walker.py" in files
    assert not [file for file in files if file.endswith(".so")]


def test_without_a_compiler_setup_says_so_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "src/leadline/records"
    folder.mkdir(parents=True)
    for source in ("hatch_build.py", "src/leadline/records/compiled_walker.c"):
        (tmp_path / source).write_bytes((ROOT / source).read_bytes())
    command = [sys.executable, str(tmp_path / "hatch_build.py")]
    done = subprocess.run(command, env=os.environ | NO_COMPILER, check=True, capture_output=True, text=True)
    assert done.stderr == "Leadline runs in pure Python, without its compiled part: there is no no-such-compiler\n"

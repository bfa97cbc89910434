"""The package as it is built, with a compiler and without; the container and the service."""

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hatch_build import NotCompiled, compile_walker
from leadline.cli import parse

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


def instructions(name: str) -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with this name, by their order, each on one line."""
    text = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE))
    lines = [line.partition(" ") for line in text.splitlines() if line]
    return [(word, " ".join(rest.split())) for word, _, rest in lines if word == name]


def test_the_container_starts_a_broker_as_a_user_with_options_that_exist_and_can_be_overridden() -> None:
    (entry,) = instructions("ENTRYPOINT")
    command = json.loads(entry[1])  # the form without a shell, so that SIGTERM reaches the broker
    options = parse([*command[1:], "--set", "log.dirs=/disk"])
    assert command[0] == "leadline"
    assert [setting.partition("=")[0] for setting in options.set].count("log.dirs") == 2
    assert instructions("USER") == [("USER", "leadline")]
    assert instructions("VOLUME") == [("VOLUME", "/data")]
    (check,) = instructions("HEALTHCHECK")
    assert "/healthz" in json.loads(check[1].partition(" CMD ")[2])[-1]


def test_the_service_starts_a_broker_with_options_that_exist_and_waits_until_it_is_ready() -> None:
    unit = (ROOT / "ops/systemd/leadline.service").read_text()
    lines = dict(line.split("=", 1) for line in unit.splitlines() if re.match(r"[A-Z]\w+=", line))
    assert parse(shlex.split(lines["ExecStart"])[1:]).metrics is not None
    assert (lines["Type"], lines["TimeoutStartSec"], lines["KillMode"]) == ("notify", "infinity", "mixed")


def test_the_service_of_the_pipeline_runs_the_same_program_with_options_that_exist() -> None:
    programs = set()
    for name in ("leadline", "leadline-pipeline"):
        unit = (ROOT / f"ops/systemd/{name}.service").read_text()
        (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        program, *words = shlex.split(command)
        parse(words)
        programs.add(program)
        assert f"{Path(program).parent}/pip install" in unit  # how the program gets there
    assert len(programs) == 1

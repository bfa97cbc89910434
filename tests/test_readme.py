"""The README and the Makefile: what they show exists."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from leadline.cli import COMMANDS, parse

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
SETUP_S = 300
NAME, SOURCE = "compiled_walker.abi3.so", "src/leadline/records/compiled_walker.c"


def commands() -> list[str]:
    """What one types after $, what an output advises, and what the text names. `...` stands for what is left out."""
    shown = [part for line in README.splitlines() if line.strip().startswith("$ ") for part in line.split("|")]
    advised = re.findall(r"(?:try |Next: |To [^:]*: |^ +)(leadline \S.*)$", README, re.MULTILINE)
    inline = re.findall(r"`(leadline [a-z][^`]*)`", README)
    jobs = [f"leadline pipeline {job} --help" for job in re.findall(r"^\| `([a-z]+)` \|", README, re.MULTILINE)]
    parts = [" ".join(part.split()) for part in (*shown, *advised, *inline, *jobs)]
    calls = [match[0] for part in parts if (match := re.search(r"leadline [a-z].*", part))]
    return sorted({call.removesuffix("&").removesuffix("...").strip() for call in calls})


def test_the_readme_shows_commands() -> None:
    assert len(commands()) > 20


@pytest.mark.parametrize("command", commands())
def test_each_command_that_the_readme_shows_exists_with_its_options(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = shlex.split(command)[1:]
    if words[0] in COMMANDS and len(words) == 1:  # the name of a group of commands
        return
    if "--help" in words:
        with pytest.raises(SystemExit):
            parse(words)
        assert capsys.readouterr().out.startswith("usage: ")
    else:
        parse(words)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)\b(?= |`|\n|$)", README))))
def test_each_target_that_the_readme_shows_exists(target: str) -> None:
    assert re.search(rf"^{target}:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_first_make_says_what_it_is_doing(tmp_path: Path) -> None:
    (tmp_path / "src/leadline/records").mkdir(parents=True)
    for name in ("Makefile", "requirements.lock", "pyproject.toml", "hatch_build.py", SOURCE):
        (tmp_path / name).write_text((ROOT / name).read_text())
    uv = tmp_path / "bin" / "uv"  # installs nothing
    uv.parent.mkdir()
    uv.write_text("#!/bin/sh\n")
    uv.chmod(0o755)
    path = f"{uv.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["make", "setup", f"PYTHON={sys.executable}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=SETUP_S,
        check=True,
    )
    steps, more = done.stderr.splitlines()[:4], done.stderr.splitlines()[4:]
    assert [line[:4] for line in steps] == ["Sett", "1/3 ", "2/3 ", "3/3 "]
    is_compiled = (tmp_path / "src/leadline/records" / NAME).exists()
    assert [line[:32] for line in more] == ([] if is_compiled else ["Leadline runs in pure Python, wi"])
    assert "a minute or more" in done.stderr

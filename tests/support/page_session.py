"""A reader of a page: writes its files, types its commands in a fresh folder, and compares what they print.

Each session has a network namespace of its own, so that the ports are those of the page. Commands have time: the
default of --timeout is COMMAND_S. A command that only looks is repeated until it prints what the page shows: a group, a
follower or a coordinator may need a moment. What still runs at the end is stopped.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.namespaces import Namespaces
from tests.support.pages import Comparison, Output, Printed, Step, WrittenFile, compare, replaced
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]
COMMAND_S = 180.0
RETRY_S = 0.5  # between two looks
HOST = "reader"
_AS_IN_A_TERMINAL = ["env", "--default-signal=INT,QUIT"]  # a job in the background of a script ignores them
_SIGNALS = {"^C": signal.SIGINT, "^\\": signal.SIGQUIT}
_READS_ONLY = re.compile(
    r"leadline (?:topics|groups|transactions|configs|acls|quotas|tokens|users) (?:list|describe|blocking|why)\b"
    r"|leadline (?:explain|consume .*--to-end(?!.*--group))\b|curl |ls "
)
_LEADLINE = f"""#!{sys.executable}
import sys

from leadline.cli import options

assert options.TIMEOUT_S
options.TIMEOUT_S = {COMMAND_S}

from leadline.cli import main

sys.exit(main())
"""
_MAKE = f"""#!/bin/sh
exec {shutil.which("make")} -f {ROOT}/Makefile -o .venv/.compiled BIN="$(dirname "$0")" "$@"
"""  # without a set-up: that is there


class Terminal:
    """A command that goes on, and what it has printed."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.process, self._output = process, output
        self.compared = 0  # lines

    def lines(self) -> list[str]:
        return self._output.read_text(errors="replace").splitlines()[self.compared :]

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None


class PageSession:
    def __init__(self, folder: Path, namespaces: Namespaces) -> None:
        self.folder = folder / "page"
        self._namespaces = namespaces
        self._bin, self._outputs = folder / "bin", folder / "outputs"
        for path in (self.folder, self._bin, self._outputs):
            path.mkdir()
        for name, script in (("leadline", _LEADLINE), ("make", _MAKE)):
            (self._bin / name).write_text(script)
            (self._bin / name).chmod(0o755)
        self._terminals: dict[str, Terminal] = {}
        self._started: list[subprocess.Popen[bytes]] = []
        self._replacements: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for process in reversed(self._started):
            for number in (signal.SIGTERM, signal.SIGKILL):  # some have children in groups of their own
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(COMMAND_S)

    def do(self, step: Step) -> None:
        if isinstance(step, WrittenFile):
            (self.folder / step.name).write_text(step.content)
        elif isinstance(step, Printed):
            self._print(step)
        elif step.terminal is not None:
            terminal = self._terminals[step.terminal] = self._start(step.text)
            self._wait_for(terminal, step.output, step.text)
        else:
            self._run(step.text, step.output)

    def _run(self, text: str, output: Output) -> None:
        deadline = time.monotonic() + COMMAND_S
        while True:
            terminal = self._start(text)
            terminal.process.wait(COMMAND_S)
            comparison = compare(output, terminal.lines())
            if comparison.replacements is not None or not _READS_ONLY.match(text) or time.monotonic() > deadline:
                break
            time.sleep(RETRY_S)
        self._note(comparison, text, output, terminal)

    def run(self, command: str) -> list[str]:
        """A command that is not on the page."""
        terminal = self._start(command)
        terminal.process.wait(COMMAND_S)
        return terminal.lines()

    def _print(self, step: Printed) -> None:
        terminal = self._terminals[step.terminal]
        if step.key:
            os.killpg(terminal.process.pid, _SIGNALS[step.key])
            terminal.process.wait(COMMAND_S)
        self._wait_for(terminal, step.output, f"terminal {step.terminal}")

    def _start(self, text: str) -> Terminal:
        output = self._outputs / str(len(self._started))
        path = os.pathsep.join([str(self._bin), str(Path(sys.executable).parent), os.environ["PATH"]])
        with output.open("wb") as file, self._namespaces.inside(HOST):
            process = subprocess.Popen(
                [*_AS_IN_A_TERMINAL, "bash", "-c", replaced(text, self._replacements.items())],
                cwd=self.folder,
                env={**_environment(), "PATH": path},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._started.append(process)
        return Terminal(process, output)

    def _wait_for(self, terminal: Terminal, output: Output, what: str) -> None:
        """Until the terminal has printed all that the page shows."""

        def is_complete() -> bool:
            return compare(output, terminal.lines(), to_the_end=False).replacements is not None or terminal.ended

        until(is_complete, lambda: _difference(what, output, terminal.lines()), COMMAND_S)
        self._note(compare(output, terminal.lines(), to_the_end=False), what, output, terminal)

    def _note(self, comparison: Comparison, what: str, output: Output, terminal: Terminal) -> None:
        assert comparison.replacements is not None, _difference(what, output, terminal.lines())
        terminal.compared += comparison.end
        self._replacements.update(comparison.replacements)


def _difference(what: str, output: Output, printed: list[str]) -> str:
    return "\n".join([f"$ {what}", "--- the page shows", *output.lines, "--- it prints", *printed])


def _environment() -> dict[str, str]:
    """Without what `make test` hands on to a make of its own, such as its ARGS."""
    return {
        name: value for name, value in os.environ.items() if name not in ("ARGS", "MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    }

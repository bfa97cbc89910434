"""Runs many commands of `leadline` for the price of one start: each is a fork of a process that has imported all.

As a program: on stdin, a JSON list of what each call gets on its own stdin and of the calls, each a list of words; on
stdout, a JSON list of [exit code, stdout, stderr, seconds].
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

AT_ONCE = 16
ATTEMPTS = 3
LIMIT_S = 300  # for all: more than enough on a busy machine, and the sign of a command that hangs
MODULES = ("confluent_kafka.admin", "kafka", "kafka.admin", "leadline.wire.messages")


class ForkedResult(NamedTuple):
    code: int
    out: str
    err: str
    took_s: float  # without the start of Python and the imports


def run_in_time(calls: Sequence[Sequence[str]], limit_s: float, stdin: str = "") -> list[ForkedResult]:
    """As `run_forked`. Those that took longer than the limit are run again, one by one, and the quickest run counts.

    A busy machine delays a command now and then. A command that does not keep its own time limit is late every time.
    """
    results = run_forked(calls, stdin)
    for _ in range(ATTEMPTS - 1):
        for number, result in enumerate(results):
            if result.took_s > limit_s:
                (again,) = run_forked([calls[number]], stdin)
                results[number] = min(result, again, key=_duration)
    return results


def run_forked(calls: Sequence[Sequence[str]], stdin: str = "") -> list[ForkedResult]:
    """TimeoutExpired if one hangs. All are killed then, since they are in a process group of their own."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
    ) as process:
        try:
            out, _ = process.communicate(json.dumps([stdin, *map(list, calls)]).encode(), LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    return [ForkedResult(*result) for result in json.loads(out)]


def _duration(result: ForkedResult) -> float:
    return result.took_s


def _fork(words: list[str], folder: str, number: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        for name, fd in (("out", 1), ("err", 2)):
            os.dup2(os.open(os.path.join(folder, f"{number}.{name}"), os.O_WRONLY | os.O_CREAT), fd)
        os.dup2(os.open(os.path.join(folder, "in"), os.O_RDONLY), 0)
        from leadline.cli import main

        try:
            code = main(words)
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _main() -> None:
    stdin, *calls = json.load(sys.stdin)
    for module in (*MODULES, *(command.module for command in import_module("leadline.cli").COMMANDS.values())):
        if "pipeline" not in module and "demo" not in module:
            import_module(module)
    codes: dict[int, int] = {}
    seconds: dict[int, float] = {}
    running: dict[int, int] = {}
    waiting = list(enumerate(calls))
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "in"), "w") as file:
            file.write(stdin)
        while waiting or running:
            while waiting and len(running) < AT_ONCE:
                number, words = waiting.pop(0)
                seconds[number] = -time.monotonic()
                running[_fork(words, folder, number)] = number
            pid, status = os.wait()
            number = running.pop(pid)
            codes[number] = os.waitstatus_to_exitcode(status)
            seconds[number] += time.monotonic()
        results = [[codes[number], *_texts(folder, number), seconds[number]] for number in range(len(calls))]
    json.dump(results, sys.stdout)


def _texts(folder: str, number: int) -> list[str]:
    texts = []
    for name in ("out", "err"):
        with open(os.path.join(folder, f"{number}.{name}"), errors="replace") as file:
            texts.append(file.read())
    return texts


if __name__ == "__main__":
    _main()

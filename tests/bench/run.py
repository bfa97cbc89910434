"""What a benchmark is handed: a folder, how large and how often, and a line to say how far it has come."""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

Step = TypeVar("Step")


class Side(Protocol):
    def wait_until_idle(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Run:
    folder: Path  # empty at first
    quick: bool
    rounds: int
    say: Callable[[str], None]

    def sized(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def each_round(self, what: str) -> Iterator[int]:
        """The rounds, the first of them 0, to warm up: it is measured like the others, and not counted."""
        for n in range(self.rounds + 1):
            self.say(f"{what}: {f'round {n} of {self.rounds}' if n else 'warming up'}")
            yield n


def in_turns(steps: Iterable[Step], sides: Sequence[Side]) -> Iterator[tuple[Step, int]]:
    """Each step on each side, by its number, then the next step; each of them when all sides have come to rest."""
    for step in steps:
        for number in range(len(sides)):
            for side in sides:
                side.wait_until_idle()
            yield step, number


def settle(*folders: Path) -> None:
    """On disk, and in the page cache as a read in order puts it there, however each file was written.

    Then neither writeback nor the disk is part of what is measured next, and no side finds its copy laid out better.
    """
    os.sync()
    buffer = bytearray(1 << 20)
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    while file.readinto(buffer):
                        pass


def anew(source: Path, target: Path) -> None:
    """A fresh copy in the place of what a round left."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


class Progress:
    """One line on a terminal that is written over; otherwise a line for each step."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()

    def __call__(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}" if self._live else f"... {text}\n")
        sys.stderr.flush()

    def clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

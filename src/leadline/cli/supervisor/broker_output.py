"""Where the output of a broker's process goes: into a file, or line by line to the supervisor's own output."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

READ_BYTES = 65_536
MAX_LINE_BYTES = 65_536  # a longer line is passed on in parts
ERROR_PREFIX = "leadline: "


class BrokerOutput(Protocol):
    def open(self) -> int:
        """A descriptor for a new process. The caller closes it."""
        ...

    def close(self) -> None:
        """The process has ended."""
        ...

    def last_line(self) -> str:
        """The reason, if the process could not start. Empty: it wrote nothing."""
        ...


class OutputFile:
    """A file that grows with each process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> int:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def close(self) -> None:
        pass

    def last_line(self) -> str:
        lines = self.path.read_text(errors="replace").splitlines()
        return lines[-1].removeprefix(ERROR_PREFIX) if lines else ""


class PrefixedLines:
    """Each line is passed on with a prefix. The process writes to a pipe, which the event loop reads."""

    def __init__(self, prefix: str, write: Callable[[str], None]) -> None:
        self._prefix, self._write = prefix, write
        self._reading: int | None = None
        self._rest = b""  # the beginning of a line
        self._last_line = ""

    def open(self) -> int:
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._last_line = ""
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        return writing

    def _read(self) -> bool:
        """Whether there may be more."""
        assert self._reading is not None
        try:
            data = os.read(self._reading, READ_BYTES)
        except BlockingIOError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._pass_on(line)
        if not data:
            asyncio.get_running_loop().remove_reader(self._reading)
        return bool(data)

    def _pass_on(self, line: bytes) -> None:
        self._last_line = line.decode(errors="replace").removeprefix(ERROR_PREFIX)
        self._write(f"{self._prefix}{line.decode(errors='replace')}")

    def close(self) -> None:
        if self._reading is None:
            return
        while self._read():
            pass
        if self._rest:
            self._pass_on(self._rest)
        asyncio.get_running_loop().remove_reader(self._reading)
        with suppress(OSError):
            os.close(self._reading)
        self._reading, self._rest = None, b""

    def last_line(self) -> str:
        return self._last_line

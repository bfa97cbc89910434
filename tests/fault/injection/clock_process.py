"""A broker whose wall clock can jump: `python -m tests.fault.injection.clock_process FILE start ...`.

It is `leadline start` with one port replaced: its time is that of the machine plus the milliseconds in FILE: eight
bytes, little-endian. A time namespace does not serve: it moves the monotonic clocks only. Nor does strace: reading the
clock is no system call. The clock of the machine belongs to everybody on it. So the clock of an Apache broker cannot
jump; nor do the times of log lines, which do not come from the port.
"""

import mmap
import sys
from functools import partial
from pathlib import Path

from leadline.broker.ports import Ports
from leadline.cli import main
from leadline.cli.start import command
from leadline.runtime.ports import SystemTime

SIZE = 8


class JumpingTime(SystemTime):
    def __init__(self, offset: Path) -> None:
        with offset.open("rb") as file:
            self._offset = mmap.mmap(file.fileno(), SIZE, prot=mmap.PROT_READ)

    def now_ms(self) -> int:
        return super().now_ms() + int.from_bytes(self._offset[:SIZE], "little", signed=True)


def set_offset(file: Path, milliseconds: int) -> None:
    """In place: the broker has mapped it."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(milliseconds.to_bytes(SIZE, "little", signed=True))


if __name__ == "__main__":
    time = JumpingTime(Path(sys.argv.pop(1)))
    command.Ports = partial(Ports, time=time)  # type: ignore[attr-defined, assignment]
    sys.exit(main())

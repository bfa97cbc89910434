"""What Linux reports of this process: CPU time, memory, descriptors, bytes read and written."""

import os
from typing import NamedTuple

STAT, BOOT, IO, DESCRIPTORS = "/proc/self/stat", "/proc/stat", "/proc/self/io", "/proc/self/fd"
_AFTER_NAME = 3  # the number of the first field after the name of the process; see proc(5)
_UTIME, _STIME, _STARTTIME, _VSIZE, _RSS = (number - _AFTER_NAME for number in (14, 15, 22, 23, 24))


class ProcessStatistics(NamedTuple):
    cpu_s: float
    virtual_bytes: int
    resident_bytes: int
    started_s: float  # since 1970
    open_descriptors: int
    read_bytes: int  # from disks
    written_bytes: int


def process_statistics() -> ProcessStatistics | None:
    """None: the system does not report them."""
    try:
        fields = _text(STAT).rpartition(")")[2].split()
        boot_s = next(int(line.split()[1]) for line in _text(BOOT).splitlines() if line.startswith("btime"))
        disk = dict(line.split(": ") for line in _text(IO).splitlines())
        ticks = os.sysconf("SC_CLK_TCK")
        return ProcessStatistics(
            (int(fields[_UTIME]) + int(fields[_STIME])) / ticks,
            int(fields[_VSIZE]),
            int(fields[_RSS]) * os.sysconf("SC_PAGE_SIZE"),
            boot_s + int(fields[_STARTTIME]) / ticks,
            len(os.listdir(DESCRIPTORS)),
            int(disk["read_bytes"]),
            int(disk["write_bytes"]),
        )
    except (OSError, ValueError, IndexError, KeyError, StopIteration):
        return None


def _text(path: str) -> str:
    with open(path) as file:
        return file.read()

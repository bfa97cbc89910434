"""Processes of this machine: the one that listens on a port, the one that locks a log directory, and their commands.

They are found in /proc, and locks through fcntl. Processes of other users may be hidden. Then the result is None.
"""

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from leadline.log.names import LOCK_FILE

PROC = Path("/proc")
LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp
COMMAND_SHOWN = 100
_FLOCK = "hhqqi"  # struct flock: type, whence, start, length, pid


def listener_on(port: int) -> int | None:
    """The process that listens on a TCP port."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for pid in _pids() if sockets else ():
        with contextlib.suppress(OSError):
            if any(_target(link) in sockets for link in (PROC / str(pid) / "fd").iterdir()):
                return pid
    return None


def _target(link: Path) -> str | None:
    """The target of a link; None if the descriptor was closed meanwhile."""
    try:
        return os.readlink(link)
    except OSError:
        return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / table).read_text().splitlines()[1:]:
                columns = line.split()
                if columns[3] == LISTENS and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit())


def holder_of(log_dir: Path) -> int | None:
    """The process whose broker has this log directory open."""
    try:
        with (log_dir / LOCK_FILE).open("r+b") as file:
            query = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack(
                _FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, query)[: struct.calcsize(_FLOCK)]
            )
    except OSError:
        return None
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def process_text(pid: int) -> str:
    """A process with its command: pid 4711 (leadline start server.properties)."""
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return f"pid {pid}"
    words[0] = os.path.basename(words[0])
    command = " ".join(words)
    return f"pid {pid} ({command[:COMMAND_SHOWN]}{'...' if len(command) > COMMAND_SHOWN else ''})"

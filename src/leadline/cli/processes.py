"""Processes of this machine: the one that listens on a port, the one that locks a log directory, and their commands.

They are found in /proc, and locks through fcntl. Processes of other users may be hidden; some systems have no /proc.
Then the result is None.
"""

import contextlib
import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from leadline.log.names import LOCK_FILE

PROC = Path("/proc")
LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp
COMMAND_SHOWN = 100
_FLOCK = {"linux": "hhqqi", "darwin": "qqihh"}.get(sys.platform)  # struct flock; None: its layout is not known
_TYPE, _PID = (0, 4) if _FLOCK == "hhqqi" else (3, 2)


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


def processes_of_session(leader: int) -> Iterator[int]:
    """The processes of a session, by the one that began it."""
    try:
        pids = list(_pids())
    except OSError:
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True)
        pids = [int(pid) for pid in listed.stdout.split()]
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if os.getsid(pid) == leader:
                yield pid


def holder_of(log_dir: Path) -> int | None:
    """The process whose broker has this log directory open."""
    if _FLOCK is None:
        return None
    query = [0] * 5
    query[_TYPE] = fcntl.F_WRLCK
    try:
        with (log_dir / LOCK_FILE).open("r+b") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(_FLOCK, *query))
    except OSError:
        return None
    fields: tuple[int, ...] = struct.unpack(_FLOCK, answer[: struct.calcsize(_FLOCK)])
    kind, pid = fields[_TYPE], fields[_PID]
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

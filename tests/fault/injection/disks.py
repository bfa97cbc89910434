"""Disks that are full, read-only, broken, slow, or cannot sync.

Leadline waits for room on a full disk. On a disk that fails its last directory is offline, and it ends, as Kafka does.
"""

import signal
import subprocess
from pathlib import Path

from tests.fault.injection.injected_fault import InjectedFault
from tests.support.namespaced_cluster import host_of
from tests.support.waiting import until

SYNC_CALLS = "fsync,fdatasync"
SLOW_MS = (50, 1000)


class _DiskFault(InjectedFault):
    needs_disks = True

    def heal(self) -> None:
        """The disk is checked, and the broker recovers from what is on it."""
        self.cluster.kill(self.broker)
        self.cluster.disks[host_of(self.broker)].repair()
        self.cluster.start(self.broker)


class DiskFull(_DiskFault):
    name, what = "full", "the disk of a broker is full, then has room again"

    def inject(self) -> str:
        self.cluster.disks[host_of(self.broker)].fill()
        return f"the disk of broker {self.broker} is full"

    def heal(self) -> None:
        self.cluster.disks[host_of(self.broker)].free()
        self.cluster.start_again(self.broker)


class ReadOnly(_DiskFault):
    name, what = "read-only", "the disk of a broker becomes read-only, and is checked"
    may_end_broker = True

    def inject(self) -> str:
        self.cluster.disks[host_of(self.broker)].make_read_only()
        return f"the disk of broker {self.broker} is read-only"


class DiskFails(_DiskFault):
    name, what = "eio", "each access to the disk of a broker fails with EIO; what was not synced is lost"
    may_end_broker = True
    needs_flush = True

    def inject(self) -> str:
        self.cluster.disks[host_of(self.broker)].fail()
        return f"the disk of broker {self.broker} fails"


class _TracedSync(InjectedFault):
    """strace changes what its system calls do, while they run."""

    def _trace(self, change: str) -> None:
        pid = self.cluster.pid(self.broker)
        trace, inject = f"trace={SYNC_CALLS}", f"inject={SYNC_CALLS}:{change}"
        command = ["strace", "-qq", "-f", "-o", "/dev/null", "-e", trace, "-e", inject, "-p", str(pid)]
        self._strace = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: _is_traced(pid) or self._strace.poll() is not None)

    def heal(self) -> None:
        self._strace.send_signal(signal.SIGTERM)
        self._strace.wait()
        self.cluster.start_again(self.broker)


def _is_traced(pid: int) -> bool:
    """Or gone."""
    try:
        return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


class SyncFails(_TracedSync):
    name, what = "fsync-fails", "each fsync of a broker fails with EIO"
    may_end_broker = True

    def inject(self) -> str:
        self._trace("error=EIO")
        return f"no fsync of broker {self.broker} succeeds"


class SyncSlow(_TracedSync):
    name, what = "fsync-slow", "each fsync of a broker takes up to a second"

    def inject(self) -> str:
        milliseconds = self.chance.randint(*SLOW_MS)
        self._trace(f"delay_exit={milliseconds * 1000}")
        return f"each fsync of broker {self.broker} takes {milliseconds} ms more"

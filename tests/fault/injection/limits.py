"""Brokers that get no more descriptors, no more memory, or the wrong time."""

import os
import resource
import socket
from contextlib import suppress
from pathlib import Path

from tests.fault.injection.injected_fault import InjectedFault
from tests.support.namespaced_cluster import BROKER_PORT

HOUR_MS = 3_600_000
STRANGERS = 20  # connections that take what descriptors are left
LEFT_DESCRIPTORS, LEFT_BYTES = 3, 1 << 20


class DescriptorsExhausted(InjectedFault):
    name, what = "descriptors", "a broker may open no more files, and strangers connect to it"

    def inject(self) -> str:
        pid = self.cluster.pid(self.broker)
        self._before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        limit = len(os.listdir(f"/proc/{pid}/fd")) + LEFT_DESCRIPTORS
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit, self._before[1]))
        self._strangers = list[socket.socket]()
        for _ in range(STRANGERS):
            with suppress(OSError):
                self._strangers.append(
                    socket.create_connection((self.cluster.addresses[self.broker], BROKER_PORT), timeout=5)
                )
        return f"broker {self.broker} may have {limit} descriptors"

    def heal(self) -> None:
        for connection in self._strangers:
            connection.close()
        if self.cluster.is_running(self.broker):
            resource.prlimit(self.cluster.pid(self.broker), resource.RLIMIT_NOFILE, self._before)
        self.cluster.start_again(self.broker)


class MemoryExhausted(InjectedFault):
    name, what = "memory", "a broker gets no more memory (RLIMIT_AS)"
    apache_survives = False  # a JVM ends

    def inject(self) -> str:
        pid = self.cluster.pid(self.broker)
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + LEFT_BYTES
        resource.prlimit(pid, resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
        return f"broker {self.broker} may have {limit >> 20} MB of addresses"

    def heal(self) -> None:
        if self.cluster.is_running(self.broker):
            unlimited = resource.RLIM_INFINITY, resource.RLIM_INFINITY
            resource.prlimit(self.cluster.pid(self.broker), resource.RLIMIT_AS, unlimited)
        self.cluster.start_again(self.broker)


class _ClockJump(InjectedFault):
    apache_survives = False  # its clock cannot jump: see clock_process
    jump_ms: int

    def inject(self) -> str:
        self.cluster.set_clock(self.broker, self.jump_ms)
        return f"the clock of broker {self.broker} jumps by {self.jump_ms // HOUR_MS:+d} h"

    def heal(self) -> None:
        self.cluster.set_clock(self.broker, 0)


class ClockAhead(_ClockJump):
    name, what = "clock-ahead", "the wall clock of a broker jumps an hour ahead, and back"
    jump_ms = HOUR_MS


class ClockBehind(_ClockJump):
    name, what = "clock-behind", "the wall clock of a broker jumps an hour back, and ahead again"
    jump_ms = -HOUR_MS

"""Processes that are killed, paused or stopped, one or all."""

import signal
import subprocess
import sys

from tests.fault.injection.injected_fault import InjectedFault
from tests.support.waiting import until

BUSY = "while True: pass"
BUSY_PROCESSES = 2
INTERNAL_TOPICS = ("__consumer_offsets", "__transaction_state")


class Kill(InjectedFault):
    name, what = "kill", "kill -9 of a broker, started again"
    may_end_broker = True
    hold_s = (0.0, 3.0)

    def inject(self) -> str:
        self.cluster.kill(self.broker)
        return f"broker {self.broker} is killed"

    def heal(self) -> None:
        self.cluster.start(self.broker)


class Pause(InjectedFault):
    name, what = "pause", "SIGSTOP of a broker, later SIGCONT"
    hold_s = (0.1, 9.0)

    def inject(self) -> str:
        self.cluster.brokers[self.broker].process.send_signal(signal.SIGSTOP)
        return f"broker {self.broker} is paused"

    def heal(self) -> None:
        self.cluster.brokers[self.broker].process.send_signal(signal.SIGCONT)


class RollingRestart(InjectedFault):
    name, what = "rolling", "all brokers are stopped and started in turn, on busy cores"
    hold_s = (0.0, 0.0)

    def inject(self) -> str:
        self._busy = [subprocess.Popen(["nice", sys.executable, "-c", BUSY]) for _ in range(BUSY_PROCESSES)]
        for id in self.chance.sample(self.cluster.ids, len(self.cluster.ids)):
            code = self.cluster.brokers[id].stop()
            assert code == 0, f"broker {id} did not stop cleanly: {code}"
            self.cluster.start(id)
            until(lambda: self.cluster.is_in_sync(INTERNAL_TOPICS), lambda: self.cluster.states_of(INTERNAL_TOPICS))
        return "each broker was stopped and started"

    def heal(self) -> None:
        for process in self._busy:
            process.kill()
            process.wait()


class PowerCut(InjectedFault):
    name, what = "power", "power failure of all brokers and ZooKeeper: what was not synced is lost"
    hold_s = (0.0, 1.0)
    needs_disks = needs_flush = may_end_broker = True

    def inject(self) -> str:
        self.cluster.lose_power()
        return "all lose their power"

    def heal(self) -> None:
        self.cluster.restore_power()

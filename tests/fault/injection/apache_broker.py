"""A broker of Apache Kafka that can be started again, in the place of Leadline's."""

import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.conformance.kafka import jars
from tests.support.waiting import until

STOP_S = 120.0
HEAP = "256m"


class ApacheBroker:
    """`may_start`: whether ZooKeeper has let go of it: one that finds its own node ends at once.

    `is_ready`: whether it serves.
    """

    def __init__(
        self, directory: Path, settings: Mapping[str, str], may_start: Callable[[], bool], is_ready: Callable[[], bool]
    ) -> None:
        self.directory, self.log = directory, directory.with_suffix(".log")
        self._may_start, self._is_ready = may_start, is_ready
        self._properties = directory.with_suffix(".properties")
        lines = {**settings, "log.dirs": str(directory)}.items()
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in lines))
        self.start()

    def start(self) -> None:
        until(self._may_start, "ZooKeeper still has the session of a broker that was killed")
        command = jars.command("kafka.Kafka", str(self._properties), heap=HEAP)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self._is_ready() or self.process.poll() is not None)
        assert self.process.poll() is None, f"the broker did not start:\n{self.output()[-3000:]}"

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(STOP_S)
        return 0 if code in (0, 128 + signal.SIGTERM, -signal.SIGTERM) else code

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

"""A Leadline broker in a process of its own, on a free port of the loopback, for tests that speak to it."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

READY_SECONDS = 120
STOP_SECONDS = 120


class RunningBroker:
    """Started, listening; ended at the latest when its context is left."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, str],
        descriptors: int | None = None,
        properties: Path | None = None,
        environment: Mapping[str, str] | None = None,
        patience_s: float = READY_SECONDS,
        program: Sequence[str] = ("-m", "leadline"),
    ) -> None:
        """`properties`: a file that has all its settings. `environment`: variables beside those of this process.

        `patience_s`: bounds its start and its stop. `program`: what Python runs.
        """
        self.patience_s, self.program = patience_s, program
        self.descriptors, self.properties, self.environment = descriptors, properties, dict(environment or {})
        self.directory, self.settings, self.log = directory, dict(settings), directory.with_suffix(".log")
        self.port = 0
        self.start()

    @property
    def bootstrap(self) -> str:
        return f"localhost:{self.port}"

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        before = len(re.findall(r"  try ", self.output())) if self.log.exists() else 0
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, "start", *self._arguments()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.environment,
                preexec_fn=self._limit if self.descriptors is not None else None,
            )
        self._wait_until_ready(before)

    def _arguments(self) -> list[str]:
        if self.properties is not None:
            return [str(self.properties)]
        settings = {"log.dirs": str(self.directory), "listeners": f"PLAINTEXT://localhost:{self.port}"} | self.settings
        return [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]

    def _limit(self) -> None:
        assert self.descriptors is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (self.descriptors, self.descriptors))

    def _wait_until_ready(self, before: int) -> None:
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            text = self.output()
            if len(re.findall(r"  try ", text)) > before:
                self.port = int(re.findall(r"listens  PLAINTEXT on \S+:(\d+)", text)[-1])
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        self.kill()
        raise AssertionError(f"the broker did not start:\n{self.output()}")

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def stop(self) -> int:
        """A clean stop; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=max(self.patience_s, STOP_SECONDS))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(timeout=STOP_SECONDS)


@contextmanager
def leadline(directory: Path, **settings: object) -> Iterator[RunningBroker]:
    """`leadline(path, log_segment_bytes=1000)`: settings with underscores for dots."""
    kafka_settings = {name if "." in name else name.replace("_", "."): str(value) for name, value in settings.items()}
    with until_killed(RunningBroker(directory, kafka_settings)) as broker:
        yield broker


@contextmanager
def until_killed(broker: RunningBroker) -> Iterator[RunningBroker]:
    try:
        yield broker
    finally:
        if broker.process.poll() is None:
            broker.kill()

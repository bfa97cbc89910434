"""A broker that `leadline security init` set up, in a folder of its own, with commands that are run beside it."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.waiting import until

START = "leadline start secure/server.properties"
COMMAND_S = 180


def two_free_ports() -> int:
    """The first of two neighbours, below those that the system hands out."""
    while True:
        port = secrets.randbelow(10_000) + 20_000
        with (
            suppress(OSError),
            socket.create_server(("127.0.0.1", port)),
            socket.create_server(("127.0.0.1", port + 1)),
        ):
            return port


class GuidedBroker:
    """A folder in which the commands of the document are run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secure = folder / "secure"
        self.port = two_free_ports()
        self.env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "broker.log"

    def run(self, command: str) -> list[str]:
        if command == START:
            return self._start()
        if command.startswith("leadline security init"):
            command += f" --port {self.port}"
        command = command.replace("--command-config", f"--timeout {COMMAND_S} --command-config")
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.env, text=True, timeout=COMMAND_S, stdout=-1, stderr=-2
        )
        return done.stdout.splitlines()

    def _start(self) -> list[str]:
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(START.split(), cwd=self.folder, env=self.env, stdout=output, stderr=output)
        until(lambda: "  try " in self.log.read_text() or self._has_ended(), COMMAND_S)
        return self.log.read_text().splitlines()

    def _has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def stop(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(COMMAND_S) == 0

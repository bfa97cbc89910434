"""An empty virtual environment, and a broker that runs in it."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 900
READY = re.compile(r"leadline topics list --bootstrap-server (\S+)")


class CheckFailed(Exception):
    """The package is not as it should be."""


def run(
    *command: str | Path,
    cwd: Path = ROOT,
    fails: bool = False,
    typed: str = "",
    variables: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a command prints, on both outputs. CheckFailed: it does not end as it should."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | dict(variables),
        input=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    if (done.returncode != 0) != fails:
        raise CheckFailed(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


class Environment:
    """A virtual environment without packages. Versions are those of the lock file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", "--without-pip", folder)

    def install(self, *what: str, variables: Mapping[str, str] = MappingProxyType({})) -> str:
        # A constraint has no hashes: a file that was just built has none in the lock.
        lock = (ROOT / "requirements.lock").read_text()
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(re.findall(r"^[a-z][^ ]*==[^ \n]+", lock, re.MULTILINE)))
        words = ["install", "--constraint", str(constraints), *what]
        if shutil.which("uv"):
            python = str(self.folder / "bin/python")
            return run("uv", "pip", *words, "--python", python, variables={"UV_SYSTEM_CERTS": "1", **variables})
        pip = Path(sys.base_prefix, "bin/python3")  # the environment has none
        return run(pip, "-m", "pip", "--python", self.folder / "bin/python", *words, variables=variables)

    def leadline(self, *words: str, fails: bool = False, typed: str = "") -> str:
        return run(self.folder / "bin/leadline", *words, cwd=self.folder, fails=fails, typed=typed)

    def python(self, *words: str) -> str:
        return run(self.folder / "bin/python", *words, cwd=self.folder)

    @contextlib.contextmanager
    def broker(self) -> Iterator[str]:
        """The address of a broker of this environment. It must stop cleanly."""
        command = [
            str(self.folder / "bin/leadline"),
            "start",
            "--port",
            "0",
            "--set",
            "group.initial.rebalance.delay.ms=0",
        ]
        with (
            (self.folder / "broker.log").open("w") as log,
            subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=log, text=True) as process,
        ):
            assert process.stdout is not None
            try:
                lines = iter(process.stdout.readline, "")
                address = next((match[1] for line in lines if (match := READY.search(line))), None)
                if address is None:
                    raise CheckFailed(f"the broker ended early: {(self.folder / 'broker.log').read_text()}")
                yield address
            finally:
                process.send_signal(signal.SIGTERM)
        if process.returncode != 0:
            raise CheckFailed(f"the broker ended with {process.returncode} after SIGTERM")

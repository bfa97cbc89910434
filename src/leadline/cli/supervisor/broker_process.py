"""A broker in its own process, from one start to the next.

The process belongs to a process group of its own: Ctrl-C on the terminal does not reach it. It ends cleanly when the
supervisor has ended (runtime/parent_pipe.py), and reports to the supervisor when it serves (runtime/notify_socket.py).
"""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from leadline.cli.processes import holder_of
from leadline.cli.supervisor.broker_output import BrokerOutput
from leadline.model import BrokerId

# Exit codes after SIGTERM. The last two: the broker had not started yet.
CLEAN_EXIT_CODES = (0, -signal.SIGTERM, 128 + signal.SIGTERM)


class BrokerProcess:
    """`arguments`: those of `leadline start`. `log_dir`: the first of its log directories, whose lock it holds."""

    def __init__(self, id: BrokerId, arguments: Sequence[str], log_dir: Path, output: BrokerOutput) -> None:
        self.id, self.arguments, self.log_dir, self.output = id, arguments, log_dir, output
        self.process: Process | None = None
        self.restarted_pid: int | None = None  # the process that was started by hand after this one ended
        self.start_error = ""  # why the system started no process
        self._signal: signal.Signals | None = None  # for a process that is being started

    def reset(self) -> None:
        """Forget the process before this one. `run` follows."""
        self.process = self.restarted_pid = self._signal = None
        self.start_error = ""

    async def run(self, environment: Mapping[str, str], descriptors: Sequence[int]) -> None:
        """Start the process and wait for its end."""
        writing = self.output.open()
        try:
            self.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "leadline", "start", *self.arguments),
                stdin=DEVNULL,
                stdout=writing,
                stderr=writing,
                process_group=0,
                env={**os.environ, **environment},
                pass_fds=descriptors,
            )
        except OSError as error:
            self.start_error = str(error)
        finally:
            os.close(writing)
        if self.process is not None:
            if self._signal is not None:
                self.send(self._signal)
            await self.process.wait()
        self.output.close()

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            if self.restarted_pid is not None:
                os.kill(self.restarted_pid, number)
            elif self.process is not None:
                self.process.send_signal(number)
            else:
                self._signal = number

    def holder(self) -> int | None:
        """The process that has its log directory open."""
        return holder_of(self.log_dir)

    @property
    def pid(self) -> int | None:
        """None: its process is being started."""
        if self.restarted_pid is not None:
            return self.restarted_pid
        return None if self.process is None else self.process.pid

    @property
    def ended_cleanly(self) -> bool:
        """The exit code of a broker that was started by hand is unknown here, and counts as clean."""
        if self.restarted_pid is not None:
            return True
        return self.process is not None and self.process.returncode in CLEAN_EXIT_CODES

    def ended_text(self) -> str:
        if self.process is None or self.process.returncode is None:
            return f"broker {self.id} cannot be started"
        return f"broker {self.id} (pid {self.process.pid}) {exit_text(self.process.returncode)}"

    def ended_text_with_reason(self) -> str:
        return f"{self.ended_text()}: {self.start_error or self.output.last_line() or 'it wrote nothing'}"


def exit_text(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def now_text() -> str:
    return time.strftime("%H:%M:%S")

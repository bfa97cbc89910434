"""The console of `leadline start --console`: a process of its own, and a client like any other.

It ends with its broker, even if that is killed (runtime/parent_pipe.py). Its end is logged, and the broker serves on.
"""

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from leadline.cluster.metadata_cache import Endpoint
from leadline.config.listeners import Listeners
from leadline.config.values import InvalidSetting
from leadline.runtime.parent_pipe import ParentPipe

STOP_S = 10.0


class ConsoleOptions(NamedTuple):
    """What `leadline start` passes on to the console."""

    listen: str
    allow_changes: bool
    command_config: Path | None

    def arguments(self, server: str) -> list[str]:
        words = ["console", "--bootstrap-server", server, "--listen", self.listen]
        words += ["--allow-changes"] if self.allow_changes else []
        return words + ([] if self.command_config is None else ["--command-config", str(self.command_config)])


def open_listener(listeners: Listeners) -> str | None:
    """The name of a listener without a login, if there is one."""
    protected = {listener.name for listener in listeners.advertised if listener.protocol.sasl or listener.protocol.tls}
    return next((listener.name for listener in listeners.advertised if listener.name not in protected), None)


def check_console(options: ConsoleOptions, listeners: Listeners) -> None:
    """Raises InvalidSetting for a console that could not start."""
    from leadline.cli.console import missing_extra  # here: a broker without a console needs nothing of it

    if (missing := missing_extra()) is not None:
        raise InvalidSetting(f"--console: {missing}")
    if options.command_config is None and open_listener(listeners) is None:
        raise InvalidSetting("--console: all listeners are protected: name client properties with --console-config")


class ConsoleProcess:
    """Started once the broker serves, and stopped before it stops."""

    def __init__(self, options: ConsoleOptions) -> None:
        self._options = options
        self._process: Process | None = None
        self._watching: asyncio.Task[None] | None = None
        self._pipe: ParentPipe | None = None

    async def start(self, listeners: Listeners, advertised: Mapping[str, Endpoint]) -> None:
        name = open_listener(listeners) if self._options.command_config is None else None
        endpoint = advertised[next(iter(advertised)) if name is None else name]
        self._pipe = ParentPipe()
        words: Sequence[str] = self._options.arguments(f"{endpoint.host}:{endpoint.port}")
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "leadline", *words),
                stdin=DEVNULL,
                process_group=0,
                env={**os.environ, **self._pipe.environment},
                pass_fds=[self._pipe.reading],
            )
        except OSError as error:
            logging.error("the console was not started: %s", error)
            return
        self._watching = asyncio.create_task(self._watch(self._process))

    async def _watch(self, process: Process) -> None:
        code = await process.wait()
        logging.error("the console has ended with exit code %d; the broker serves on", code)

    async def stop(self) -> None:
        if self._watching is not None and self._process is not None:
            self._watching.cancel()
            if self._process.returncode is None:
                with suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGTERM)
                try:
                    await asyncio.wait_for(self._process.wait(), STOP_S)
                except TimeoutError:
                    self._process.kill()
                    await self._process.wait()
        if self._pipe is not None:
            self._pipe.close()

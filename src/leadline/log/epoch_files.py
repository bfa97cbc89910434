"""The leader-epoch-checkpoint files of one log directory, written in its thread, several of them in one job.

A start begins an epoch in every partition. An epoch without records says nothing that the tree does not say, and a
flush writes the file first if it is not up to date (`FlushPlan`). So these writes wait for one another, and the jobs of
others come in between. A file that changes again while it waits is written once. A file that cannot be used is reported
to its own log alone.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.files import replace_file, unless_unusable
from leadline.model import TopicPartition
from leadline.runtime.ports import Background, Files

FILES_AT_ONCE = 64  # in one job


EpochFileOutcome = OSError | CorruptFile | None  # None: it is written


class EpochFile(NamedTuple):
    """The expected content of a file."""

    path: str
    data: bytes
    ended: Callable[[EpochFileOutcome], None]  # called on the loop once it has it, or cannot be used


class LogWithEpochs(Protocol):
    tp: TopicPartition

    def epoch_file(self) -> EpochFile | None:
        """None: the file is up to date."""
        ...


class EpochFiles:
    def __init__(self, background: Background, files: Files) -> None:
        self._background, self._files = background, files
        self._waiting: dict[LogWithEpochs, None] = {}
        self._is_writing = False

    def write(self, log: LogWithEpochs) -> None:
        self._waiting[log] = None
        if not self._is_writing:
            self._write_next()

    def _write_next(self) -> None:
        logs = list(islice(self._waiting, FILES_AT_ONCE))
        for log in logs:
            del self._waiting[log]
        contents = [file for log in logs if (file := log.epoch_file()) is not None]
        if not contents:
            return
        self._is_writing = True
        others = f" and {len(logs) - 1} more" if len(logs) > 1 else ""
        self._background.run(
            f"writing {names.EPOCHS_FILE} of {logs[0].tp}{others}",
            partial(_write, self._files, contents),
            partial(self._written, contents),
            short=partial(self._retry, logs),
        )

    def _written(self, contents: Sequence[EpochFile], outcomes: Sequence[EpochFileOutcome]) -> None:
        for file, outcome in zip(contents, outcomes, strict=True):
            file.ended(outcome)
        self._continue()

    def _retry(self, logs: Sequence[LogWithEpochs]) -> None:
        self._waiting = dict.fromkeys(logs) | self._waiting
        self._continue()

    def _continue(self) -> None:
        self._is_writing = False
        if self._waiting:
            self._write_next()


def _write(files: Files, contents: Sequence[EpochFile]) -> list[EpochFileOutcome]:
    """A file that cannot be used does not keep the others from being written."""
    return [unless_unusable(partial(replace_file, files, file.path, file.data)) for file in contents]

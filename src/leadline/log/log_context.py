"""The ports that every log of one log directory shares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leadline.errors import CorruptFile
from leadline.log.epoch_files import EpochFiles
from leadline.runtime.latency_histogram import LatencyHistogram
from leadline.runtime.ports import Background, Chance, Files, Time

if TYPE_CHECKING:
    from leadline.log.local_log import LocalLog
    from leadline.log.log import Log

LogFailed = Callable[["LocalLog", str, OSError | CorruptFile], None]  # a log, what it was doing, and what happened


@dataclass(frozen=True, slots=True)
class LogContext:
    clock: Time
    chance: Chance
    files: Files
    background: Background  # the thread of the log directory
    failed: LogFailed  # takes a log or its directory offline
    segment_flushed: Callable[[], None] = lambda: None  # a rolled segment is on disk: worth a checkpoint
    unindexed: "set[Log]" = field(default_factory=set)  # index entries wait in memory, to be written before long
    flush_times: LatencyHistogram = field(default_factory=LatencyHistogram)  # of all log directories
    epoch_files: EpochFiles = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch_files", EpochFiles(self.background, self.files))

"""The ports that every log of one log directory shares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leadline.errors import LogDirFailed
from leadline.log.epoch_files import EpochFiles
from leadline.runtime.ports import Background, Chance, Files, Time

if TYPE_CHECKING:
    from leadline.log.log import Log


@dataclass(frozen=True, slots=True)
class LogContext:
    clock: Time
    chance: Chance
    files: Files
    background: Background  # the thread of the log directory
    failed: Callable[[LogDirFailed], None]  # takes the log directory offline
    segment_flushed: Callable[[], None] = lambda: None  # a rolled segment is on disk: worth a checkpoint
    unindexed: "set[Log]" = field(default_factory=set)  # index entries wait in memory, to be written before long
    epoch_files: EpochFiles = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "epoch_files", EpochFiles(self.background, self.files))

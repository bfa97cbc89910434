"""Loading the logs of one log directory when a broker starts. It runs in the threads of that directory's recovery."""

import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from leadline.config.storage import StorageConfig
from leadline.errors import CorruptFile, UnopenedLog
from leadline.log import names
from leadline.log.checkpoints import take_clean_shutdown
from leadline.log.dir_checkpoints import read_checkpoint
from leadline.log.files import file_size, write_file
from leadline.log.log import Log
from leadline.log.log_context import LogContext
from leadline.log.log_dir import LogDir
from leadline.log.log_dir_set import TopicConfigs
from leadline.log.names import DirMark
from leadline.log.recovery import Opening, open_log
from leadline.log.segment_scan import Progress
from leadline.model import Offset, TopicPartition
from leadline.runtime.ports import Files, shortage

log = logging.getLogger(__name__)


class LoadingCancelled(Exception):
    """The start of the broker was cancelled. What recovery left is as after a crash: the next start recovers it."""


@dataclass(slots=True)
class RecoveryProgress:
    """How far the loading of all directories has come."""

    logs: int = 0
    logs_done: int = 0
    bytes_total: int = 0  # that recovery has to read
    is_cancelled: bool = False  # the threads end at their next step
    _read: list[list[int]] = field(default_factory=list)  # a cell for each log, written by one thread

    @property
    def bytes_read(self) -> int:
        return sum(cell[0] for cell in self._read)

    def reading(self) -> Progress:
        """The progress for the thread that recovers one log."""
        cell = [0]
        self._read.append(cell)

        def progress(count: int) -> None:
            self.check_cancelled()
            cell[0] += count

        return progress

    def check_cancelled(self) -> None:
        if self.is_cancelled:
            raise LoadingCancelled


class PlannedLog(NamedTuple):
    """A log that is about to be opened."""

    opening: Opening
    mark: DirMark | None
    bytes_to_read: int
    checkpoints: dict[str, Offset]  # its entries in the checkpoint files, by file name


class LoadPlan(NamedTuple):
    broker_epoch: int | None  # of the last clean stop; None if it was not clean
    logs: list[PlannedLog]
    high_watermarks: dict[TopicPartition, Offset]

    @property
    def bytes_to_read(self) -> int:
        return sum(planned.bytes_to_read for planned in self.logs)


class LogLoading:
    def __init__(
        self, files: Files, config: StorageConfig, topic_config: TopicConfigs, progress: RecoveryProgress
    ) -> None:
        self._files, self._config, self._topic_config, self._progress = files, config, topic_config, progress

    def plan(self, log_dir: LogDir) -> LoadPlan:
        files, path = self._files, log_dir.path
        broker_epoch = take_clean_shutdown(files, path)
        checkpoints = {name: read_checkpoint(files, log_dir, name) for name in names.OFFSET_FILES}
        self._create_checkpoints(log_dir)
        logs: list[PlannedLog] = []
        for name in sorted(files.listdir(path)):
            directory = os.path.join(path, name)
            if not files.is_dir(directory):
                continue
            try:
                tp, mark = names.parse_dir_name(name)
            except ValueError as error:
                log.warning("%s: %s; it is not used", path, error)
                continue
            opening = self._opening(tp, directory, broker_epoch is not None, checkpoints)
            entries = {name: offsets[tp] for name, offsets in checkpoints.items() if offsets and tp in offsets}
            logs.append(PlannedLog(opening, mark, 0 if opening.clean else self._bytes_to_recover(opening), entries))
        return LoadPlan(broker_epoch, logs, checkpoints[names.HIGH_WATERMARKS_FILE] or {})

    def _create_checkpoints(self, log_dir: LogDir) -> None:
        """Kafka has all checkpoint files from the start, at first without any content."""
        for name in names.OFFSET_FILES:
            is_used = name != names.CLEANED_OFFSETS_FILE or self._config.log_cleaner_enable
            if is_used and not self._files.exists(log_dir.file(name)):
                write_file(self._files, log_dir.file(name), b"", sync=False)

    def _opening(
        self,
        tp: TopicPartition,
        directory: str,
        clean: bool,
        checkpoints: Mapping[str, dict[TopicPartition, Offset] | None],
    ) -> Opening:
        config = self._topic_config(tp.topic)
        recovery_points, cleaned = checkpoints[names.RECOVERY_POINTS_FILE], checkpoints[names.CLEANED_OFFSETS_FILE]
        return Opening(
            tp,
            directory,
            config,
            clean,
            (recovery_points or {}).get(tp, 0),
            (checkpoints[names.LOG_STARTS_FILE] or {}).get(tp, 0),
            self._config.producer_id_expiration_ms,
            not config.compact and cleaned is not None and tp not in cleaned,
            recovery_points is not None,
        )

    def _bytes_to_recover(self, opening: Opening) -> int:
        """The size of the segments that a recovery will read."""
        sizes: dict[Offset, int] = {}
        with suppress(OSError):  # opening the log reports the error
            for name in self._files.listdir(opening.directory):
                parsed = names.parse_file_name(name)
                if parsed is not None and parsed[1:] == (names.LOG, ""):
                    sizes[parsed[0]] = file_size(self._files, os.path.join(opening.directory, name))
        first = max((base for base in sizes if base <= opening.recovery_point), default=0)
        return sum(size for base, size in sizes.items() if base >= first)

    def open_all(self, portion: Sequence[PlannedLog], context: LogContext) -> list[Log | CorruptFile | None]:
        return [self.open(planned, context) for planned in portion]

    def open(self, planned: PlannedLog, context: LogContext) -> Log | CorruptFile | None:
        """None for a log that is being deleted or is stray: it is not read."""
        self._progress.check_cancelled()
        try:
            if planned.mark in (DirMark.DELETE, DirMark.STRAY):
                return None
            return open_log(planned.opening, context, self._progress.reading())
        except CorruptFile as error:
            return error
        except (OSError, MemoryError) as error:
            if (lacking := shortage(error)) is None:
                raise
            return UnopenedLog(planned.opening.directory, lacking)
        finally:
            self._progress.logs_done += 1

"""The log directories of a broker that are online, and the logs in them."""

import logging
from collections.abc import Callable, Iterable

from leadline.config.live_settings import LiveSettings
from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile, StorageError
from leadline.log import names
from leadline.log.cleaning_passes import CleaningPasses
from leadline.log.log import Log
from leadline.log.log_dir import LogDir, OfflineLog
from leadline.log.names import DirMark
from leadline.model import TopicPartition
from leadline.runtime.ports import Chance, Files, Time

log = logging.getLogger(__name__)

TopicConfigs = Callable[[str], LogConfig]


class LogDirSet:
    def __init__(
        self,
        settings: LiveSettings,
        clock: Time,
        chance: Chance,
        files: Files,
        topic_config: TopicConfigs = lambda _: LogConfig(),
    ) -> None:
        self._settings, self.clock, self.chance, self.files = settings, clock, chance, files
        self.topic_config = topic_config
        self.dirs: dict[str, LogDir] = {}  # online, in the order of log.dirs
        self.offline: dict[str, str] = {}  # by path: what happened
        self.logs: dict[TopicPartition, Log] = {}
        self.future: dict[TopicPartition, Log] = {}  # replicas that move to another directory
        self.unindexed: set[Log] = set()  # index entries of these wait in memory
        self.cleaning = CleaningPasses()

    @property
    def config(self) -> StorageConfig:
        return self._settings.storage

    def logs_in(self, log_dir: LogDir) -> list[Log]:
        if self.dirs.keys() == {log_dir.path} and not self.offline:
            return self.all_logs()
        return [log for log in self.all_logs() if log.parent == log_dir.path]

    def all_logs(self) -> list[Log]:
        return [*self.logs.values(), *self.future.values()]

    def dir_of(self, log: Log) -> LogDir:
        try:
            return self.dirs[log.parent]
        except KeyError:
            log.refuse()

    def log_of(self, tp: TopicPartition, *, future: bool = False) -> Log:
        """StorageError if it went offline in the meantime."""
        if (log := (self.future if future else self.logs).get(tp)) is None:
            self.check_usable(tp)
            raise StorageError(f"{tp} is offline here, or was moved or deleted")
        return log

    # Partitions whose files cannot be used

    def offline_log(self, tp: TopicPartition) -> OfflineLog | None:
        """A partition that is here, and whose files cannot be used."""
        if tp in self.logs:
            return None
        return next((dir.offline_logs[tp] for dir in self.dirs.values() if tp in dir.offline_logs), None)

    def offline_logs(self) -> list[OfflineLog]:
        offline = (log for log_dir in self.dirs.values() for log in log_dir.offline_logs.values())
        return [log for log in offline if log.tp not in self.logs]

    def check_usable(self, tp: TopicPartition) -> None:
        """StorageError if this partition is offline."""
        if (offline := self.offline_log(tp)) is not None:
            raise StorageError(str(offline))

    def note_offline_log(self, log_dir: LogDir, offline: OfflineLog, mark: DirMark | None = None) -> None:
        if mark is DirMark.FUTURE:  # the replica that it was copied from is still there
            error, directory = offline.error, offline.directory
            log.error("%s cannot be moved to %s: %s. Remove %s", offline.tp, log_dir.path, error, directory)
        else:
            log.error("%s", offline)
            log_dir.offline_logs[offline.tp] = offline

    def not_opened(self, log_dir: LogDir, tp: TopicPartition, directory: str, error: CorruptFile) -> None:
        """A new log could not be created: something stands where its files should be."""
        log_dir.has_leftovers = True
        self.note_offline_log(log_dir, OfflineLog(tp, directory, error, {}))

    # Where a new log goes

    def dir_name(self, tp: TopicPartition, mark: DirMark | None) -> str:
        return names.dir_name(tp) if mark is None else names.marked_dir_name(tp, mark, self.chance.new_uuid())

    def online_dir(self, path: str) -> LogDir:
        if path not in self.dirs:
            reason = f"it is offline: {self.offline[path]}" if path in self.offline else "it is not one of log.dirs"
            raise StorageError(f"log directory {path} cannot be used: {reason}")
        return self.dirs[path]

    def emptiest_dir(self) -> LogDir:
        self._check_any_online()
        counts = self._counts()
        return self.dirs[min(counts, key=counts.__getitem__)]

    def _counts(self) -> dict[str, int]:
        """The number of logs in each directory. A single one has no other to be compared with."""
        counts = dict.fromkeys(self.dirs, 0)
        for log in self.all_logs() if len(counts) > 1 else ():
            if log.parent in counts:
                counts[log.parent] += 1
        return counts

    def spread(self, new: Iterable[TopicPartition]) -> list[tuple[LogDir, list[TopicPartition]]]:
        """Each new log goes to the directory with the fewest logs."""
        self._check_any_online()
        counts = self._counts()
        assigned: dict[str, list[TopicPartition]] = {path: [] for path in counts}
        for tp in new:
            path = min(counts, key=counts.__getitem__)
            counts[path] += 1
            assigned[path].append(tp)
        return [(self.dirs[path], partitions) for path, partitions in assigned.items() if partitions]

    def _check_any_online(self) -> None:
        if not self.dirs:
            raise StorageError(f"no log directory is online: {'; '.join(self.offline.values())}")

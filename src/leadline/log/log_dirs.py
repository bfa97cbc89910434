"""The log directories of a broker: locked, loaded, checkpointed, and taken offline one by one when a disk fails.

    one process works in a directory (.lock)
    a partition lies in one directory; a replica that moves to another lies there as -future until it has caught up
    .kafka_cleanshutdown is written only where everything was loaded and closed in order

A directory whose disk fails goes offline with its partitions; the others go on. A partition whose own files cannot be
used goes offline alone: it says why and what helps, and nothing in its directory or of its checkpoints is changed.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from leadline.config.storage import StorageConfig
from leadline.config.topic import LogConfig
from leadline.errors import (
    CorruptFile,
    LogDirFailed,
    LogDirLocked,
    ResourceExhausted,
    StorageError,
    UnopenedLog,
)
from leadline.log import names
from leadline.log.checkpoints import (
    METADATA_REMEDY,
    read_meta_properties,
    read_offsets,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from leadline.log.disk_thread import DiskThread
from leadline.log.files import FILE_MODE, is_of_one_file, remove_files
from leadline.log.log import Log
from leadline.log.log_context import LogContext
from leadline.log.names import DirMark
from leadline.log.recovery import Opening, open_log
from leadline.log.segment_scan import Progress
from leadline.model import Offset, TopicId, TopicPartition
from leadline.runtime.ports import Chance, Clock, Files, shortage

log = logging.getLogger(__name__)

CREATED_AT_ONCE = 16  # logs; each waits for the disk a few times

_locked_here: set[str] = set()  # such a lock does not exclude its own process


@dataclass(slots=True, eq=False)
class LogDir:
    """One directory and what is known of it."""

    path: str
    lock_fd: int
    disk: DiskThread
    was_clean: bool = False  # the last stop was
    is_new: bool = False  # no broker has used it before
    loaded: bool = False  # every log in it was opened or is accounted for
    broker_epoch: int | None = None  # of the last clean stop
    offline_logs: dict[TopicPartition, "OfflineLog"] = field(default_factory=dict)
    checkpointing: bool = False  # recovery points are being written, as a segment was flushed
    flushed_since: bool = False  # another one was, meanwhile
    has_leftovers: bool = False  # a directory was not opened: what it holds was not recovered

    def file(self, name: str) -> str:
        return os.path.join(self.path, name)


class OfflineLog(NamedTuple):
    """A partition whose files cannot be used."""

    tp: TopicPartition
    directory: str
    error: CorruptFile
    checkpoints: dict[str, Offset]  # what the checkpoints say of it, by their names: kept until it can be used again

    def __str__(self) -> str:
        remedy = self.error.remedy or (
            f"restore the file from a copy; or delete the topic, or remove {self.directory}: the records in it are "
            "lost then, and in a cluster copied again from another replica"
        )
        return f"{self.tp} is offline: {self.error}. What helps, before the next start: {remedy}"


@dataclass(slots=True)
class RecoveryProgress:
    """How far the loading has come, for who waits for it."""

    logs: int = 0
    logs_done: int = 0
    bytes_total: int = 0  # that have to be read
    _read: list[list[int]] = field(default_factory=list)  # a cell for each log, written by one thread

    @property
    def bytes_read(self) -> int:
        return sum(cell[0] for cell in self._read)

    def reading(self) -> Progress:
        """For the thread that recovers one log."""
        cell = [0]
        self._read.append(cell)

        def progress(count: int) -> None:
            cell[0] += count

        return progress


class _Planned(NamedTuple):
    opening: Opening
    mark: DirMark | None
    bytes_to_read: int
    checkpoints: dict[str, Offset]


Outcome = Log | CorruptFile | ResourceExhausted  # of making a log
TopicConfigs = Callable[[str], LogConfig]
PauseCleaning = Callable[[TopicPartition], AbstractAsyncContextManager[None]]
OfflineListener = Callable[[LogDirFailed, list[TopicPartition]], None]


class LogDirs:
    def __init__(
        self,
        config: StorageConfig,
        clock: Clock,
        chance: Chance,
        files: Files,
        topic_config: TopicConfigs = lambda _: LogConfig(),
    ) -> None:
        self.config, self.clock, self.chance, self.files, self.topic_config = config, clock, chance, files, topic_config
        self.dirs: dict[str, LogDir] = {}  # online, in the order of log.dirs
        self.offline: dict[str, str] = {}  # path and what happened
        self.not_closed: dict[str, str] = {}  # those that have no .kafka_cleanshutdown after `close`, and why
        self.logs: dict[TopicPartition, Log] = {}
        self.future: dict[TopicPartition, Log] = {}
        self.uncreated: dict[TopicPartition, str] = {}  # for want of a resource, with the reason
        self.recovery = RecoveryProgress()
        self.on_offline: list[OfflineListener] = []
        self.cleaning_paused: PauseCleaning = lambda _: nullcontext()  # the cleaner's, once there is one
        self._creating = asyncio.Lock()
        self._starting = True
        self._unsaid: list[str] = []  # what failed while it starts: if all of them do, one line says why

    # Opening

    async def open(self) -> None:
        """Lock and load all directories. LogDirFailed if none of them can be used."""
        self.lock()
        await self.load()

    def lock(self) -> None:
        """Make sure that nobody else works in them. What the settings of topics are must be known before `load`."""
        for path in dict.fromkeys(map(os.path.abspath, self.config.log_dirs)):
            try:
                self._lock(path)
            except OSError as error:
                if (lacking := shortage(error)) is not None:
                    self._unlock_all()
                    raise ResourceExhausted(f"opening {path} failed: {lacking}") from error
                self._note_offline(LogDirFailed(path, "opening it", error))
            except LogDirLocked:
                self._unlock_all()
                raise
        self._check_any_left()

    def _unlock_all(self) -> None:
        for log_dir in self.dirs.values():
            self._unlock(log_dir)
        self.dirs.clear()

    async def load(self) -> None:
        """Open the logs in all directories, each with its own threads."""
        await asyncio.gather(*(self._load(log_dir) for log_dir in list(self.dirs.values())))
        self._starting = False
        self._check_any_left()

    def _check_any_left(self) -> None:
        """LogDirFailed if not. Otherwise those that failed while the broker starts are named here."""
        if not self.dirs:
            reasons = "; ".join(self.offline.values())
            if len(self.offline) == 1:
                raise LogDirFailed(next(iter(self.offline)), "starting", OSError(reasons), reasons)
            raise LogDirFailed(",".join(self.config.log_dirs), "opening all of them", OSError(reasons))
        for text in self._unsaid:
            log.error("%s; it is offline until the next start", text)
        self._unsaid.clear()

    def _lock(self, path: str) -> None:
        with suppress(FileExistsError):
            os.makedirs(path)
        if os.path.realpath(path) in _locked_here:  # closing a second descriptor would give up the lock of the first
            raise _in_use(path)
        fd = os.open(os.path.join(path, names.LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            os.close(fd)
            raise _in_use(path) from None
        _locked_here.add(os.path.realpath(path))
        is_new = not os.path.exists(os.path.join(path, names.META_PROPERTIES_FILE))
        self.dirs[path] = LogDir(path, fd, DiskThread(path, self.take_offline), is_new=is_new)

    async def _load(self, log_dir: LogDir) -> None:
        loop = asyncio.get_running_loop()
        threads = ThreadPoolExecutor(self.config.num_recovery_threads_per_data_dir, f"log-recovery-{log_dir.path}")
        try:
            plan = await loop.run_in_executor(threads, self._plan, log_dir)
            log_dir.broker_epoch, planned, high_watermarks = plan
            log_dir.was_clean = log_dir.broker_epoch is not None
            self.recovery.logs += len(planned)
            self.recovery.bytes_total += sum(one.bytes_to_read for one in planned)
            context = self._context(log_dir)
            opened = await asyncio.gather(
                *(loop.run_in_executor(threads, self._open_one, one, context) for one in planned)
            )
        except OSError as error:
            if (lacking := shortage(error)) is not None:  # not the fault of the disk: nothing in it is given up
                raise ResourceExhausted(f"loading {log_dir.path} failed: {lacking}") from error
            self.take_offline(LogDirFailed(log_dir.path, "loading its logs", error))
            return
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
        for one, found in zip(planned, opened, strict=True):
            self._adopt(log_dir, one, found)
        log_dir.loaded = True
        if planned and not log_dir.was_clean:
            log.info(
                "%s was not stopped cleanly and is recovered. Partitions: %d, bytes that were read again: %d",
                log_dir.path, len(planned), sum(one.bytes_to_read for one in planned),
            )  # fmt: skip
        self._set_high_watermarks(log_dir, high_watermarks)
        if not log_dir.was_clean and planned:  # what was cut off below an old recovery point is not flushed any more
            with suppress(LogDirFailed, ResourceExhausted):  # the next one comes soon
                await self.checkpoint_recovery_points(log_dir)

    def _plan(self, log_dir: LogDir) -> tuple[int | None, list["_Planned"], dict[TopicPartition, Offset]]:
        """The broker epoch of a clean stop, what has to be opened, and the high watermarks. In a thread."""
        path = log_dir.path
        broker_epoch = take_clean_shutdown(self.files, path)
        checkpoints = {name: self._read_checkpoint(log_dir, name) for name in names.OFFSET_FILES}
        planned: list[_Planned] = []
        for name in sorted(self.files.listdir(path)):
            directory = os.path.join(path, name)
            if not os.path.isdir(directory):
                continue
            try:
                tp, mark = names.parse_dir_name(name)
            except ValueError as error:
                log.warning("%s: %s; it is left alone", path, error)
                continue
            opening = self._opening(tp, directory, broker_epoch is not None, checkpoints)
            known = {name: found[tp] for name, found in checkpoints.items() if found is not None and tp in found}
            planned.append(_Planned(opening, mark, 0 if opening.clean else _bytes_to_recover(opening), known))
        return broker_epoch, planned, checkpoints[names.HIGH_WATERMARKS_FILE] or {}

    def _opening(
        self,
        tp: TopicPartition,
        directory: str,
        clean: bool,
        checkpoints: Mapping[str, dict[TopicPartition, Offset] | None],
    ) -> Opening:
        config = self.topic_config(tp.topic)
        recovery_points, cleaned = checkpoints[names.RECOVERY_POINTS_FILE], checkpoints[names.CLEANED_OFFSETS_FILE]
        return Opening(
            tp,
            directory,
            config,
            clean,
            (recovery_points or {}).get(tp, 0),
            (checkpoints[names.LOG_STARTS_FILE] or {}).get(tp, 0),
            self.config.producer_id_expiration_ms,
            not config.compact and cleaned is not None and tp not in cleaned,
            recovery_points is not None,
        )

    def _read_checkpoint(self, log_dir: LogDir, name: str) -> dict[TopicPartition, Offset] | None:
        """None: it is damaged. That costs time, not data: more is recovered than need be."""
        try:
            return read_offsets(self.files, log_dir.file(name))
        except CorruptFile as error:
            log.warning("%s; going on without it", error)
            return None

    def _open_one(self, plan: "_Planned", context: LogContext) -> Log | CorruptFile | None:
        """In a thread. A log that is on its way out, or not ours, is not read."""
        try:
            if plan.mark in (DirMark.DELETE, DirMark.STRAY):
                return None
            return open_log(plan.opening, context, self.recovery.reading())
        except CorruptFile as error:
            return error
        except (OSError, MemoryError) as error:
            if (lacking := shortage(error)) is None:
                raise
            return UnopenedLog(plan.opening.directory, lacking)
        finally:
            self.recovery.logs_done += 1

    def _context(self, log_dir: LogDir) -> LogContext:
        flushed = partial(self._segment_flushed, log_dir)
        return LogContext(self.clock, self.chance, self.files, log_dir.disk, self.take_offline, flushed)

    def _adopt(self, log_dir: LogDir, plan: "_Planned", found: Log | CorruptFile | None) -> None:
        tp, directory = plan.opening.tp, plan.opening.directory
        if found is None:
            if plan.mark is DirMark.DELETE:
                self._remove_later(log_dir, directory)
            else:
                log.warning("%s is a stray replica and is left alone", directory)
        elif isinstance(found, CorruptFile):
            self._note_offline_log(log_dir, OfflineLog(tp, directory, found, plan.checkpoints), plan.mark)
        else:
            logs = self.future if plan.mark is DirMark.FUTURE else self.logs
            if (other := logs.setdefault(tp, found)) is not found:
                log.error(
                    "%s lies in %s too, which happens when a disk fails during a move; %s is left alone: remove one",
                    tp, other.directory, directory,
                )  # fmt: skip
                log_dir.has_leftovers = True

    def _note_offline_log(self, log_dir: LogDir, found: OfflineLog, mark: DirMark | None = None) -> None:
        log_dir.has_leftovers = True
        if mark is DirMark.FUTURE:  # the replica that it was copied from is still there
            log.error("%s cannot be moved to %s: %s. Remove %s", found.tp, log_dir.path, found.error, found.directory)
        else:
            log.error("%s", found)
            log_dir.offline_logs[found.tp] = found

    def take_log_offline(self, found: Log, reason: str) -> None:
        """What partition.metadata says of a log that was loaded cannot be: nothing is appended to it."""
        log_dir = self.dirs[found.parent]
        known = {
            names.RECOVERY_POINTS_FILE: found.flushed_to,
            names.HIGH_WATERMARKS_FILE: found.high_watermark,
            names.LOG_STARTS_FILE: found.log_start,
        }
        error = CorruptFile(os.path.join(found.directory, names.PARTITION_METADATA_FILE), 0, reason, METADATA_REMEDY)
        del self.logs[found.tp]
        found.offline = True
        self._note_offline_log(log_dir, OfflineLog(found.tp, found.directory, error, known))

    def offline_log(self, tp: TopicPartition) -> OfflineLog | None:
        """A partition that is here, and whose files cannot be used."""
        if tp in self.logs:
            return None
        return next((found[tp] for found in self._all_offline_logs() if tp in found), None)

    def _all_offline_logs(self) -> list[dict[TopicPartition, OfflineLog]]:
        return [log_dir.offline_logs for log_dir in self.dirs.values()]

    def offline_logs(self) -> list[OfflineLog]:
        return [one for found in self._all_offline_logs() for one in found.values() if one.tp not in self.logs]

    def check_usable(self, tp: TopicPartition) -> None:
        """StorageError if this partition is offline."""
        if (found := self.offline_log(tp)) is not None:
            raise StorageError(str(found))

    def _set_high_watermarks(self, log_dir: LogDir, offsets: Mapping[TopicPartition, Offset]) -> None:
        for tp, offset in offsets.items():
            found = self.logs.get(tp)
            if found is not None and found.parent == log_dir.path:
                found.set_high_watermark(offset)

    # meta.properties

    def meta_properties(self) -> dict[str, dict[str, str]]:
        """What each directory says of the broker and cluster it belongs to. One that cannot be read goes offline."""
        found: dict[str, dict[str, str]] = {}
        for path in list(self.dirs):
            try:
                if (properties := read_meta_properties(self.files, path)) is not None:
                    found[path] = properties
            except (OSError, CorruptFile) as error:
                self.take_offline(LogDirFailed(path, f"reading {names.META_PROPERTIES_FILE}", error))
        self._check_any_left()
        return found

    async def write_meta_properties(self, properties: Mapping[str, str]) -> None:
        for log_dir in list(self.dirs.values()):
            job = partial(write_meta_properties, self.files, log_dir.path, properties, self.clock.now_ms())
            await log_dir.disk.call(f"writing {names.META_PROPERTIES_FILE}", job)

    # Logs

    def logs_in(self, log_dir: LogDir) -> list[Log]:
        return [found for logs in (self.logs, self.future) for found in logs.values() if found.parent == log_dir.path]

    def dir_of(self, found: Log) -> LogDir:
        try:
            return self.dirs[found.parent]
        except KeyError:
            raise StorageError(f"{found.tp} is offline: its log directory {found.parent} failed") from None

    async def create(
        self, tp: TopicPartition, topic_id: TopicId | None = None, *, path: str | None = None, future: bool = False
    ) -> Log:
        """The log of a partition: the one that exists, or a new one in the emptiest directory (or a given one)."""
        logs = self.future if future else self.logs
        async with self._creating:
            if (found := logs.get(tp)) is None:
                self.check_usable(tp)
                log_dir = self._emptiest() if path is None else self._online(path)
                directory = log_dir.file(self._dir_name(tp, DirMark.FUTURE if future else None))
                made = await log_dir.disk.call(f"creating {tp}", partial(self._make, log_dir, tp, directory))
                if isinstance(made, CorruptFile):
                    self._note_offline_log(log_dir, OfflineLog(tp, directory, made, {}))
                    self.check_usable(tp)
                    raise StorageError(f"{tp} cannot be moved to {log_dir.path}: {made}")
                found = logs[tp] = made
                self.uncreated.pop(tp, None)
        if topic_id is not None:
            found.assign_topic_id(topic_id)
        return found

    async def create_all(self, wanted: Mapping[TopicPartition, TopicId | None]) -> None:
        """As `create`, for many: the disk is waited for by several at a time, and so for all of them less often.

        Those for which a resource was short are in `uncreated`, and nothing is left of them.
        """
        async with self._creating:
            new = [tp for tp in wanted if tp not in self.logs and self.offline_log(tp) is None]
            for log_dir, missing in self._spread(new):
                job = partial(self._make_all, log_dir, {tp: wanted[tp] for tp in missing})
                try:
                    outcomes = await log_dir.disk.call(f"creating {len(missing)} logs", job)
                except ResourceExhausted as error:
                    outcomes = dict.fromkeys(missing, error)
                self._created(log_dir, outcomes)

    def _created(self, log_dir: LogDir, outcomes: Mapping[TopicPartition, Outcome]) -> None:
        before = len(self.uncreated)
        for tp, made in outcomes.items():
            self.uncreated.pop(tp, None)
            if isinstance(made, CorruptFile):
                self._note_offline_log(log_dir, OfflineLog(tp, log_dir.file(names.dir_name(tp)), made, {}))
            elif isinstance(made, ResourceExhausted):
                self.uncreated[tp] = str(made)
            else:
                self.logs[tp] = made
        if len(self.uncreated) > before:
            first = next(iter(self.uncreated.values()))
            log.error("%d partitions could not be created and are tried again: %s", len(self.uncreated), first)

    def _spread(self, new: Iterable[TopicPartition]) -> list[tuple[LogDir, list[TopicPartition]]]:
        """Each goes where the fewest are."""
        self._check_any_online()
        counts = {path: len(self.logs_in(log_dir)) for path, log_dir in self.dirs.items()}
        found: dict[str, list[TopicPartition]] = {path: [] for path in counts}
        for tp in new:
            path = min(counts, key=counts.__getitem__)
            counts[path] += 1
            found[path].append(tp)
        return [(self.dirs[path], there) for path, there in found.items() if there]

    def _make_all(
        self, log_dir: LogDir, wanted: Mapping[TopicPartition, TopicId | None]
    ) -> dict[TopicPartition, Outcome]:
        with self._new_directories(log_dir, [log_dir.file(names.dir_name(tp)) for tp in wanted]) as new:
            self.files.sync_dir(log_dir.path)

        def make(tp: TopicPartition) -> Outcome:
            directory, topic_id = log_dir.file(names.dir_name(tp)), wanted[tp]
            try:
                found = self._open_new(log_dir, tp, directory)
                if not isinstance(found, CorruptFile) and found.topic_id is None and topic_id is not None:
                    found.topic_id = topic_id
                    found.write_topic_id(topic_id)
            except (OSError, MemoryError) as error:
                if (lacking := shortage(error)) is None:
                    raise
                if directory in new:
                    self._unmake(directory)
                return ResourceExhausted(f"creating {tp} in {log_dir.path} failed: {lacking}")
            return found

        try:
            with ThreadPoolExecutor(CREATED_AT_ONCE, "log-creation") as threads:
                return dict(zip(wanted, threads.map(make, wanted), strict=True))
        except RuntimeError as error:
            if shortage(error) is None:
                raise
            return {tp: make(tp) for tp in wanted}  # no further thread can be started: one after the other

    @contextmanager
    def _new_directories(self, log_dir: LogDir, directories: Iterable[str]) -> Iterator[set[str]]:
        """Make them. Those that were not there are gone again, if what follows fails for want of a resource."""
        new: set[str] = set()
        try:
            for directory in directories:
                with suppress(FileExistsError):
                    self.files.mkdir(directory)
                    new.add(directory)
            yield new
        except (OSError, MemoryError) as error:
            if shortage(error) is not None:
                for directory in new:
                    self._unmake(directory)
            raise

    def _unmake(self, directory: str) -> None:
        with suppress(OSError):  # what is left is completed when it is tried again
            _remove_tree(self.files, directory)

    def _make(self, log_dir: LogDir, tp: TopicPartition, directory: str) -> Log | CorruptFile:
        with self._new_directories(log_dir, [directory]):
            self.files.sync_dir(log_dir.path)
            return self._open_new(log_dir, tp, directory)

    def _open_new(self, log_dir: LogDir, tp: TopicPartition, directory: str) -> Log | CorruptFile:
        """CorruptFile: something stands where its files should be."""
        expiration = self.config.producer_id_expiration_ms
        opening = Opening(tp, directory, self.topic_config(tp.topic), True, producer_expiration_ms=expiration)
        try:
            return open_log(opening, self._context(log_dir))
        except CorruptFile as error:
            return error

    def _check_any_online(self) -> None:
        if not self.dirs:
            raise StorageError(f"no log directory is online: {'; '.join(self.offline.values())}")

    def _emptiest(self) -> LogDir:
        self._check_any_online()
        return min(self.dirs.values(), key=lambda log_dir: len(self.logs_in(log_dir)))

    def _online(self, path: str) -> LogDir:
        if path not in self.dirs:
            known = f"it is offline: {self.offline[path]}" if path in self.offline else "it is not one of log.dirs"
            raise StorageError(f"log directory {path} cannot be used: {known}")
        return self.dirs[path]

    async def delete(self, tp: TopicPartition, *, future: bool = False, mark: DirMark = DirMark.DELETE) -> None:
        """Rename a log away; as -delete it is removed after file.delete.delay.ms, as -stray it stays."""
        async with self.cleaning_paused(tp):
            found = (self.future if future else self.logs).pop(tp)
            log_dir = self.dir_of(found)
            found.moved(await self._rename(log_dir, found.directory, self._dir_name(tp, mark)))
        if mark is DirMark.DELETE:
            self._remove_later(log_dir, found.directory)
        await self._checkpoint_deletion(log_dir)

    async def delete_offline(self, tp: TopicPartition) -> None:
        """As `delete`, for a partition whose files cannot be used, if there is such a one."""
        for log_dir in self.dirs.values():
            if (found := log_dir.offline_logs.pop(tp, None)) is not None:
                renamed = await self._rename(log_dir, found.directory, self._dir_name(tp, DirMark.DELETE))
                self._remove_later(log_dir, renamed)
                await self._checkpoint_deletion(log_dir)
                return

    async def _checkpoint_deletion(self, log_dir: LogDir) -> None:
        await self.checkpoint_recovery_points(log_dir)
        await self.checkpoint_log_starts(log_dir)
        await self.checkpoint_cleaned(log_dir, {})

    async def _rename(self, log_dir: LogDir, directory: str, name: str) -> str:
        target = log_dir.file(name)

        def rename() -> None:
            self.files.rename(directory, target)
            self.files.sync_dir(log_dir.path)

        await log_dir.disk.call(f"renaming {directory}", rename)
        return target

    def _dir_name(self, tp: TopicPartition, mark: DirMark | None) -> str:
        return names.dir_name(tp) if mark is None else names.marked_dir_name(tp, mark, self.chance.new_uuid())

    def _remove_later(self, log_dir: LogDir, directory: str) -> None:
        job = partial(_remove_tree, self.files, directory)
        delay_ms = self.topic_config("").file_delete_delay_ms
        log_dir.disk.later(delay_ms, lambda: log_dir.disk.run(f"removing {directory}", job, _ignore))

    async def replace_with_future(self, tp: TopicPartition, switched: Callable[[], None] = lambda: None) -> None:
        """The replica that moved has caught up: it takes the place of the one it was copied from.

        `switched` is called at the moment from which it does.
        """
        async with self.cleaning_paused(tp):
            current, moved = self.logs[tp], self.future[tp]
            source, target = self.dir_of(current), self.dir_of(moved)
            moved.flush(active=True)  # what was flushed in the old place is so in the new one
            await target.disk.drain()
            # First: a crash may leave two of them, never none.
            moved.moved(await self._rename(target, moved.directory, names.dir_name(tp)))
            current.moved(await self._rename(source, current.directory, self._dir_name(tp, DirMark.DELETE)))
            moved.set_high_watermark(current.high_watermark)
            self.logs[tp] = self.future.pop(tp)
            switched()
        cleaned_to = (await self.cleaned_offsets()).get(tp)
        if cleaned_to is not None:
            await self.checkpoint_cleaned(target, {tp: cleaned_to})
        self._remove_later(source, current.directory)
        for log_dir in (source, target):
            await self.checkpoint_recovery_points(log_dir)
            await self.checkpoint_log_starts(log_dir)

    async def truncate_to(self, tp: TopicPartition, offset: Offset) -> bool:
        """Records from an offset on are dropped; before that, durably, they no longer count as flushed."""
        async with self.cleaning_paused(tp):
            found = self.logs[tp]  # its directory may fail on the way
            changed = await self._truncate(found, offset)
            await self._lower_cleaned(found)
        await self.truncate_future_to(tp, offset)
        return changed

    async def truncate_future_to(self, tp: TopicPartition, offset: Offset) -> None:
        """It may not go on with what is not in the one that it is copied from."""
        if tp in self.future and self.future[tp].log_end > offset:
            await self._truncate(self.future[tp], offset)

    async def _truncate(self, found: Log, offset: Offset) -> bool:
        log_start = found.log_start
        if found.lower_recovery_point(offset):
            await self.checkpoint_recovery_points(self.dir_of(found))
        changed = found.truncate_to(offset)
        if changed:
            await self._sync_truncation(found, log_start)
        return changed

    async def truncate_fully_and_start_at(self, tp: TopicPartition, offset: Offset) -> None:
        async with self.cleaning_paused(tp):
            current = self.logs[tp]
            for found in (current, *([self.future[tp]] if tp in self.future else ())):
                log_start = found.log_start
                if found.lower_recovery_point(min(offset, log_start)):
                    await self.checkpoint_recovery_points(self.dir_of(found))
                found.truncate_fully_and_start_at(offset)
                await self._sync_truncation(found, log_start)
            await self._lower_cleaned(current)

    async def _sync_truncation(self, found: Log, log_start: Offset) -> None:
        """Before anything is written anew: else a crash might leave the new records among the old ones."""
        log_dir = self.dir_of(found)
        found.flush(active=True)
        await log_dir.disk.drain()
        if found.log_start < log_start:  # what the checkpoint says would have all below it deleted
            await self.checkpoint_log_starts(log_dir)

    async def _lower_cleaned(self, found: Log) -> None:
        """What is written anew behind a truncation is dirty."""
        active = found.segments.active.base_offset
        if found.config.compact and (await self.cleaned_offsets()).get(found.tp, 0) > active:
            await self.checkpoint_cleaned(self.dir_of(found), {found.tp: active})

    def reconfigure(self, config: StorageConfig) -> None:
        """The broker's settings changed: running logs obey from now on."""
        self.config = config
        for found in [*self.logs.values(), *self.future.values()]:
            found.producer_state.expiration_ms = config.producer_id_expiration_ms

    def update_config(self, topic: str) -> None:
        """The settings of a topic changed: its logs obey from now on."""
        for found in [*self.logs.values(), *self.future.values()]:
            if found.tp.topic == topic:
                found.update_config(self.topic_config(topic))

    # Checkpoints

    async def checkpoint_recovery_points(self, log_dir: LogDir) -> None:
        await self._checkpoint(log_dir, names.RECOVERY_POINTS_FILE, self._recovery_points(log_dir))

    def _recovery_points(self, log_dir: LogDir) -> dict[TopicPartition, Offset]:
        return {found.tp: found.flushed_to for found in self.logs_in(log_dir)}

    def _segment_flushed(self, log_dir: LogDir) -> None:
        """Checkpoint the recovery points in the background: after a crash, no older segment is read again.

        The next checkpoint holds all that is flushed while this one is on its way.
        """
        if log_dir.checkpointing or not log_dir.loaded:
            log_dir.flushed_since = True
            return
        log_dir.checkpointing, log_dir.flushed_since = True, False
        job = self._writing(log_dir, names.RECOVERY_POINTS_FILE, self._recovery_points(log_dir))
        log_dir.disk.run(f"writing {names.RECOVERY_POINTS_FILE}", job, lambda _: self._checkpointed(log_dir))

    def _checkpointed(self, log_dir: LogDir) -> None:
        log_dir.checkpointing = False
        if log_dir.flushed_since:
            self._segment_flushed(log_dir)

    async def checkpoint_log_starts(self, log_dir: LogDir) -> None:
        """Only where the segments' own names do not tell."""
        offsets = {
            found.tp: found.log_start
            for found in self.logs_in(log_dir)
            if found.log_start > found.segments.first.base_offset
        }
        await self._checkpoint(log_dir, names.LOG_STARTS_FILE, offsets)

    async def checkpoint_high_watermarks(self, log_dir: LogDir) -> None:
        logs = [found for found in self.logs.values() if found.parent == log_dir.path]
        await self._checkpoint(log_dir, names.HIGH_WATERMARKS_FILE, {found.tp: found.high_watermark for found in logs})

    async def cleaned_offsets(self) -> dict[TopicPartition, Offset]:
        """How far compaction has come, over all directories."""
        found: dict[TopicPartition, Offset] = {}
        for log_dir in list(self.dirs.values()):
            found.update(await self._cleaned_in(log_dir))
        return found

    async def _cleaned_in(self, log_dir: LogDir) -> dict[TopicPartition, Offset]:
        read = partial(self._read_checkpoint, log_dir, names.CLEANED_OFFSETS_FILE)
        return await log_dir.disk.call(f"reading {names.CLEANED_OFFSETS_FILE}", read) or {}

    async def checkpoint_cleaned(self, log_dir: LogDir, changed: Mapping[TopicPartition, Offset]) -> None:
        known = await self._cleaned_in(log_dir)
        here = {tp: offset for tp, offset in known.items() if tp in self.logs}
        await self._checkpoint(log_dir, names.CLEANED_OFFSETS_FILE, here | dict(changed))

    async def _checkpoint(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        await log_dir.disk.call(f"writing {name}", self._writing(log_dir, name, offsets))

    def _writing(self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, Offset]) -> Callable[[], None]:
        """A job for its thread, with the offsets as they are now: jobs run in their order."""
        kept = {tp: found.checkpoints[name] for tp, found in log_dir.offline_logs.items() if name in found.checkpoints}
        return partial(write_offsets, self.files, log_dir.file(name), kept | dict(offsets))

    # The end

    def take_offline(self, failure: LogDirFailed) -> None:
        """A disk failed: its partitions go, and nothing in it is written any more."""
        log_dir = self.dirs.pop(failure.directory, None)
        if log_dir is None:
            return
        self._note_offline(failure)
        gone = self.logs_in(log_dir)
        for found in gone:
            found.offline = True
            for logs in (self.logs, self.future):
                if logs.get(found.tp) is found:
                    del logs[found.tp]
        self._unlock(log_dir)
        for listener in self.on_offline:
            listener(failure, [found.tp for found in gone])

    def _note_offline(self, failure: LogDirFailed) -> None:
        text = str(failure)
        if isinstance(failure.error, OSError) and is_of_one_file(failure.error):
            text += "; make it a file that this user can read and write"
        self.offline[failure.directory] = text
        if self._starting:
            self._unsaid.append(text)
        else:
            log.error("%s; it is offline until the next start", text)

    def _unlock(self, log_dir: LogDir) -> None:
        _locked_here.discard(os.path.realpath(log_dir.path))
        os.close(log_dir.lock_fd)

    async def close(self, broker_epoch: int = -1) -> None:
        """A clean stop: flush and close every log, checkpoint, and say so in .kafka_cleanshutdown, last of all.

        Where that was not possible, `not_closed` tells why.
        """
        await asyncio.gather(*(self._close_dir(log_dir, broker_epoch) for log_dir in list(self.dirs.values())))
        self.not_closed = self.offline | self.not_closed

    async def _close_dir(self, log_dir: LogDir, broker_epoch: int) -> None:
        await log_dir.disk.drain()
        try:
            await log_dir.disk.call("closing its logs", partial(_close_logs, self.logs_in(log_dir)))
            if log_dir.loaded:  # else the checkpoints know more than we do
                await self.checkpoint_recovery_points(log_dir)
                await self.checkpoint_log_starts(log_dir)
                await self.checkpoint_high_watermarks(log_dir)
            if (why := _why_unclean(log_dir)) is not None:
                self.not_closed[log_dir.path] = why
            else:
                job = partial(write_clean_shutdown, self.files, log_dir.path, broker_epoch)
                await log_dir.disk.call(f"writing {names.CLEAN_SHUTDOWN_FILE}", job)
        except (LogDirFailed, StorageError) as error:
            log.error("%s was not closed cleanly: %s", log_dir.path, error)
            self.not_closed[log_dir.path] = str(error)
        await log_dir.disk.stop()
        if self.dirs.pop(log_dir.path, None) is not None:
            self._unlock(log_dir)


def _in_use(path: str) -> LogDirLocked:
    return LogDirLocked(f"log directory {path} is in use by another broker (its .lock is held)")


def _why_unclean(log_dir: LogDir) -> str | None:
    """Why a directory must not be said to be closed cleanly, even if all that was opened in it was."""
    if not log_dir.loaded:
        return f"log directory {log_dir.path} was not loaded"
    if log_dir.has_leftovers and not log_dir.was_clean:
        offline = ", ".join(sorted(map(str, log_dir.offline_logs))) or "what is left of a move"
        return f"in log directory {log_dir.path} these could not be opened, and were not recovered: {offline}"
    return None


def _close_logs(logs: Iterable[Log]) -> None:
    for found in logs:
        found.close()


def _bytes_to_recover(opening: Opening) -> int:
    """The size of the segments that a recovery will read."""
    sizes: dict[Offset, int] = {}
    with suppress(OSError):  # who opens the log says what is wrong with it
        for name in os.listdir(opening.directory):
            parsed = names.parse_file_name(name)
            if parsed is not None and parsed[1:] == (names.LOG, ""):
                sizes[parsed[0]] = os.stat(os.path.join(opening.directory, name)).st_size
    first = max((base for base in sizes if base <= opening.recovery_point), default=0)
    return sum(size for base, size in sizes.items() if base >= first)


def _remove_tree(files: Files, directory: str) -> None:
    """All of it, and whatever a person put there. What cannot be removed is tried again at the next start."""
    try:
        if os.path.islink(directory) or not os.path.isdir(directory):
            files.unlink(directory)
            return
        for name in files.listdir(directory):
            path = os.path.join(directory, name)
            if os.path.isdir(path) and not os.path.islink(path):
                _remove_tree(files, path)
            else:
                remove_files(files, [path])
        files.rmdir(directory)
        log.debug("removed %s", directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        if not is_of_one_file(error):
            raise
        log.error("%s cannot be removed: %s", directory, error)


def _ignore(_: object) -> None:
    """For jobs whose end is nobody's concern."""

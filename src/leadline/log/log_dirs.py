"""The log directories of a broker: locked, loaded, checkpointed, and taken offline one by one when a disk fails.

    a partition is in one directory; a replica that moves to another is there as -future until it has caught up
    .kafka_cleanshutdown is written only where every log was loaded and closed

A directory whose disk fails goes offline with its partitions; the others continue. A partition whose own files cannot
be used goes offline alone. The broker logs the reason and the cure, and changes nothing in its directory or its
checkpoints.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain

from leadline.config.live_settings import LiveSettings
from leadline.config.topic import LogConfig
from leadline.errors import (
    UNUSABLE_DIR_REMEDY,
    UNUSABLE_REMEDY,
    CorruptFile,
    LogDirFailed,
    LogDirLocked,
    ResourceExhausted,
    StorageError,
)
from leadline.log import names
from leadline.log.checkpoints import read_meta_properties, write_clean_shutdown, write_meta_properties
from leadline.log.dir_checkpoints import DirCheckpoints
from leadline.log.disk_thread import DiskThread
from leadline.log.files import is_of_one_file, unless_unusable, unusable_file
from leadline.log.local_log import LocalLog
from leadline.log.log import Log
from leadline.log.log_context import LogContext
from leadline.log.log_creation import CreatedLog, LogCreation
from leadline.log.log_deletion import LogDeletion
from leadline.log.log_dir import DirLock, LogDir, OfflineLog
from leadline.log.log_dir_set import LogDirSet, TopicConfigs
from leadline.log.log_loading import LoadPlan, LogLoading, PlannedLog, RecoveryProgress
from leadline.log.log_truncation import LogTruncation
from leadline.log.names import DirMark
from leadline.log.recovery import Opening, open_log
from leadline.model import Offset, TopicId, TopicPartition
from leadline.runtime.latency_histogram import LatencyHistogram
from leadline.runtime.ports import Chance, Files, Time, shortage
from leadline.runtime.threads import new_threads
from leadline.runtime.turns import over_turns

log = logging.getLogger(__name__)

LEAST_PORTIONS = 256  # into which the logs of a directory are divided for its threads, if there are as many
MOST_AT_ONCE = 64  # logs in one portion

OfflineListener = Callable[[list[TopicPartition]], None]  # of partitions that go offline


class LogDirs(LogDirSet):
    def __init__(
        self,
        settings: LiveSettings,
        clock: Time,
        chance: Chance,
        files: Files,
        topic_config: TopicConfigs = lambda _: LogConfig(),
    ) -> None:
        super().__init__(settings, clock, chance, files, topic_config)
        self.checkpoints = DirCheckpoints(self)
        self.truncation = LogTruncation(self, self.checkpoints)
        self.deletion = LogDeletion(self, self.checkpoints)
        self.not_closed: dict[str, str] = {}  # directories without .kafka_cleanshutdown after `close`, and why
        self.uncreated: dict[TopicPartition, str] = {}  # because a resource ran out, with the reason
        self.recovery = RecoveryProgress()
        self.flush_times = LatencyHistogram()
        self.on_offline: list[OfflineListener] = []
        self._contexts: dict[LogDir, LogContext] = {}
        self._creating = asyncio.Lock()
        self._starting = True
        self._unreported: list[str] = []  # failures during the start: if all directories fail, one line says why

    # Opening

    async def open(self) -> None:
        """Lock and load all directories. LogDirFailed if none of them can be used."""
        self.lock()
        await self.load()

    def lock(self) -> None:
        """Exclude other brokers. The settings of topics must be known before `load`."""
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

    def _lock(self, path: str) -> None:
        self.files.make_dirs(path)
        lock = DirLock(self.files, path)
        is_new = not self.files.exists(os.path.join(path, names.META_PROPERTIES_FILE))
        disk = DiskThread(path, self.take_offline, lambda: log_dir.is_there(self.files))
        log_dir = self.dirs[path] = LogDir(path, lock, disk, is_new=is_new)

    def _unlock_all(self) -> None:
        for log_dir in self.dirs.values():
            log_dir.lock.release()
        self.dirs.clear()

    async def load(self) -> None:
        """Open the logs in all directories, each with its own threads."""
        loading = LogLoading(self.files, self.config, self.topic_config, self.recovery)
        await asyncio.gather(*(self._load(log_dir, loading) for log_dir in list(self.dirs.values())))
        self._starting = False
        self._check_any_left()

    def _check_any_left(self) -> None:
        """LogDirFailed if no directory is online. Otherwise the ones that failed during the start are reported."""
        if not self.dirs:
            reasons = "; ".join(self.offline.values())
            if len(self.offline) == 1:
                raise LogDirFailed(next(iter(self.offline)), "starting", OSError(reasons), reasons)
            raise LogDirFailed(",".join(self.config.log_dirs), "opening all of them", OSError(reasons))
        for text in self._unreported:
            log.error("%s; it is offline until the next start", text)
        self._unreported.clear()

    async def _load(self, log_dir: LogDir, loading: LogLoading) -> None:
        loop = asyncio.get_running_loop()
        threads = new_threads(self.config.num_recovery_threads_per_data_dir, f"log-recovery-{log_dir.path}")
        try:
            plan = await loop.run_in_executor(threads, loading.plan, log_dir)
            log_dir.broker_epoch = plan.broker_epoch
            log_dir.was_clean = plan.broker_epoch is not None
            self.recovery.logs += len(plan.logs)
            self.recovery.bytes_total += plan.bytes_to_read
            context = self._context(log_dir)
            size = min(max(len(plan.logs) // LEAST_PORTIONS, 1), MOST_AT_ONCE)
            portions = [plan.logs[start : start + size] for start in range(0, len(plan.logs), size)]
            opened = await asyncio.gather(
                *(loop.run_in_executor(threads, loading.open_all, portion, context) for portion in portions)
            )
        except OSError as error:
            if (lacking := shortage(error)) is not None:  # not the fault of the disk: the directory stays online
                raise ResourceExhausted(f"loading {log_dir.path} failed: {lacking}") from error
            self.take_offline(LogDirFailed(log_dir.path, "loading its logs", error))
            return
        except asyncio.CancelledError:
            self.recovery.is_cancelled = True
            raise
        finally:  # no thread writes to a directory whose lock is released
            threads.shutdown(wait=self.recovery.is_cancelled, cancel_futures=True)
        async for planned, outcome in over_turns(zip(plan.logs, chain.from_iterable(opened), strict=True)):
            self._add(log_dir, planned, outcome)
        log_dir.loaded = True
        async for tp, offset in over_turns(plan.high_watermarks.items()):
            self._set_high_watermark(log_dir, tp, offset)
        if plan.logs and not log_dir.was_clean:
            await self._recovered(log_dir, plan)

    async def _recovered(self, log_dir: LogDir, plan: LoadPlan) -> None:
        log.info(
            "%s was not stopped cleanly and is recovered. Partitions: %d, bytes that were read again: %d",
            log_dir.path, len(plan.logs), plan.bytes_to_read,
        )  # fmt: skip
        with suppress(LogDirFailed, StorageError):  # the next checkpoint comes soon
            # A log that lost records below its old recovery point is not flushed up to there any more.
            await self.checkpoints.write_recovery_points(log_dir)

    def _context(self, log_dir: LogDir) -> LogContext:
        """One for all logs of a directory."""
        context = self._contexts.get(log_dir)
        if context is None:
            flushed = partial(self.checkpoints.segment_flushed, log_dir)
            context = LogContext(
                self.clock, self.chance, self.files, log_dir.disk, self.log_failed, flushed, self.unindexed,
                self.flush_times,
            )  # fmt: skip
            context = self._contexts.setdefault(log_dir, context)
        return context

    def _add(self, log_dir: LogDir, planned: PlannedLog, outcome: Log | CorruptFile | None) -> None:
        tp, directory = planned.opening.tp, planned.opening.directory
        if outcome is None:
            if planned.mark is DirMark.DELETE:
                self.deletion.remove_later(log_dir, directory)
            else:
                log.warning("%s is a stray replica and is not used", directory)
        elif isinstance(outcome, CorruptFile):
            log_dir.has_leftovers = True
            self.note_offline_log(log_dir, OfflineLog(tp, directory, outcome, planned.checkpoints), planned.mark)
        else:
            logs = self.future if planned.mark is DirMark.FUTURE else self.logs
            if (other := logs.setdefault(tp, outcome)) is not outcome:
                log.error(
                    "%s is in %s too, which happens when a disk fails during a move; %s is not used: remove one",
                    tp, other.directory, directory,
                )  # fmt: skip
                log_dir.has_leftovers = True

    def _set_high_watermark(self, log_dir: LogDir, tp: TopicPartition, offset: Offset) -> None:
        if tp in self.logs and self.logs[tp].parent == log_dir.path:
            self.logs[tp].set_high_watermark(offset)

    # meta.properties

    def meta_properties(self) -> dict[str, dict[str, str]]:
        """The broker and cluster that each directory belongs to. A directory whose file cannot be read goes offline."""
        by_path: dict[str, dict[str, str]] = {}
        for path in list(self.dirs):
            try:
                if (properties := read_meta_properties(self.files, path)) is not None:
                    by_path[path] = properties
            except (OSError, CorruptFile) as error:
                self.take_offline(LogDirFailed(path, f"reading {names.META_PROPERTIES_FILE}", error))
        self._check_any_left()
        return by_path

    async def write_meta_properties(self, properties: Mapping[str, str]) -> None:
        for log_dir in list(self.dirs.values()):
            job = partial(write_meta_properties, self.files, log_dir.path, properties, self.clock.now_ms())
            try:
                await log_dir.disk.call(doing := f"writing {names.META_PROPERTIES_FILE}", job)
            except ResourceExhausted:
                raise
            except StorageError as error:
                self.take_offline(LogDirFailed(log_dir.path, doing, error))
        self._check_any_left()

    # Creating

    async def create(
        self, tp: TopicPartition, topic_id: TopicId | None = None, *, path: str | None = None, future: bool = False
    ) -> Log:
        """The log of a partition: the one that exists, or a new one in the emptiest directory or in `path`."""
        logs = self.future if future else self.logs
        async with self._creating:
            if tp not in logs:
                self.check_usable(tp)
                log_dir = self.emptiest_dir() if path is None else self.online_dir(path)
                directory = log_dir.file(self.dir_name(tp, DirMark.FUTURE if future else None))
                job = partial(self._creation().create, log_dir, tp, directory)
                created = await log_dir.disk.call(f"creating {tp}", job)
                if isinstance(created, CorruptFile):
                    self.not_opened(log_dir, tp, directory, created)
                    self.check_usable(tp)
                    raise StorageError(f"{tp} cannot be moved to {log_dir.path}: {created}")
                logs[tp] = created
                self.uncreated.pop(tp, None)
            created = logs[tp]
        if topic_id is not None:
            created.assign_topic_id(topic_id)
        return created

    async def create_all(self, topic_ids: Mapping[TopicPartition, TopicId | None]) -> None:
        """As `create`, for many partitions, which share the waits for the disk.

        Those for which a resource was short are in `uncreated`, and nothing is left of them.
        """
        async with self._creating:
            new = [tp for tp in topic_ids if tp not in self.logs and self.offline_log(tp) is None]
            for log_dir, missing in self.spread(new):
                job = partial(self._creation().create_all, log_dir, {tp: topic_ids[tp] for tp in missing})
                try:
                    outcomes = await log_dir.disk.call(f"creating {len(missing)} logs", job)
                except ResourceExhausted as error:
                    outcomes = dict.fromkeys(missing, error)
                self._created(log_dir, outcomes)

    def _created(self, log_dir: LogDir, outcomes: Mapping[TopicPartition, CreatedLog]) -> None:
        before = len(self.uncreated)
        for tp, created in outcomes.items():
            self.uncreated.pop(tp, None)
            if isinstance(created, CorruptFile):
                self.not_opened(log_dir, tp, log_dir.file(names.dir_name(tp)), created)
            elif isinstance(created, ResourceExhausted):
                self.uncreated[tp] = str(created)
            else:
                self.logs[tp] = created
        if len(self.uncreated) > before:
            first = next(iter(self.uncreated.values()))
            log.error("retrying to create partitions that could not be created: %d. %s", len(self.uncreated), first)

    def _creation(self) -> LogCreation:
        return LogCreation(self.files, self._open_new)

    def _open_new(self, log_dir: LogDir, tp: TopicPartition, directory: str) -> Log | CorruptFile:
        expiration = self.config.producer_id_expiration_ms
        opening = Opening(tp, directory, self.topic_config(tp.topic), True, producer_expiration_ms=expiration)
        try:
            return open_log(opening, self._context(log_dir))
        except CorruptFile as error:
            return error

    # Moving

    async def replace_with_future(self, tp: TopicPartition, switched: Callable[[], None] = lambda: None) -> None:
        """The replica that moves has caught up: it takes the place of the one that it was copied from.

        `switched` is called at that moment.
        """
        async with self.cleaning.paused(tp):
            current, moved = self.log_of(tp), self.log_of(tp, future=True)
            source, target = self.dir_of(current), self.dir_of(moved)
            moved.flush(active=True)  # data that is flushed in the old place must be flushed in the new one
            await target.disk.drain()
            moved.is_moving = current.is_moving = True
            try:
                # This rename comes first: a crash may leave two replicas, never none.
                moved.moved(await self.deletion.rename(target, moved.directory, names.dir_name(tp)))
                current.moved(await self.deletion.rename(source, current.directory, self.dir_name(tp, DirMark.DELETE)))
            finally:
                moved.is_moving = current.is_moving = False
            moved.set_high_watermark(current.high_watermark)
            self.future.pop(tp, None)
            self.logs[tp] = moved
            switched()
        cleaned_to = (await self.checkpoints.cleaned_offsets()).get(tp)
        if cleaned_to is not None:
            await self.checkpoints.write_cleaned_offsets(target, {tp: cleaned_to})
        self.deletion.remove_later(source, current.directory)
        for log_dir in (source, target):
            await self.checkpoints.write_recovery_points(log_dir)
            await self.checkpoints.write_log_starts(log_dir)

    # Settings

    def reconfigure(self) -> None:
        """The broker's settings changed."""
        for changed in self.all_logs():
            changed.producer_state.expiration_ms = self.config.producer_id_expiration_ms

    def update_config(self, *topics: str) -> None:
        """The settings of topics changed."""
        configs = {topic: self.topic_config(topic) for topic in topics}
        for changed in self.all_logs():
            if (config := configs.get(changed.tp.topic)) is not None:
                changed.update_config(config)

    # Failures

    def log_failed(self, log: LocalLog, doing: str, error: OSError | CorruptFile) -> None:
        """A file of a log that cannot be used takes that log offline; the disk's fault, the whole directory.

        Nothing is the fault of one file in a directory that is not there any more.
        """
        unusable, log_dir = unusable_file(error, log.directory), self.dirs.get(log.parent)
        if log_dir is not None and unusable is not None and log_dir.is_there(self.files):
            self.take_log_offline(log, unusable)
        else:
            failure = LogDirFailed(log.parent, f"{doing} {log.tp}", error)
            log.go_offline(f"{log.tp} is offline: {failure}")
            self.take_offline(failure)

    def take_log_offline(self, log: LocalLog, error: CorruptFile) -> None:
        """A file of a loaded log cannot be used. Nothing happens to a log that was deleted or replaced."""
        logs = next((logs for logs in (self.logs, self.future) if logs.get(log.tp) is log), None)
        if logs is None:
            return
        unusable, log_dir = logs.pop(log.tp), self.dirs[log.parent]
        checkpoints = {
            names.RECOVERY_POINTS_FILE: unusable.flushed_to,
            names.HIGH_WATERMARKS_FILE: unusable.high_watermark,
            names.LOG_STARTS_FILE: unusable.log_start,
        }
        offline = OfflineLog(unusable.tp, unusable.directory, error, checkpoints)
        unusable.go_offline(str(offline))
        log_dir.has_unflushed |= unusable.flushed_to < unusable.log_end
        self.note_offline_log(log_dir, offline, DirMark.FUTURE if logs is self.future else None)
        for listener in self.on_offline if logs is self.logs else ():
            listener([unusable.tp])

    def take_offline(self, failure: LogDirFailed) -> None:
        """A disk failed: its partitions go offline, and nothing is written to it any more."""
        log_dir = self.dirs.pop(failure.directory, None)
        if log_dir is None:
            return
        self._note_offline(failure)
        lost = self.logs_in(log_dir)
        for offline in lost:
            offline.go_offline(f"{offline.tp} is offline: {failure}")
            for logs in (self.logs, self.future):
                if logs.get(offline.tp) is offline:
                    del logs[offline.tp]
        log_dir.lock.release()
        for listener in self.on_offline:
            listener([offline.tp for offline in lost])

    def _note_offline(self, failure: LogDirFailed) -> None:
        text = str(failure)
        if isinstance(failure.error, OSError) and is_of_one_file(failure.error):
            text += f"; {self._remedy(failure.directory, failure.error)}"
        self.offline[failure.directory] = text
        if self._starting:
            self._unreported.append(text)
        else:
            log.error("%s; it is offline until the next start", text)

    def _remedy(self, directory: str, error: OSError) -> str:
        """The directory is to blame if it is none, or if a file in it could not be created."""
        is_new_file = isinstance(error, PermissionError) and not self.files.exists(str(error.filename))
        return UNUSABLE_REMEDY if self.files.is_dir(directory) and not is_new_file else UNUSABLE_DIR_REMEDY

    # The end

    async def close(self, broker_epoch: int = -1) -> None:
        """A clean stop: flush and close every log, write the checkpoints, and .kafka_cleanshutdown last of all.

        `not_closed` has the directories where that was not possible, with the reason. A directory that is closed
        stays in `dirs` until all are: another one that fails now is not the last one.
        """
        await asyncio.gather(*(self._close_dir(log_dir, broker_epoch) for log_dir in list(self.dirs.values())))
        self.not_closed = self.offline | self.not_closed
        while self.dirs:
            self.dirs.popitem()[1].lock.release()

    async def _close_dir(self, log_dir: LogDir, broker_epoch: int) -> None:
        await log_dir.disk.drain()
        try:
            for closed, outcome in await log_dir.disk.call("closing its logs", partial(_close, self.logs_in(log_dir))):
                if outcome is not None:
                    self.log_failed(closed, "closing", outcome)
            if log_dir.loaded:  # otherwise the checkpoint files hold more than is known here
                await self.checkpoints.write_recovery_points(log_dir)
                await self.checkpoints.write_log_starts(log_dir)
                await self.checkpoints.write_high_watermarks(log_dir)
            if (reason := log_dir.unclean_reason()) is not None:
                self.not_closed[log_dir.path] = reason
            else:
                job = partial(write_clean_shutdown, self.files, log_dir.path, broker_epoch)
                await log_dir.disk.call(f"writing {names.CLEAN_SHUTDOWN_FILE}", job)
        except (LogDirFailed, StorageError) as error:
            log.error("%s was not closed cleanly: %s", log_dir.path, error)
            self.not_closed[log_dir.path] = str(error)
        await log_dir.disk.stop()


def _close(logs: Iterable[Log]) -> list[tuple[Log, OSError | CorruptFile | None]]:
    """One with a file that cannot be used does not keep the others from being closed."""
    return [(log, unless_unusable(log.close)) for log in logs]

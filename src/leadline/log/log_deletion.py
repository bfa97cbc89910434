"""Deletes whole logs: the directory is renamed at once, and removed after file.delete.delay.ms.

Logs that are deleted together share the flush of their parent directory and the checkpoints, in portions.

A crash in between leaves a directory that the next start removes.
"""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial

from leadline.errors import LogDirFailed, StorageError
from leadline.log.dir_checkpoints import DirCheckpoints
from leadline.log.files import remove_tree
from leadline.log.log import Log
from leadline.log.log_dir import LogDir
from leadline.log.log_dir_set import LogDirSet
from leadline.log.names import DirMark
from leadline.model import TopicPartition
from leadline.runtime.ports import Files

PORTION = 64  # logs that one job of a directory's thread renames or removes


class LogDeletion:
    def __init__(self, dirs: LogDirSet, checkpoints: DirCheckpoints) -> None:
        self._dirs, self._checkpoints = dirs, checkpoints

    async def delete(self, tp: TopicPartition, *, future: bool = False, mark: DirMark = DirMark.DELETE) -> None:
        """Rename a log. As -delete it is removed after file.delete.delay.ms; as -stray it stays."""
        logs = self._dirs.future if future else self._dirs.logs
        log_dir = self._dirs.dir_of(logs[tp])
        await self._delete_portion(log_dir, [tp], logs, mark)
        await self._checkpoint_deletion(log_dir)

    async def delete_all(self, tps: Iterable[TopicPartition]) -> set[TopicPartition]:
        """As `delete`, for many. Returns the partitions for which the disk failed, or a resource was short."""
        by_dir: dict[str, list[TopicPartition]] = {}
        for tp in tps:
            by_dir.setdefault(self._dirs.logs[tp].parent, []).append(tp)
        failed: set[TopicPartition] = set()
        for path, deleted in by_dir.items():
            try:
                await self._delete_in(self._dirs.dirs[path], deleted)
            except (LogDirFailed, StorageError):
                failed.update(deleted)
        return failed

    async def _delete_in(self, log_dir: LogDir, tps: Sequence[TopicPartition]) -> None:
        for at in range(0, len(tps), PORTION):
            await self._delete_portion(log_dir, tps[at : at + PORTION], self._dirs.logs, DirMark.DELETE)
        await self._checkpoint_deletion(log_dir)

    async def _delete_portion(
        self, log_dir: LogDir, tps: Sequence[TopicPartition], logs: dict[TopicPartition, Log], mark: DirMark
    ) -> None:
        async with AsyncExitStack() as stack:
            for tp in tps:
                await stack.enter_async_context(self._dirs.cleaning.paused(tp))
            for tp in tps:
                if tp not in logs:  # it went offline in the meantime
                    raise StorageError(f"{tp} cannot be deleted as it is")
            deleted = [logs.pop(tp) for tp in tps]
            names = [self._dirs.dir_name(tp, mark) for tp in tps]
            renamed = await self._rename_all(log_dir, [log.directory for log in deleted], names, missing_ok=True)
            for log, directory in zip(deleted, renamed, strict=True):
                log.moved(directory)
        if mark is DirMark.DELETE:
            self.remove_later(log_dir, *renamed)

    async def delete_offline(self, tp: TopicPartition) -> None:
        """As `delete`, for a partition whose files cannot be used, if there is one."""
        for log_dir in self._dirs.dirs.values():
            if (offline := log_dir.offline_logs.pop(tp, None)) is not None:
                name = self._dirs.dir_name(tp, DirMark.DELETE)
                renamed = await self.rename(log_dir, offline.directory, name, missing_ok=True)
                self.remove_later(log_dir, renamed)
                await self._checkpoint_deletion(log_dir)
                return

    async def _checkpoint_deletion(self, log_dir: LogDir) -> None:
        await self._checkpoints.write_recovery_points(log_dir)
        await self._checkpoints.write_log_starts(log_dir)
        await self._checkpoints.write_cleaned_offsets(log_dir, {})

    async def rename(self, log_dir: LogDir, directory: str, name: str, *, missing_ok: bool = False) -> str:
        """Rename the directory of a log, durably. Returns its new path."""
        (renamed,) = await self._rename_all(log_dir, [directory], [name], missing_ok=missing_ok)
        return renamed

    async def _rename_all(
        self, log_dir: LogDir, directories: Sequence[str], names: Sequence[str], *, missing_ok: bool
    ) -> list[str]:
        targets = [log_dir.file(name) for name in names]

        def rename() -> None:
            for directory, target in zip(directories, targets, strict=True):
                with suppress(*[FileNotFoundError] if missing_ok else []):  # somebody has removed it before us
                    self._dirs.files.rename(directory, target)
            self._dirs.files.sync_dir(log_dir.path)

        await log_dir.disk.call(f"renaming {directories[0]}", rename)
        return targets

    def remove_later(self, log_dir: LogDir, *directories: str) -> None:
        """After file.delete.delay.ms: readers may still be sent what they asked for."""
        job = partial(_remove_all, self._dirs.files, directories)
        delay_ms = self._dirs.topic_config("").file_delete_delay_ms
        log_dir.disk.later(delay_ms, lambda: log_dir.disk.run(f"removing {directories[0]}", job, lambda _: None))


def _remove_all(files: Files, directories: Iterable[str]) -> None:
    for directory in directories:
        remove_tree(files, directory)

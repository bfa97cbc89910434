"""Deletes whole logs: the directory is renamed at once, and removed after file.delete.delay.ms.

A crash in between leaves a directory that the next start removes.
"""

from functools import partial

from leadline.log.dir_checkpoints import DirCheckpoints
from leadline.log.files import remove_tree
from leadline.log.log_dir import LogDir
from leadline.log.log_dir_set import LogDirSet
from leadline.log.names import DirMark
from leadline.model import TopicPartition


class LogDeletion:
    def __init__(self, dirs: LogDirSet, checkpoints: DirCheckpoints) -> None:
        self._dirs, self._checkpoints = dirs, checkpoints

    async def delete(self, tp: TopicPartition, *, future: bool = False, mark: DirMark = DirMark.DELETE) -> None:
        """Rename a log. As -delete it is removed after file.delete.delay.ms; as -stray it stays."""
        async with self._dirs.cleaning.paused(tp):
            deleted = (self._dirs.future if future else self._dirs.logs).pop(tp)
            log_dir = self._dirs.dir_of(deleted)
            deleted.moved(await self.rename(log_dir, deleted.directory, self._dirs.dir_name(tp, mark)))
        if mark is DirMark.DELETE:
            self.remove_later(log_dir, deleted.directory)
        await self._checkpoint_deletion(log_dir)

    async def delete_offline(self, tp: TopicPartition) -> None:
        """As `delete`, for a partition whose files cannot be used, if there is one."""
        for log_dir in self._dirs.dirs.values():
            if (offline := log_dir.offline_logs.pop(tp, None)) is not None:
                renamed = await self.rename(log_dir, offline.directory, self._dirs.dir_name(tp, DirMark.DELETE))
                self.remove_later(log_dir, renamed)
                await self._checkpoint_deletion(log_dir)
                return

    async def _checkpoint_deletion(self, log_dir: LogDir) -> None:
        await self._checkpoints.write_recovery_points(log_dir)
        await self._checkpoints.write_log_starts(log_dir)
        await self._checkpoints.write_cleaned_offsets(log_dir, {})

    async def rename(self, log_dir: LogDir, directory: str, name: str) -> str:
        """Rename the directory of a log, durably. Returns its new path."""
        target = log_dir.file(name)

        def rename() -> None:
            self._dirs.files.rename(directory, target)
            self._dirs.files.sync_dir(log_dir.path)

        await log_dir.disk.call(f"renaming {directory}", rename)
        return target

    def remove_later(self, log_dir: LogDir, directory: str) -> None:
        """After file.delete.delay.ms: readers may still be sent what they asked for."""
        job = partial(remove_tree, self._dirs.files, directory)
        delay_ms = self._dirs.topic_config("").file_delete_delay_ms
        log_dir.disk.later(delay_ms, lambda: log_dir.disk.run(f"removing {directory}", job, lambda _: None))

"""Creating the directories and files of new logs. It runs in the thread of their log directory.

if a resource runs out, a directory that cannot be completed is removed again
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from leadline.errors import CorruptFile, ResourceExhausted
from leadline.log import names
from leadline.log.files import remove_tree, unusable_file
from leadline.log.log import Log
from leadline.log.log_dir import LogDir
from leadline.model import TopicId, TopicPartition
from leadline.runtime.ports import Files, shortage
from leadline.runtime.threads import new_threads

CREATION_THREADS = 16  # each log waits for the disk a few times

CreatedLog = Log | CorruptFile | ResourceExhausted
OpenNew = Callable[[LogDir, TopicPartition, str], Log | CorruptFile]  # CorruptFile: another file has its place


class LogCreation:
    def __init__(self, files: Files, open_new: OpenNew) -> None:
        self._files, self._open_new = files, open_new

    def create(self, log_dir: LogDir, tp: TopicPartition, directory: str) -> Log | CorruptFile:
        with self._new_directories([directory]):
            self._files.sync_dir(log_dir.path)
            return self._open_new(log_dir, tp, directory)

    def create_all(
        self, log_dir: LogDir, topic_ids: Mapping[TopicPartition, TopicId | None]
    ) -> dict[TopicPartition, CreatedLog]:
        """Several at a time, so that they share the waits for the disk."""
        directories = {tp: log_dir.file(names.dir_name(tp)) for tp in topic_ids}
        with self._new_directories(directories.values()) as new:
            self._files.sync_dir(log_dir.path)

        def create(tp: TopicPartition) -> CreatedLog:
            directory = directories[tp]
            try:
                return self._open_with_id(log_dir, tp, directory, topic_ids[tp])
            except (OSError, MemoryError) as error:
                if (lacking := shortage(error)) is None:
                    if isinstance(error, OSError) and (unusable := unusable_file(error, directory)) is not None:
                        return unusable
                    raise
                if directory in new:
                    self._discard(directory)
                return ResourceExhausted(f"creating {tp} in {log_dir.path} failed: {lacking}")

        try:
            with new_threads(CREATION_THREADS, "log-creation") as threads:
                return dict(zip(topic_ids, threads.map(create, topic_ids), strict=True))
        except RuntimeError as error:
            if shortage(error) is None:
                raise
            return {tp: create(tp) for tp in topic_ids}  # no further thread can be started: create them one by one

    def _open_with_id(
        self, log_dir: LogDir, tp: TopicPartition, directory: str, topic_id: TopicId | None
    ) -> Log | CorruptFile:
        created = self._open_new(log_dir, tp, directory)
        if not isinstance(created, CorruptFile) and created.topic_id is None and topic_id is not None:
            created.topic_id = topic_id
            created.write_topic_id(topic_id)
        return created

    @contextmanager
    def _new_directories(self, directories: Iterable[str]) -> Iterator[set[str]]:
        """Create those that do not exist, and remove them again if the block fails because a resource ran out."""
        new: set[str] = set()
        try:
            for directory in directories:
                with suppress(FileExistsError):
                    self._files.mkdir(directory)
                    new.add(directory)
            yield new
        except (OSError, MemoryError) as error:
            if shortage(error) is not None:
                for directory in new:
                    self._discard(directory)
            raise

    def _discard(self, directory: str) -> None:
        with suppress(OSError):  # the next attempt completes the rest
            remove_tree(self._files, directory)

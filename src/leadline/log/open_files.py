"""The open files of logs. They are opened on demand, and a limited number stays open.

The number of segments is therefore not bound by `ulimit -n`, and connections find descriptors, too.

    a file with unflushed data is closed only once the disk has that data. If no descriptor is open, Linux reports the
    failure of a later write nowhere, and a flush through a new descriptor would succeed
    a write that failed fails every later flush of the file
"""

import contextlib
import errno
import mmap
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from weakref import ref

from leadline.log.files import FILE_MODE, name_file, naming, write_all
from leadline.model import Buffer
from leadline.runtime.ports import Files, descriptor_limit

MADE_AT_ONCE = 16  # descriptors to close when none is left
KEPT_FREE = 64  # descriptors that connections may not take, at least
LEAST_CACHED = 16  # files of logs that stay open, however low the limit is
CLOSING_SHARE = 8  # of the files that may be open, one in this many may wait for the disk before it is closed
TO_THE_END = 0  # as the length of a range


class OpenFile:
    """A descriptor that is closed when its last reference goes.

    A segment and every slice that a reader still sends hold one: deleting the segment drops its reference, the
    readers finish on theirs, and the number is never reused under them. Its methods hold it, too: a caller
    needs no variable for it while another thread may close idle files.
    """

    __slots__ = ("_files", "ahead_to", "ends_at", "failure", "fd", "is_dirty", "is_dismissed", "path")

    def __init__(self, files: Files, path: str, *, create: bool = False) -> None:
        self._files, self.path, self.fd = files, path, -1
        self.is_dirty = False  # written to since the last flush began
        self.is_dismissed = False  # its owner opens another one when it needs the file again
        self.failure: OSError | None = None  # of a write to the disk: written data may be lost
        self.ends_at: int | None = None  # a reader found its end here, before the end of the written data
        self.ahead_to = 0  # the disk was asked to read ahead up to here, for a sequential reader
        self.fd = files.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), FILE_MODE)

    def __del__(self) -> None:
        if self.fd >= 0:
            if self.is_dirty and self.is_dismissed:  # written to at the moment of its dismissal
                self.write_to_disk()
            with contextlib.suppress(OSError):
                self._files.close(self.fd)
            self.fd = -1

    @property
    def size(self) -> int:
        return self._files.size(self.fd)

    @property
    def mtime_ms(self) -> int:
        return self._files.mtime_ms(self.fd)

    def pread(self, length: int, position: int) -> bytes:
        try:
            return self._files.pread(self.fd, length, position)
        except OSError as error:
            name_file(error, self.path)
            raise

    def write(self, data: Buffer, position: int) -> None:
        """All of the data."""
        self.is_dirty = True
        try:
            written = self._files.pwrite(self.fd, data, position)
            if written != len(data):
                write_all(self._files, self.fd, memoryview(data)[written:], position + written)
        except OSError as error:
            name_file(error, self.path)
            raise

    def truncate(self, size: int) -> None:
        self.is_dirty = True
        with naming(self.path):
            self._files.ftruncate(self.fd, size)

    def sync(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.is_dirty = False  # first: later writes may be too late
        try:
            with naming(self.path):
                self._files.fsync(self.fd)
        except OSError as error:
            self.failure = error
            raise

    def is_cached(self, position: int, length: int) -> bool:
        """Whether a range can be read without waiting for the disk."""
        return self._files.is_cached(self.fd, position, length)

    def load(self, position: int, length: int) -> None:
        """Bring a range into memory. Blocks."""
        self._files.load(self.fd, position, length)

    def request_readahead(self, position: int, length: int) -> None:
        """Have the disk read a range that will be needed soon. May block."""
        self._files.request_readahead(self.fd, position, length)

    def write_back(self, position: int, length: int) -> bool:
        """Write a range back to the disk, and wait for that. False where the system cannot.

        The kernel reports a failure once for each descriptor. The file keeps it for the next flush.
        """
        try:
            return self._files.write_back(self.fd, position, length)
        except OSError as error:
            text = f"writing {self.path} back failed, and written data may be lost: {error.strerror}"
            self.failure = OSError(errno.EIO, text)
            return True

    def write_to_disk(self) -> None:
        """All data leaves the page cache, though not the cache of the disk: a flush has still to follow. Blocks."""
        while self.is_dirty and self.failure is None:
            self.is_dirty = False
            if not self.write_back(0, TO_THE_END):
                with contextlib.suppress(OSError):  # the file keeps it
                    self.sync()


class OpenFileCache:
    """The files that stay open because they may be used again, at most `capacity` of them.

    To open one more, one that was not used for a while is closed (second chance, in the order of opening). Closing
    drops the reference, from any thread: code that works with the file holds another one. A file with unflushed data is
    written to the disk first, in a thread. When too many wait for that, opening a file waits for the disk.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._opened: OrderedDict[ref[CachedFile], None] = OrderedDict()
        self._closing: deque[tuple[CachedFile, OpenFile]] = deque()
        self._closing_count = 0  # with the one that the thread has taken
        self._guard = threading.Lock()  # of the two above

    def __len__(self) -> int:
        return len(self._opened)

    def add(self, file: "CachedFile") -> None:
        while self._opened and len(self._opened) + self._closing_count >= self.capacity:
            self._close_one()
        self._opened[ref(file, self._forget)] = None

    def _forget(self, dead: "ref[CachedFile]") -> None:
        self._opened.pop(dead, None)

    def remove(self, file: "CachedFile") -> None:
        self._opened.pop(ref(file), None)

    def _close_one(self) -> None:
        with contextlib.suppress(KeyError):  # another thread was quicker
            key, _ = self._opened.popitem(last=False)
            file = key()
            if file is not None and file.used:
                file.used = False
                self._opened[key] = None
            elif file is not None and (opened := file.dismiss()) is not None and opened.is_dirty:
                self._close_when_written(file, opened)

    def _close_when_written(self, file: "CachedFile", opened: OpenFile) -> None:
        with self._guard:
            waits = self._closing_count < max(self.capacity // CLOSING_SHARE, 1)
            begins = waits and self._closing_count == 0
            if waits:
                self._closing.append((file, opened))
                self._closing_count += 1
        if not waits:
            file.write_to_disk(opened)
        elif begins:
            try:
                threading.Thread(target=self._close_written, name="closing-files", daemon=True).start()
            except RuntimeError:  # no thread can be started
                self._close_written()

    def _close_written(self) -> None:
        """Runs in the thread, which ends when nothing is left to do."""
        while True:
            file, opened = self._closing.popleft()
            file.write_to_disk(opened)
            del file, opened  # closes it
            with self._guard:
                self._closing_count -= 1
                if self._closing_count == 0:
                    return

    def make_room(self) -> bool:
        """The process has no descriptor left: close some files, used or not. False if there is none to close."""
        count = len(self._opened)
        for _ in range(min(count, MADE_AT_ONCE)):
            with contextlib.suppress(KeyError):
                key, _ = self._opened.popitem(last=False)
                if (file := key()) is not None and (opened := file.dismiss()) is not None:
                    file.write_to_disk(opened)
        return count > 0


class CachedFile:
    """A file of a log by its path: it is opened when it is used, and may be closed when it is idle."""

    __slots__ = ("__weakref__", "_cache", "_create", "_file", "_files", "failure", "path", "used")

    def __init__(self, files: Files, path: str, *, create: bool = False, cache: OpenFileCache | None = None) -> None:
        self._files, self.path, self._create = files, path, create
        self._cache = CACHE if cache is None else cache
        self._file: OpenFile | None = None
        self.used = False  # since the cache last checked
        self.failure: OSError | None = None  # of a write to the disk while it was closed

    def open(self) -> OpenFile:
        file = self._file
        if file is not None:
            self.used = True
            return file
        file = self._file = OpenFile(self._files, self.path, create=self._create)
        if self.failure is not None:
            raise self.failure
        self.used = False
        self._cache.add(self)
        return file

    def dismiss(self) -> OpenFile | None:
        """The cache drops its reference. Returns the open descriptor."""
        file, self._file = self._file, None
        if file is not None:
            file.is_dismissed = True
        return file

    def write_to_disk(self, dismissed: OpenFile) -> None:
        """Write back the data of a descriptor that is about to be closed. Blocks."""
        dismissed.write_to_disk()
        if dismissed.failure is not None:
            self.failure = dismissed.failure
            if (file := self._file) is not None:  # it was opened again in the meantime
                file.failure = dismissed.failure

    def close(self) -> None:
        """If it has unflushed data, it stays open, and the cache closes it when it needs the room."""
        if self._file is not None and not self._file.is_dirty:
            self._file = None
            self._cache.remove(self)

    def discard(self) -> None:
        """The file is about to be deleted: its data is not needed."""
        self._file = None
        self._cache.remove(self)

    def created(self) -> None:
        """The file exists from now on: if it is missing later, that is an error."""
        self._create = False

    def renamed(self, path: str) -> None:
        self.path = path
        if (file := self._file) is not None:
            file.path = path


class MappedFile:
    """A file mapped into memory, read ahead one window at a time.

    A failing disk under a mapping raises a signal that kills the process. So each window is made present first, by a
    call that returns an error instead. Windows that were read are released, to stay small.
    """

    WINDOW = 2 * 1024 * 1024

    def __init__(self, files: Files, file: OpenFile, size: int, progress: Callable[[int], None]) -> None:
        self._files, self._file, self._size, self._progress = files, file, size, progress
        self._map = files.map(file.fd, size)
        self.view = memoryview(self._map)
        self._behind = self._present = 0

    def __enter__(self) -> "MappedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.view.release()
        self._map.close()

    def reach(self, start: int, end: int) -> int:
        """Make the bytes up to `end` and some more present. Those before `start` are not needed again."""
        target = min(self._size, max(end, self._present + self.WINDOW))
        begin = self._present & ~(mmap.PAGESIZE - 1)
        try:
            self._files.populate(self._map, begin, target - begin)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise OSError(errno.EIO, f"cannot read {self._file.path} from byte {begin} on") from error
            self._files.pread(self._file.fd, target - begin, begin)  # an older kernel: a read shows whether it works
        done = start & ~(mmap.PAGESIZE - 1)
        if done > self._behind:
            self._map.madvise(mmap.MADV_DONTNEED, self._behind, done - self._behind)
            self._behind = done
        self._progress(target - self._present)
        self._present = target
        return target


def cache_capacity(limit: int) -> int:
    """The files of logs that may stay open: half of all descriptors. Connections and everything else get the rest."""
    return max(limit // 2, LEAST_CACHED)


def connection_capacity(limit: int) -> int:
    """The connections that leave descriptors for everything else: files of logs above all."""
    return limit - max(limit // 8, KEPT_FREE)


# One for the process, since the limit of descriptors is the process's: its brokers share both.
CACHE = OpenFileCache(cache_capacity(descriptor_limit()))

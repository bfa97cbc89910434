"""Files as several formats need them: whole reads and writes, atomic replacement, removal, and whose fault an error is.

an OSError names the file that it is about: whose fault it is depends on that (`unusable_file`)
"""

import contextlib
import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from leadline.errors import CorruptFile, UnusableFile
from leadline.model import Buffer
from leadline.runtime.ports import Files

log = logging.getLogger(__name__)

T = TypeVar("T")

FILE_MODE = 0o644
MOST_BYTES = 1 << 26  # of a file that is read at once; a checkpoint of a million partitions is smaller

OF_ONE_FILE = frozenset(
    {
        errno.EACCES, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENODEV,
        errno.ENOENT, errno.ENOTDIR, errno.ENOTEMPTY, errno.ENXIO, errno.EPERM, errno.ESPIPE,
    }
)  # fmt: skip


def is_of_one_file(error: OSError) -> bool:
    """Whether the system refuses this file alone: wrong permissions, a directory where a file should be.

    Everything else, such as EIO, EROFS, EFBIG or ENOSPC, is the fault of the disk or of its limits.
    """
    return error.errno in OF_ONE_FILE


def unusable_file(error: OSError | CorruptFile, directory: str) -> CorruptFile | None:
    """The file that caused an error, or its directory if the error names no file. None: the disk caused it.

    Only the partition of that file goes offline, whether it is being opened or in use. A shortage is neither the fault
    of the file nor of the disk: check for it first (`shortage`).
    """
    if isinstance(error, CorruptFile):
        return error
    if not is_of_one_file(error):
        return None
    in_the_way = None if error.errno == errno.ENOENT else error.filename2  # at the target of a rename
    return UnusableFile(in_the_way or error.filename or directory, error)


def unless_unusable(job: Callable[[], T]) -> T | OSError | CorruptFile:
    """What a job returns, or the error of a file that it cannot use. Any other error is raised."""
    try:
        return job()
    except (OSError, CorruptFile) as error:
        if unusable_file(error, "") is None:
            raise
        return error


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Adds the path to errors of work on a descriptor, whose file the system does not name."""
    try:
        yield
    except OSError as error:
        name_file(error, path)
        raise


def name_file(error: OSError, path: str) -> None:
    if error.errno is not None and error.filename is None:
        error.filename = path


def write_all(files: Files, fd: int, data: Buffer, position: int) -> None:
    """All of the data, also where the kernel takes it in pieces."""
    written, rest = 0, memoryview(data)
    while written < len(rest):
        written += files.pwrite(fd, rest[written:], position + written)


def read_file(files: Files, path: str, most_bytes: int = MOST_BYTES) -> bytes:
    """CorruptFile if it is larger than such a file can be: it is not read into memory."""
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with naming(path):
            size, parts, position = files.size(fd), list[bytes](), 0
            if size > most_bytes:
                raise CorruptFile(path, most_bytes, f"it has {size} bytes; no such file is larger than {most_bytes}")
            while position < size and (part := files.pread(fd, size - position, position)):
                parts.append(part)
                position += len(part)
            return b"".join(parts)
    finally:
        files.close(fd)


def write_file(files: Files, path: str, data: bytes, *, sync: bool) -> None:
    fd = files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
    try:
        with naming(path):
            write_all(files, fd, data, 0)
            if sync:
                files.fsync(fd)
    finally:
        files.close(fd)


def replace_file(files: Files, path: str, data: bytes) -> None:
    """After a power failure the file has the old content or the new one, never a mixture and never none."""
    temporary = path + ".tmp"
    write_file(files, temporary, data, sync=True)
    files.rename(temporary, path)
    files.sync_dir(os.path.dirname(path))


def sync_file(files: Files, path: str) -> None:
    """fsync by path; a file that is gone needs none."""
    try:
        fd = files.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        with naming(path):
            files.fsync(fd)
    finally:
        files.close(fd)


def remove_files(files: Files, paths: Sequence[str]) -> None:
    """Remove the files that exist."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            files.unlink(path)


def file_size(files: Files, path: str) -> int:
    fd = files.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return files.size(fd)
    finally:
        files.close(fd)


def remove_tree(files: Files, directory: str) -> None:
    """Removes a directory with everything that a person put there. The next start removes what could not be removed."""
    try:
        if files.is_link(directory) or not files.is_dir(directory):
            files.unlink(directory)
            return
        for name in files.listdir(directory):
            path = os.path.join(directory, name)
            if files.is_dir(path) and not files.is_link(path):
                remove_tree(files, path)
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

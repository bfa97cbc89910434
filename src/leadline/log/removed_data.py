"""The data that recovery removes from a log: counted, and kept beside the log in files that no broker reads.

    00000000000000000042.log.1700000000000.removed           a whole segment, renamed
    00000000000000000042.log.at-1234.1700000000000.removed   the bytes of a segment from 1234 on, copied

The long number is the time in milliseconds. Apache Kafka ignores such files: it goes by the end of a name. They are
deleted with their partition's directory.

    the latest removal is kept whole; earlier ones as far as KEPT_BYTES allow
    bytes are durable here before the segment is truncated
"""

import errno
import logging
import os
from dataclasses import dataclass, field

from leadline.log import names
from leadline.log.files import FILE_MODE, file_size, remove_files, write_all
from leadline.log.segment import Segment
from leadline.model import Offset
from leadline.records.batch import crc_of
from leadline.runtime.ports import Files

log = logging.getLogger(__name__)

KEPT_BYTES = 1 << 30  # for each partition
TAIL_BYTES = 1 << 31  # no segment is larger
COPY_BYTES = 1 << 20  # at once
MOST_NAMED = 3  # files in one line


@dataclass(slots=True)
class RemovedData:
    """What one recovery removes from one log."""

    files: Files
    directory: str
    now_ms: int
    segments: int = 0
    bytes: int = 0
    batches: int = 0  # that are whole
    records: int = 0
    offsets: tuple[Offset, Offset] | None = None  # of the first and the last of these
    kept: list[str] = field(default_factory=list)

    def tail(self, segment: Segment, position: int) -> None:
        """A segment is about to be truncated at a position."""
        self._count(segment, position)
        name = names.removed_name(segment.base_offset, self.now_ms, position)
        with_room = _copy(self.files, segment, position, os.path.join(self.directory, name))
        if with_room:
            self.kept.append(name)
            self.files.sync_dir(self.directory)

    def whole(self, segment: Segment) -> None:
        """A whole segment is removed. Its indexes are not kept: they can be rebuilt."""
        self._count(segment, 0)
        self.segments += 1
        paths = segment.all_paths()
        if segment.size:
            name = names.removed_name(segment.base_offset, self.now_ms)
            self.files.rename(paths.pop(0), os.path.join(self.directory, name))
            self.kept.append(name)
        remove_files(self.files, paths)

    def _count(self, segment: Segment, position: int) -> None:
        self.bytes += segment.size - position
        for batch in segment.batches(position):
            data, header = segment.read_batch(batch)
            if crc_of(data, 0, len(data)) == header.crc:
                self.batches += 1
                self.records += header.record_count
                first = batch.base_offset if self.offsets is None else self.offsets[0]
                self.offsets = (first, batch.last_offset)

    def forget_older(self) -> None:
        """Remove files that earlier recoveries kept and for which there is no room, the oldest first."""
        sizes = {name: file_size(self.files, os.path.join(self.directory, name)) for name in self._all_kept()}
        room = KEPT_BYTES - sum(size for name, size in sizes.items() if name in self.kept)
        for name in sorted(set(sizes) - set(self.kept), key=names.removed_at, reverse=True):
            room -= sizes[name]
            if room < 0:
                remove_files(self.files, [os.path.join(self.directory, name)])

    def _all_kept(self) -> list[str]:
        return [name for name in self.files.listdir(self.directory) if name.endswith(names.REMOVED)]

    def __str__(self) -> str:
        text = f"{self.bytes} bytes; whole segments: {self.segments}, whole batches: {self.batches}"
        if self.offsets is not None:
            text += f", records: {self.records}, offsets: {self.offsets[0]} to {self.offsets[1]}"
        if self.kept:
            files = ", ".join(self.kept[:MOST_NAMED]) + (", ..." if len(self.kept) > MOST_NAMED else "")
            text += f". It is kept in {self.directory}, and leadline dump-log reads it: {files}"
        return text


def _copy(files: Files, segment: Segment, position: int, path: str) -> bool:
    """Copy a segment from a position on. False if it is all zeros there, or the disk is full."""
    end = min(segment.size, position + TAIL_BYTES)
    fd = -1
    try:
        for at in range(position, end, COPY_BYTES):
            part = files.pread(segment.file.fd, min(COPY_BYTES, end - at), at)
            if part.count(0) == len(part):
                continue  # a hole in the copy, too
            if fd < 0:
                fd = files.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE)
            write_all(files, fd, part, at - position)
        if fd >= 0:
            files.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        log.warning("%s cannot be kept: %s", path, error)
        remove_files(files, [path])
        return False
    finally:
        if fd >= 0:
            files.close(fd)
    return fd >= 0

"""Slices of files on their way out: what of them is in memory, and what the disk is asked for.

sendfile of what is not in the page cache waits for the disk, and everybody with it. So the page cache is looked at
first, and what is not there is read in a thread. Who reads on from there finds the disk some way ahead.
"""

import os
from functools import cache

from leadline.log.files import OpenFile

PROBE_BYTES = 512 * 1024  # distance of the looks into the page cache
READ_AHEAD_BYTES = 1024 * 1024
AHEAD_BYTES = 4 * 1024 * 1024  # what is asked of the disk at a time behind that, as it will be wanted next

_BYTE = [bytearray(1)]  # what is looked at is of no interest


class Rest:
    """The rest of a slice that is being sent."""

    __slots__ = ("file", "length", "position", "warm")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file, self.position, self.length = file, position, length
        self.warm = 0  # bytes from the position on that are known to be in memory

    def is_warm(self) -> bool:
        """Whether some of it can be sent without waiting for the disk."""
        if self.warm:
            return True
        count = min(self.length, READ_AHEAD_BYTES)
        if is_cached(self.file.fd, self.position, count):
            self.warm = count
        return self.warm > 0

    def send(self, to: int, most: int) -> int:
        """To a socket, as much as it takes: how many bytes."""
        sent = os.sendfile(to, self.file.fd, self.position, most)
        if sent == 0:
            raise OSError(f"a file that is being sent was cut at byte {self.position}")
        self.position += sent
        self.length -= sent
        self.warm -= sent
        return sent

    def take_ahead(self) -> int | None:
        """Where to ask the disk for more, if half of what it was asked for is used up."""
        end, asked_to = self.position + self.length, self.file.ahead_to
        if not end <= asked_to < end + AHEAD_BYTES // 2:
            return None
        self.file.ahead_to = asked_to + AHEAD_BYTES
        return asked_to


def is_cached(fd: int, position: int, length: int) -> bool:
    """Whether a range can be read without asking the disk: looks at a byte here and there."""
    look, byte, nowait, last = os.preadv, _BYTE, os.RWF_NOWAIT, position + length - 1
    try:
        while position < last:
            if look(fd, byte, position, nowait) == 0:
                return True  # past the end: sendfile will tell
            position += PROBE_BYTES
        look(fd, byte, last, nowait)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system cannot say
    return True


def read_through(fd: int, position: int, length: int) -> None:
    """Bring a range into the page cache. Blocks. To nowhere, as a copy of it would cost more than all the rest."""
    os.posix_fadvise(fd, position, length + AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
    end = position + length
    while position < end and (count := os.sendfile(_nowhere(), fd, position, end - position)):
        position += count


def ask(file: OpenFile, position: int) -> None:
    """Have the disk read what will be wanted. May block."""
    os.posix_fadvise(file.fd, position, AHEAD_BYTES, os.POSIX_FADV_WILLNEED)


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY)

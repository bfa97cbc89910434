"""A slice of a file on its way out: which part of it is in memory, and what to ask of the disk next.

sendfile of bytes that are not in the page cache waits for the disk, and so would every client. So the page cache is
probed first, and a thread reads what is missing. The disk also reads ahead of a client that reads on.
"""

from leadline.log.open_files import OpenFile
from leadline.runtime.network import Socket

LOAD_BYTES = 1024 * 1024  # what a thread reads before more is sent
READAHEAD_BYTES = 4 * 1024 * 1024  # what the disk is asked to read after that: it will be needed next


class PendingSlice:
    """The part of a slice that was not sent yet."""

    __slots__ = ("cached", "file", "length", "position")

    def __init__(self, file: OpenFile, position: int, length: int) -> None:
        self.file, self.position, self.length = file, position, length
        self.cached = 0  # bytes from the position on that are in memory

    def is_cached(self) -> bool:
        """Whether some of it can be sent without waiting for the disk."""
        if self.cached:
            return True
        count = min(self.length, LOAD_BYTES)
        if self.file.is_cached(self.position, count):
            self.cached = count
        return self.cached > 0

    def send(self, sock: Socket, count: int) -> int:
        """Send at most `count` bytes. Returns the number that the socket took."""
        sent = sock.send_file(self.file.fd, self.position, count)
        if sent == 0:
            self.file.ends_at = self.position  # the next read of the log reports it
            raise OSError(f"the file ends at byte {self.position}, within a slice that is being sent")
        self.position += sent
        self.length -= sent
        self.cached -= sent
        return sent

    def begin_load(self) -> tuple[int, int]:
        """The position and number of bytes to bring into memory next."""
        count = min(self.length, LOAD_BYTES)
        self.file.ahead_to = self.position + count + READAHEAD_BYTES
        return self.position, count

    def loaded(self) -> None:
        self.cached = min(self.length, LOAD_BYTES)

    def next_readahead(self) -> int | None:
        """The position of the next readahead, if half of the last one is used up."""
        end, requested_to = self.position + self.length, self.file.ahead_to
        if not end <= requested_to < end + READAHEAD_BYTES // 2:
            return None
        self.file.ahead_to = requested_to + READAHEAD_BYTES
        return requested_to


def read_through(file: OpenFile, position: int, length: int) -> None:
    """Bring a range into memory, and have the disk read on. Blocks."""
    file.request_readahead(position, length + READAHEAD_BYTES)
    file.load(position, length)


def request_readahead(file: OpenFile, position: int) -> None:
    """Have the disk read what will be needed next. May block."""
    file.request_readahead(position, READAHEAD_BYTES)

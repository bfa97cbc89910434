"""The aborted transactions of one segment, for readers that see only what was committed.

Format, big-endian, appended when an abort marker is: version = 0 (2), producer id (8), first offset (8),
last offset (8: that of the marker), last stable offset (8: when the marker was written).
The file exists only where a transaction was aborted.

    entries are strictly increasing in last offset
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from leadline.errors import CorruptFile
from leadline.log.files import OpenFile, write_all
from leadline.model import Offset, ProducerId
from leadline.ports import Files

VERSION = 0
_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size


class AbortedTxn(NamedTuple):
    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    last_stable_offset: Offset


def encode(entries: Iterable[AbortedTxn]) -> bytes:
    return b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries)


def decode(path: str, data: bytes) -> list[AbortedTxn]:
    """All whole entries."""
    entries: list[AbortedTxn] = []
    for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
        version, *fields = _ENTRY.unpack_from(data, at)
        if version != VERSION:
            raise CorruptFile(path, at, f"an aborted transaction of version {version}, expected {VERSION}")
        entries.append(AbortedTxn(*fields))
    return entries


def between(entries: Iterable[AbortedTxn], start: Offset, end: Offset) -> tuple[list[AbortedTxn], bool]:
    """The aborted transactions with records in [start, end), and whether no later segment can hold more."""
    found: list[AbortedTxn] = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < end:
            found.append(entry)
        if entry.last_stable_offset >= end:
            return found, True
    return found, False


class TxnIndex:
    def __init__(self, files: Files, path: str, base_offset: Offset) -> None:
        self._files, self.path, self.base_offset = files, path, base_offset
        self._file: OpenFile | None = None
        self._entries: list[AbortedTxn] | None = None

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = []
            if self._files.exists(self.path):
                file = self._open()
                self._entries = decode(self.path, self._files.pread(file.fd, self._files.size(file.fd), 0))
        return self._entries

    def _open(self) -> OpenFile:
        if self._file is None:
            self._file = OpenFile(self._files, self.path, create=True)
        return self._file

    def check(self) -> None:
        """Refuse an index that cannot belong to this segment."""
        for n, entry in enumerate(self.entries()):
            if entry.last_offset < self.base_offset:
                raise CorruptFile(
                    self.path,
                    n * _ENTRY.size,
                    f"an aborted transaction that ends at {entry.last_offset}, before the segment's first offset",
                )

    def append(self, entry: AbortedTxn) -> None:
        entries = self.entries()
        assert not entries or entries[-1].last_offset < entry.last_offset, f"{entry} behind {entries[-1]}"
        write_all(self._files, self._open().fd, encode([entry]), len(entries) * _ENTRY.size)
        entries.append(entry)

    def load(self, entries: list[AbortedTxn]) -> None:
        """Replace all entries, as recovery finds them."""
        if entries or self._files.exists(self.path):
            file = self._open()
            self._files.ftruncate(file.fd, 0)
            write_all(self._files, file.fd, encode(entries), 0)
        self._entries = entries

    def truncate_to(self, offset: Offset) -> None:
        """Keep the transactions that ended below."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._files.ftruncate(self._open().fd, len(kept) * _ENTRY.size)
            self._entries = kept

    def between(self, start: Offset, end: Offset) -> tuple[list[AbortedTxn], bool]:
        """Of this segment: see the function."""
        return between(self.entries(), start, end)

    def release(self) -> None:
        self._file = None

    def file_to_flush(self) -> OpenFile | None:
        return self._open() if self.entries() else None

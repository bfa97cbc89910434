"""The aborted transactions of one segment, for readers of committed records.

Format, big-endian, appended when an abort marker is: version = 0 (2), producer id (8), first offset (8),
last offset (8: that of the marker), last stable offset (8: when the marker was written).
The file exists only where a transaction was aborted.

    entries are strictly increasing in last offset
"""

from collections.abc import Iterable
from struct import Struct
from typing import NamedTuple

from leadline.errors import CorruptFile
from leadline.log.open_files import CachedFile, OpenFile
from leadline.model import Offset, ProducerId
from leadline.runtime.ports import Files, shortage

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
    transactions: list[AbortedTxn] = []
    for entry in entries:
        if entry.last_offset >= start and entry.first_offset < end:
            transactions.append(entry)
        if entry.last_stable_offset >= end:
            return transactions, True
    return transactions, False


class TxnIndex:
    def __init__(self, files: Files, path: str, base_offset: Offset) -> None:
        self._files, self.base_offset = files, base_offset
        self._file = CachedFile(files, path, create=True)
        self._entries: list[AbortedTxn] | None = None
        self._unwritten = 0  # the number of last entries that are not in the file, because a resource was short

    @property
    def path(self) -> str:
        return self._file.path

    def renamed(self, path: str) -> None:
        self._file.renamed(path)

    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            entries: list[AbortedTxn] = []
            if self._files.exists(self.path):
                file = self._file.open()
                self._file.created()
                entries = decode(self.path, file.pread(file.size, 0))
            self._entries = entries
        return self._entries

    def none_exists(self) -> None:
        """The file does not exist, as the caller has seen: no transaction was aborted."""
        self._entries = []

    def check(self, most: int) -> None:
        """Refuse an index that cannot belong to this segment, which holds at most `most` batches."""
        if self._files.exists(self.path) and self._file.open().size > most * _ENTRY.size:
            raise CorruptFile(self.path, most * _ENTRY.size, "more aborted transactions than the segment has room for")
        for n, entry in enumerate(self.entries()):
            if entry.last_offset < self.base_offset:
                raise CorruptFile(
                    self.path,
                    n * _ENTRY.size,
                    f"an aborted transaction that ends at {entry.last_offset}, before the segment's first offset",
                )

    def append(self, entry: AbortedTxn) -> None:
        """Raises before it has changed anything; if a resource is short then, the entry waits in memory."""
        entries = self.entries()
        assert not entries or entries[-1].last_offset < entry.last_offset, f"{entry} after {entries[-1]}"
        entries.append(entry)
        self._unwritten += 1
        try:
            self._write()
        except OSError as error:
            if shortage(error) is None:
                raise

    def _write(self) -> OpenFile:
        """The file, with all entries."""
        entries = self.entries()
        file = self._file.open()
        self._file.created()
        if self._unwritten:
            written = len(entries) - self._unwritten
            file.write(encode(entries[written:]), written * _ENTRY.size)
            self._unwritten = 0
        return file

    def load(self, entries: list[AbortedTxn]) -> None:
        """Replace all entries: recovery has collected them."""
        if entries or self._files.exists(self.path):
            file = self._file.open()
            file.truncate(0)
            file.write(encode(entries), 0)
        self._entries, self._unwritten = entries, 0

    def truncate_to(self, offset: Offset) -> None:
        """Keep the transactions that ended below."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) < len(entries):
            self._write().truncate(len(kept) * _ENTRY.size)
            self._entries = kept

    def between(self, start: Offset, end: Offset) -> tuple[list[AbortedTxn], bool]:
        """See the function `between`."""
        return between(self.entries(), start, end)

    def trim(self) -> None:
        """Write waiting entries and close the descriptor."""
        if self._unwritten:
            self._write()
        self.release()

    def release(self) -> None:
        """Close the descriptor."""
        self._file.close()

    def discard(self) -> None:
        """The file is about to be deleted."""
        self._file.discard()

    def file_to_flush(self) -> OpenFile | None:
        return self._write() if self.entries() else None

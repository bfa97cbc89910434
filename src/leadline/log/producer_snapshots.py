"""The .snapshot files of a partition: its producer state at some offsets.

A snapshot is written when a segment is rolled and at a clean stop. A restart then reads the newest one and only the log
after it. One lies at the base offset of each of the last segments; the newest may lie at the log end.

Format, big-endian: version = 1 (2), CRC-32C of what follows (4), count (4), and per producer:
id (8), epoch (2), last sequence (4), last offset (8), offset delta (4), timestamp (8), coordinator epoch (4),
first offset of the open transaction or -1 (8).

    producers stand in the order of a Java hash map, so that files compare equal with Kafka's; the table of that map
    grows with the producers and never shrinks
    a damaged snapshot is removed, and the state is rebuilt from an older one and the log
"""

import contextlib
import logging
import os
from bisect import insort
from collections.abc import Iterable, Mapping
from struct import Struct

from leadline import hash_order
from leadline.errors import CorruptFile, CorruptMessage, UnusableFile
from leadline.hash_order import long_hash
from leadline.log import names
from leadline.log.files import read_file, remove_files, write_file
from leadline.log.producer_entry import BatchMetadata, ProducerEntry
from leadline.log.producer_state import ProducerState
from leadline.log.segment import Segment
from leadline.log.segments import Segments
from leadline.model import Offset, ProducerId
from leadline.records.checksum import crc32c
from leadline.records.control import read_end_marker
from leadline.runtime.ports import Files, shortage

log = logging.getLogger(__name__)

MOST_BYTES = 1 << 30  # of one file: more than ten million producers
_NO_SUFFIX = (names.SNAPSHOT, "")

SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hI")
_COUNT = Struct(">i")
_PRODUCER = Struct(">qhiqiqiq")


def encode_snapshot(producers: Mapping[ProducerId, ProducerEntry], most_entries: int = 0) -> bytes:
    """`most_entries`: the largest number of producers so far, which decides the size of Java's table."""
    body = bytearray(_COUNT.pack(len(producers)))
    for producer_id in hash_order.java_map(producers, long_hash, most_entries):
        entry = producers[producer_id]
        body += _PRODUCER.pack(
            producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.batches[-1].offset_delta if entry.batches else 0,
            entry.last_timestamp,
            entry.coordinator_epoch,
            -1 if entry.txn_first_offset is None else entry.txn_first_offset,
        )
    return _SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(bytes(body))) + bytes(body)


def decode_snapshot(path: str, data: bytes) -> list[tuple[ProducerId, ProducerEntry]]:
    start = _SNAPSHOT_HEAD.size
    if len(data) < start + _COUNT.size:
        raise CorruptFile(path, len(data), "a producer snapshot is cut off")
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptFile(path, 0, f"a producer snapshot of version {version}, expected {SNAPSHOT_VERSION}")
    if crc32c(data[start:]) != crc:
        raise CorruptFile(path, 2, "a producer snapshot whose CRC does not match")
    (count,) = _COUNT.unpack_from(data, start)
    start += _COUNT.size
    if len(data) - start != count * _PRODUCER.size:
        raise CorruptFile(path, start, f"a producer snapshot with {len(data) - start} bytes for {count} producers")
    entries: list[tuple[ProducerId, ProducerEntry]] = []
    for fields in _PRODUCER.iter_unpack(data[start:]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first = fields
        entry = ProducerEntry(epoch, coordinator_epoch, timestamp, txn_first if txn_first >= 0 else None)
        if offset >= 0:
            entry.batches.append(BatchMetadata(sequence, offset, delta, timestamp))
        entries.append((producer_id, entry))
    return entries


class ProducerSnapshots:
    def __init__(self, files: Files, directory: str, listing: Iterable[str] | None = None) -> None:
        """`listing`: the names in the directory, if the caller has them."""
        self._files, self.directory = files, directory
        listed = files.listdir(directory) if listing is None else listing
        parsed = (names.parse_file_name(name) for name in listed if name.endswith(names.SNAPSHOT))
        self.offsets = sorted(offset for offset, kind, suffix in filter(None, parsed) if (kind, suffix) == _NO_SUFFIX)
        self.taken_at: Offset = 0  # the end offset of what was last written or loaded

    def path(self, offset: Offset, suffix: str = "") -> str:
        return os.path.join(self.directory, names.file_name(offset, names.SNAPSHOT, suffix))

    @property
    def latest(self) -> Offset | None:
        return self.offsets[-1] if self.offsets else None

    def take(self, producers: ProducerState, *, sync: bool) -> str | None:
        """Write the current state, if it covers more than the last snapshot. Returns the path of the file.

        None also if a resource is short: the state can be rebuilt from the log.
        """
        at = producers.end_offset
        if at <= self.taken_at:
            return None
        try:
            write_file(self._files, self.path(at), encode_snapshot(producers.by_id, producers.most_entries), sync=sync)
        except OSError as error:
            if (lacking := shortage(error)) is None:
                raise
            log.warning("%s is not written: %s", self.path(at), lacking)
            remove_files(self._files, [self.path(at)])
            return None
        if at not in self.offsets:
            insort(self.offsets, at)
        self.taken_at = at
        return self.path(at)

    def load_latest(self, producers: ProducerState, log_start: Offset, now_ms: int) -> list[CorruptFile]:
        """Load the newest snapshot that is valid. Without one the state is empty at the log start offset."""
        refused: list[CorruptFile] = []
        while (at := self.latest) is not None:
            try:
                producers.load(decode_snapshot(self.path(at), self._read(at)), at, now_ms)
            except FileNotFoundError as error:
                refused.append(UnusableFile(self.path(at), error))
                self.remove(at)
                continue
            except CorruptFile as error:
                refused.append(error)
                self.remove(at)
                continue
            self.taken_at = at
            return refused
        producers.clear(log_start)
        self.taken_at = log_start
        return refused

    def _read(self, offset: Offset) -> bytes:
        return read_file(self._files, self.path(offset), MOST_BYTES)

    def keep_between(self, log_start: Offset, log_end: Offset) -> None:
        """Remove the snapshots at offsets that the log does not hold."""
        for offset in [offset for offset in self.offsets if not log_start < offset <= log_end]:
            self.remove(offset)

    def log_start_moved(self, log_start: Offset) -> None:
        self.taken_at = log_start if self.latest is None else self.latest

    def remove_strays(self, bases: list[Offset]) -> None:
        """Remove snapshots at no segment's base offset, except the newest if it lies after all of them."""
        strays = [offset for offset in self.offsets if offset not in bases]
        if strays and bases and strays[-1] > bases[-1]:
            strays.pop()
        for offset in strays:
            self.remove(offset)

    def remove(self, offset: Offset) -> None:
        self.offsets.remove(offset)
        remove_files(self._files, [self.path(offset)])

    def remove_all(self) -> None:
        for offset in list(self.offsets):
            self.remove(offset)

    def mark_deleted(self, offset: Offset) -> str | None:
        """Rename a snapshot, which is removed with its segment. Returns the path to remove."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        with contextlib.suppress(FileNotFoundError):
            self._files.rename(self.path(offset), self.path(offset, names.DELETED))
        return self.path(offset, names.DELETED)


def rebuild_producer_state(
    state: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Segments,
    log_start: Offset,
    log_end: Offset,
    now_ms: int,
) -> None:
    """The state at the log end, from the newest snapshot and the log after it. Takes snapshots at the last segments."""
    is_empty = state.is_empty and state.end_offset >= log_end
    snapshots.keep_between(log_start, log_end)
    for refused in snapshots.load_latest(state, log_start, now_ms):
        log.warning("a producer snapshot is ignored and rebuilt from the log: %s", refused)
    if log_end > state.end_offset and not is_empty:
        bases = segments.bases[-2:]
        for segment in segments.between(state.end_offset, log_end):
            start = max(segment.base_offset, state.end_offset, log_start)
            state.end_offset = start
            if segment.base_offset in bases:
                snapshots.take(state, sync=True)
            _replay(segment, state, start, log_end)
    state.end_offset = log_end
    snapshots.take(state, sync=True)


def _replay(segment: Segment, state: ProducerState, start: Offset, end: Offset) -> None:
    try:
        first = segment.find(start)
    except CorruptMessage as error:
        log.warning("%s: the producer state is not rebuilt from there on", error)
        return
    if first is None:
        return
    before, replayed_ids = set(state.by_id), set[int]()
    for position, header in segment.headers(first.position):
        if header.base_offset >= end:
            break
        if header.has_producer_id:
            replayed_ids.add(header.producer_id)
            marker = read_end_marker(segment.read_batch(position)[0], 0, header) if header.is_control else None
            state.replay(header, marker)
    state.move_to_end(
        producer_id for producer_id in hash_order.mutable(replayed_ids, long_hash) if producer_id not in before
    )

"""What must hold of a log after any restart, whatever the power failure left of its files."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

from leadline.log.checkpoints import read_epochs
from leadline.log.index import Index
from leadline.log.log import Log
from leadline.log.producer_entry import ProducerEntry
from leadline.log.producer_state import ProducerState
from leadline.log.segment import Segment
from leadline.model import Offset, TopicPartition
from leadline.records.batch import crc_of, header_at
from leadline.records.control import read_end_marker
from leadline.runtime.ports import OsFiles
from tests.fault.crash_run import (
    Durable,
    Ledger,
    abandon,
    batches_in,
    contents,
    has_marker,
    last_of_keys,
    open_dirs,
    without_threads,
)
from tests.support.crash_disk import CrashDisk, Unsynced
from tests.support.epochs import epoch_at
from tests.support.logs import records_in

Batches = dict[Offset, bytes]


async def restart_keeps(path: Path, ledgers: Mapping[TopicPartition, Ledger], operations: int) -> None:
    """Open what a power failure left, and hold it against all invariants; then once more, which may change nothing."""
    with without_threads():
        if has_marker(path):
            await _open_and_check(path, ledgers, operations, clean=True)
        await _open_and_check(path, ledgers, operations, clean=False)
        once = contents(path)
        await _open_and_check(path, ledgers, operations, clean=False)
        twice = contents(path)
    assert once.keys() == twice.keys(), f"files came or went: {sorted(once.keys() ^ twice.keys())}"
    changed = [name for name in once if once[name] != twice[name] and not _tells_of_deleted_records(path, name)]
    assert not changed, f"recovering again changed {changed}"


def _tells_of_deleted_records(path: Path, name: str) -> bool:
    """What is known of producers from before the log's start stands in a snapshot that is read only once.

    Apache Kafka does it so, and snapshots are compared with its own byte for byte.
    """
    partition = (path / name).parent
    return name.endswith((".snapshot", ".txnindex")) and not (partition / "00000000000000000000.log").exists()


async def _open_and_check(path: Path, ledgers: Mapping[TopicPartition, Ledger], operations: int, clean: bool) -> None:
    dirs = open_dirs(path, Unsynced())
    await dirs.open()
    try:
        assert not dirs.offline_logs()
        for tp, ledger in ledgers.items():
            durable = ledger.durable_at(operations)
            log = dirs.logs.get(tp)
            if log is None:
                assert durable.flushed_to == 0, f"{tp} is gone, flushed to {durable.flushed_to}"
            else:
                _check(log, durable, ledger, clean)
    finally:
        abandon(dirs)


def _check(log: Log, durable: Durable, ledger: Ledger, clean: bool) -> None:
    files = OsFiles()
    batches = dict(batches_in(log, files))
    batches_are_valid_and_in_order(log, batches)
    epochs_agree_with_the_batches(log, batches)
    producers_equal_a_replay(log, batches, max(durable.log_start, log.log_start))
    for segment in log.segments:
        indexes_point_into_the_log(segment)
    aborted_transactions_are_indexed(log, batches, max(durable.log_start, log.log_start))
    if log.config.compact:
        no_last_record_of_a_key_is_lost(durable, batches)
        only_what_was_written_is_found_by_record(ledger, batches)
    else:
        what_was_flushed_is_there(durable, batches)
        if clean:  # the mark says that everything was flushed
            everything = replace(durable, flushed_to=max(durable.batches, default=-1) + 1)
            what_was_flushed_is_there(everything, batches)
        only_what_was_written_is_found(ledger, batches)
        there_is_no_gap(log, batches)


def batches_are_valid_and_in_order(log: Log, batches: Batches) -> None:
    end = -1
    for base, data in batches.items():
        header = header_at(data)
        assert crc_of(data, 0, len(data)) == header.crc, f"the CRC at {base}"
        assert base > end, f"{base} follows {end}"
        end = header.last_offset
    assert end < log.log_end
    assert log.log_start <= log.log_end
    assert log.recovery_point <= log.log_end


def there_is_no_gap(log: Log, batches: Batches) -> None:
    headers = [header for data in batches.values() if (header := header_at(data)).last_offset >= log.log_start]
    for before, behind in pairwise(headers):
        assert behind.base_offset == before.last_offset + 1, f"a gap behind {before.last_offset}"


def what_was_flushed_is_there(durable: Durable, batches: Batches) -> None:
    for base, data in durable.batches.items():
        last = header_at(data).last_offset
        if last < durable.flushed_to and last >= durable.log_start:
            assert batches.get(base) == data, f"the batch at {base} was flushed; flushed to {durable.flushed_to}"


def only_what_was_written_is_found(ledger: Ledger, batches: Batches) -> None:
    for base, data in batches.items():
        assert data in ledger.ever.get(base, ()), f"nobody wrote this batch at {base}"


def only_what_was_written_is_found_by_record(ledger: Ledger, batches: Batches) -> None:
    for data in batches.values():
        for record in records_in(data):
            assert record in ledger.records.get(record.offset, ()), f"nobody wrote {record}"


def no_last_record_of_a_key_is_lost(durable: Durable, batches: Batches) -> None:
    """Compaction may remove a record only for a later one with its key. Control and aborted records do not count."""
    flushed = [
        record
        for data in durable.batches.values()
        if not header_at(data).is_transactional
        for record in records_in(data)
        if durable.log_start <= record.offset < durable.flushed_to
    ]
    kept = last_of_keys([record for data in batches.values() for record in records_in(data)])
    for key, record in last_of_keys(flushed).items():
        assert key in kept, f"{record} is gone"
        assert kept[key].offset > record.offset or kept[key] == record, f"{record} is gone for {kept[key]}"


def epochs_agree_with_the_batches(log: Log, batches: Batches) -> None:
    entries = log.epochs.entries
    for before, behind in pairwise(entries):
        assert before.epoch < behind.epoch, entries
        assert before.start_offset < behind.start_offset, entries
    for base, data in batches.items():
        header = header_at(data)
        if header.last_offset >= log.log_start:
            epoch = epoch_at(log.epochs.entries, max(base, log.log_start))
            assert epoch == header.leader_epoch, f"{base} is of epoch {header.leader_epoch}, not {epoch}: {entries}"
    if not log.config.compact:
        starts = {entry.start_offset for entry in entries if entry.start_offset > log.log_start}
        assert starts <= set(batches), f"epochs that start at no batch: {starts - set(batches)}"
    assert read_epochs(OsFiles(), f"{log.directory}/leader-epoch-checkpoint") == entries


def producers_equal_a_replay(log: Log, batches: Batches, log_start: Offset) -> None:
    """What is in the log, they know, if it was not deleted; what they know beyond that must come from before it."""
    replayed = ProducerState(log.tp, log.producer_state.expiration_ms)
    for data in batches.values():
        header = header_at(data)
        if header.has_producer_id:
            replayed.replay(header, read_end_marker(data, 0, header) if header.is_control else None)
    for producer_id, entry in replayed.by_id.items():
        current = log.producer_state.by_id.get(producer_id)
        if current is None:
            assert entry.last_offset < log_start, f"producer {producer_id} is not known"
        elif entry.last_offset >= log_start:
            assert _last(current) == _last(entry), f"producer {producer_id}: {current}, replayed {entry}"
    for producer_id, entry in log.producer_state.by_id.items():
        if producer_id not in replayed.by_id:
            assert entry.last_offset < min(batches, default=log.log_end), f"producer {producer_id} is not in the log"
    assert log.producer_state.end_offset == log.log_end


def aborted_transactions_are_indexed(log: Log, batches: Batches, log_start: Offset) -> None:
    """Else a reader of committed records would be handed what was aborted."""
    replayed = ProducerState(log.tp, log.producer_state.expiration_ms)
    indexed = {(txn.producer_id, txn.last_offset) for segment in log.segments for txn in segment.txn_index.entries()}
    for data in batches.values():
        header = header_at(data)
        if header.has_producer_id and header.base_offset >= log_start:
            aborted = replayed.replay(header, read_end_marker(data, 0, header) if header.is_control else None)
            if aborted is not None:
                assert (aborted.producer_id, aborted.last_offset) in indexed, f"{aborted} is not in any .txnindex"


def _last(entry: ProducerEntry) -> tuple[int, int, int, bool]:
    return entry.epoch, entry.last_sequence, entry.last_offset, entry.txn_first_offset is not None


def indexes_point_into_the_log(segment: Segment) -> None:
    places = list(segment.batches())
    starts = {place.position for place in places}
    last_offsets = {place.last_offset for place in places}
    for relative, position in _entries(segment.offset_index):
        assert position in starts, f"{segment.offset_index.path} points to byte {position}"
        assert segment.base_offset + relative in last_offsets
    for _, relative in _entries(segment.time_index):
        assert segment.base_offset + relative in last_offsets, f"{segment.time_index.path} points elsewhere"


def _entries(index: Index) -> list[tuple[int, int]]:
    entries = index.entries()
    assert all(one[0] < other[0] for one, other in pairwise(entries)), index.path
    return entries


async def power_fails_again(path: Path, target: Path, random: Random, *, strict: bool) -> None:
    """While it is still recovering from the first time."""
    disk = CrashDisk(path)
    with without_threads():
        dirs = open_dirs(path, disk)
        await dirs.open()
        abandon(dirs)
    disk.after_power_failure(target, random.randint(0, len(disk.journal)), random, strict=strict)

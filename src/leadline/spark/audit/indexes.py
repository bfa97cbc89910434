"""The checks of the indexes of a segment: each entry points to its batch.

Pure: columns in, findings out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from leadline.log.index import OffsetIndex, TimeIndex
from leadline.log.txn_index import ENTRY_BYTES, AbortedTxn
from leadline.model import Offset
from leadline.spark.audit.checks import NOWHERE, Bools, FileContent, Finding, FindingKind, Longs, lookup

Entries = Longs  # of an index: a row for each entry


def _goes_back(column: Longs, least: int) -> Bools:
    """Whether an entry exceeds the one before it by less than `least`."""
    return np.append(np.zeros(min(len(column), 1), np.bool_), np.diff(column) < least)


def offset_index(content: FileContent, path: str, entries: Entries) -> Iterator[Finding]:
    """An entry holds the position at which an append starts, and the last offset of one of its batches."""
    batches, offsets, positions = content.batches, content.base_offset + entries[:, 0], entries[:, 1]
    start_rows, starts_batch = lookup(batches.position, positions)
    end_rows, ends_batch = lookup(batches.last, offsets)
    next_start_rows = np.append(start_rows[1:], len(batches))
    wrong = {
        "offset {offset} and position {position} do not both increase": _goes_back(offsets, 1)
        | _goes_back(positions, 1),
        "it points to byte {position}, where no batch of {log} starts": ~starts_batch
        & ~_within(positions, content.unreadable),
        "offset {offset} is not the last one of a batch in the append at byte {position} of {log}": starts_batch
        & ~(ends_batch & (start_rows <= end_rows) & (end_rows < np.maximum(next_start_rows, start_rows + 1))),
    }
    for n, text in _first_of_each(wrong):
        message = text.format(offset=offsets[n], position=positions[n], log=content.path)
        yield content.finding(FindingKind.INDEX, n * OffsetIndex.ENTRY.size, message, offsets[n], path)


def _within(positions: Longs, ranges: Iterable[tuple[int, int]]) -> Bools:
    inside = np.zeros(len(positions), np.bool_)
    for start, end in ranges:
        inside |= (positions >= start) & (positions < end)
    return inside


def _first_of_each(wrong: Mapping[str, Bools]) -> Iterator[tuple[int, str]]:
    """Each wrong entry, with the first text that applies to it."""
    reported: set[int] = set()
    for text, entries in wrong.items():
        for n in np.flatnonzero(entries).tolist():
            if n not in reported:
                reported.add(n)
                yield n, text


HasTime = Callable[[int, Offset, int], bool]  # (row of the batch, offset, time): whether the record has that time


def time_index(content: FileContent, path: str, entries: Entries, has_time: HasTime) -> Iterator[Finding]:
    """An entry holds the largest time of a batch, and the batch's last offset. Old Kafkas store the record's offset."""
    batches, times, offsets = content.batches, entries[:, 0], content.base_offset + entries[:, 1]
    at = np.searchsorted(batches.last, offsets)
    is_held = np.append(batches.base, NOWHERE)[at] <= offsets
    largest, last = np.append(batches.max_timestamp, 0)[at], np.append(batches.last, 0)[at]
    is_inside = is_held & (largest == times) & (last != offsets)
    for n in np.flatnonzero(is_inside).tolist():
        is_inside[n] = not has_time(int(at[n]), int(offsets[n]), int(times[n]))
    wrong = {
        "time {time} and offset {offset} do not both increase": _goes_back(times, 1) | _goes_back(offsets, 0),
        "no batch of {log} holds offset {offset}": ~is_held & (not content.unreadable),
        "the batch of offset {offset} has {largest} as its largest time, not {time}": is_held & (largest != times),
        "offset {offset} is not the last one of its batch, and its record does not have time {time}": is_inside,
    }
    for n, text in _first_of_each(wrong):
        message = text.format(offset=offsets[n], time=times[n], largest=largest[n], log=content.path)
        yield content.finding(FindingKind.TIME_INDEX, n * TimeIndex.ENTRY.size, message, offsets[n], path)


def txn_index(
    content: FileContent, path: str, entries: Sequence[AbortedTxn], aborted: Sequence[AbortedTxn], is_complete: bool
) -> Iterator[Finding]:
    """Each abort marker has an entry. `is_complete`: `aborted` includes transactions that started before the file."""
    expected = {txn.last_offset: txn for txn in aborted}
    for n, entry in enumerate(entries):
        txn = expected.pop(entry.last_offset, None)
        if n and entry.last_offset <= entries[n - 1].last_offset:
            text = f"last offset {entry.last_offset} is not above {entries[n - 1].last_offset}"
        elif txn is None and not content.unreadable:
            text = f"no transaction was aborted at offset {entry.last_offset} of {content.path}"
        elif txn is not None and (entry != txn if is_complete else entry.producer_id != txn.producer_id):
            text = f"{_txn(entry)}, but in {content.path} it is {_txn(txn)}"
        else:
            continue
        yield content.finding(FindingKind.TXN_INDEX, n * ENTRY_BYTES, text, entry.last_offset, path)
    for txn in expected.values():
        text = f"no entry for {_txn(txn)}, which is in {content.path}"
        yield content.finding(FindingKind.TXN_INDEX, len(entries) * ENTRY_BYTES, text, txn.last_offset, path)


def _txn(txn: AbortedTxn) -> str:
    return (
        f"producer {txn.producer_id}, offsets {txn.first_offset} to {txn.last_offset}, "
        f"last stable offset {txn.last_stable_offset}"
    )

"""What must hold of the indexes beside a file: each entry points to the batch that it is about.

Pure: columns in, findings out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from leadline.log.index import OffsetIndex, TimeIndex
from leadline.log.txn_index import ENTRY_BYTES, AbortedTxn
from leadline.model import Offset
from leadline.spark.audit.checks import NOWHERE, Bools, FileContent, Finding, FindingKind, Longs, lookup

Entries = Longs  # of an index, a row each


def _goes_back(column: Longs, least: int) -> Bools:
    """Whether an entry is not at least so much above the one before it."""
    return np.append(np.zeros(min(len(column), 1), np.bool_), np.diff(column) < least)


def offset_index(read: FileContent, path: str, entries: Entries) -> Iterator[Finding]:
    """An entry has the position at which an append begins, and the last offset of one of its batches."""
    batches, offsets, positions = read.batches, read.base_offset + entries[:, 0], entries[:, 1]
    begin, begins = lookup(batches.position, positions)
    ending, ends = lookup(batches.last, offsets)
    next_begin = np.append(begin[1:], len(batches))
    wrong = {
        "offset {offset} and position {position} do not both increase": _goes_back(offsets, 1)
        | _goes_back(positions, 1),
        "it points to byte {position}, where no batch of {log} begins": ~begins & ~_within(positions, read.unreadable),
        "offset {offset} is not the last one of what begins at byte {position} of {log}": begins
        & ~(ends & (begin <= ending) & (ending < np.maximum(next_begin, begin + 1))),
    }
    for n, text in _first_of_each(wrong):
        message = text.format(offset=offsets[n], position=positions[n], log=read.path)
        yield read.finding(FindingKind.INDEX, n * OffsetIndex.ENTRY.size, message, offsets[n], path)


def _within(positions: Longs, ranges: Iterable[tuple[int, int]]) -> Bools:
    inside = np.zeros(len(positions), np.bool_)
    for start, end in ranges:
        inside |= (positions >= start) & (positions < end)
    return inside


def _first_of_each(wrong: Mapping[str, Bools]) -> Iterator[tuple[int, str]]:
    """The entries with something wrong, and the first thing that is."""
    reported: set[int] = set()
    for text, entries in wrong.items():
        for n in np.flatnonzero(entries).tolist():
            if n not in reported:
                reported.add(n)
                yield n, text


HasTime = Callable[[int, Offset, int], bool]  # whether the record of an offset, in the n-th batch, has a time


def time_index(read: FileContent, path: str, entries: Entries, has_time: HasTime) -> Iterator[Finding]:
    """An entry has the largest time of a batch and the batch's last offset; of old Kafkas, that of the record."""
    batches, times, offsets = read.batches, entries[:, 0], read.base_offset + entries[:, 1]
    at = np.searchsorted(batches.last, offsets)
    held = np.append(batches.base, NOWHERE)[at] <= offsets
    largest, last = np.append(batches.max_timestamp, 0)[at], np.append(batches.last, 0)[at]
    inside = held & (largest == times) & (last != offsets)
    for n in np.flatnonzero(inside).tolist():
        inside[n] = not has_time(int(at[n]), int(offsets[n]), int(times[n]))
    wrong = {
        "time {time} and offset {offset} do not both increase": _goes_back(times, 1) | _goes_back(offsets, 0),
        "no batch of {log} holds offset {offset}": ~held & (not read.unreadable),
        "the batch of offset {offset} has {largest} as its largest time, not {time}": held & (largest != times),
        "offset {offset} is neither the last one of its batch nor one of time {time}": inside,
    }
    for n, text in _first_of_each(wrong):
        message = text.format(offset=offsets[n], time=times[n], largest=largest[n], log=read.path)
        yield read.finding(FindingKind.TIME_INDEX, n * TimeIndex.ENTRY.size, message, offsets[n], path)


def txn_index(
    read: FileContent, path: str, entries: Sequence[AbortedTxn], aborted: Sequence[AbortedTxn], is_known: bool
) -> Iterator[Finding]:
    """There is an entry for each marker of an abort. `is_known`: also of transactions that began before the file."""
    expected = {txn.last_offset: txn for txn in aborted}
    for n, entry in enumerate(entries):
        due = expected.pop(entry.last_offset, None)
        if n and entry.last_offset <= entries[n - 1].last_offset:
            text = f"last offset {entry.last_offset} is not above {entries[n - 1].last_offset}"
        elif due is None and not read.unreadable:
            text = f"no transaction was aborted at offset {entry.last_offset} of {read.path}"
        elif due is not None and (entry != due if is_known else entry.producer_id != due.producer_id):
            text = f"{_txn(entry)}, but in {read.path} it is {_txn(due)}"
        else:
            continue
        yield read.finding(FindingKind.TXN_INDEX, n * ENTRY_BYTES, text, entry.last_offset, path)
    for due in expected.values():
        text = f"no entry for {_txn(due)}, which {read.path} holds"
        yield read.finding(FindingKind.TXN_INDEX, len(entries) * ENTRY_BYTES, text, due.last_offset, path)


def _txn(txn: AbortedTxn) -> str:
    return (
        f"producer {txn.producer_id}, offsets {txn.first_offset} to {txn.last_offset}, "
        f"last stable offset {txn.last_stable_offset}"
    )

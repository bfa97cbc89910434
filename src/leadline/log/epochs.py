"""Which leader epoch started at which offset. A follower truncates by it instead of guessing.

    epochs and start offsets are strictly increasing
    an epoch ends where the next one starts; the last one ends at the log's end
    the entries agree with the epochs in the batches

Pure: the log writes the entries to leader-epoch-checkpoint whenever they change.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from leadline.log.checkpoints import EpochEntry
from leadline.model import NO_EPOCH, LeaderEpoch, Offset


class EpochEnd(NamedTuple):
    """The end of an epoch, or of the largest earlier one that has records."""

    epoch: LeaderEpoch
    end_offset: Offset


class LeaderEpochs:
    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(*entry)

    @property
    def latest(self) -> EpochEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        return self.entries[0] if self.entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Note the first record of an epoch. Contradicting entries are removed. True if anything changed."""
        if self.entries:
            last = self.entries[-1]
            if epoch == last.epoch and start_offset >= last.start_offset:
                return False
            while self.entries and (self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset):
                self.entries.pop()
        self.entries.append(EpochEntry(epoch, start_offset))
        return True

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """The log ends here now."""
        kept = bisect_left(self.entries, end_offset, key=lambda entry: entry.start_offset)
        changed = kept < len(self.entries)
        del self.entries[kept:]
        return changed

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """The log now starts here, and so does the epoch of that offset."""
        past = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if past == 0 or (past == 1 and self.entries[0].start_offset == start_offset):
            return False
        self.entries[:past] = [EpochEntry(self.entries[past - 1].epoch, start_offset)]
        return True

    def clear(self) -> bool:
        changed = bool(self.entries)
        self.entries.clear()
        return changed

    def end_of(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEnd | None:
        """None if the epoch is unknown here: newer than all, or there are none."""
        if epoch == NO_EPOCH or not self.entries:
            return None
        if epoch == self.entries[-1].epoch:
            return EpochEnd(epoch, log_end)
        above = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if above == len(self.entries):
            return None
        return EpochEnd(self.entries[above - 1].epoch if above else epoch, self.entries[above].start_offset)

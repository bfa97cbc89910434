"""The leader epochs of a log, by offset."""

from leadline.log.checkpoints import EpochEntry
from leadline.model import LeaderEpoch, Offset


def epoch_at(entries: list[EpochEntry], offset: Offset) -> LeaderEpoch | None:
    """The epoch that a record at this offset belongs to. None: it is before all of them."""
    begun = [entry.epoch for entry in entries if entry.start_offset <= offset]
    return begun[-1] if begun else None

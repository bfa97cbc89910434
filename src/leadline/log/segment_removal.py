"""Taking segments out of a log: they are renamed at once and removed later.

The delay is file.delete.delay.ms. Until then a reader may still send from the file, and a person can bring it back.

A compacted segment takes the place of the segments that it was made of in three steps, with a sync of the directory
after each one (`ready_to_swap`, `swap_in`, `swapped_in`). A crash in between leaves the old segments or the new one:
recovery removes .cleaned files and keeps .swap files.
"""

import logging
import os
from collections.abc import Iterable, Sequence
from functools import partial

from leadline.log import names
from leadline.log.files import remove_files
from leadline.log.local_log import LocalLog
from leadline.log.reasons import SegmentDeletionReason
from leadline.log.segment import Segment, SegmentPath
from leadline.model import Offset

log = logging.getLogger(__name__)


def remove_segments(
    local: LocalLog, segments: Sequence[Segment], reason: SegmentDeletionReason, limit: int | None = None
) -> None:
    """Rename segments and their producer snapshots, and remove them later. `limit`: see `SegmentDeletionReason`."""
    if segments:
        _rename_away(local, segments, reason, limit)
        _remove_later(local, segments, _mark_snapshots(local, segments))


def replace_segments(local: LocalLog, segments: Sequence[Segment], base: Offset, reason: SegmentDeletionReason) -> None:
    """An empty segment takes the place of others. If it cannot be created, they stay."""
    _rename_away(local, segments, reason)
    try:
        local.segments.add(local.new_segment(base))
    except OSError:
        for segment in segments:
            segment.rename("")
            local.segments.add(segment)
        raise
    _remove_later(local, segments, [])


def _rename_away(
    local: LocalLog, segments: Sequence[Segment], reason: SegmentDeletionReason, limit: int | None = None
) -> None:
    text = reason.text(limit)
    count, first = len(segments), segments[0].base_offset
    log.info("%s: deleting segments: %d, from offset %d on. Reason: %s", local.tp, count, first, text)
    for segment in segments:
        local.segments.remove(segment.base_offset)
        segment.rename(names.DELETED)
    local.entries_changed = True


def _mark_snapshots(local: LocalLog, segments: Iterable[Segment]) -> list[str]:
    marked = (local.snapshots.mark_deleted(segment.base_offset) for segment in segments)
    return [path for path in marked if path is not None]


def _remove_later(local: LocalLog, segments: Sequence[Segment], snapshots: Sequence[str]) -> None:
    def remove() -> None:
        """The paths are made only now: the directory may have been renamed since."""
        paths = [path for segment in segments for path in segment.all_paths()]
        paths += [os.path.join(local.directory, os.path.basename(path)) for path in snapshots]
        local.run_in_background("removing segments of", partial(remove_files, local.context.files, paths))

    for segment in segments:
        segment.discard()
    local.context.background.later(local.config.file_delete_delay_ms, remove)


# Compacted segments


def cleaned_segment(local: LocalLog, base: Offset) -> Segment:
    """The segment that a compaction wrote."""
    with local.guard("opening a compacted segment of"):
        path = SegmentPath(local.directory, base, names.CLEANED)
        return Segment(local.context.files, path, local.config, now_ms=local.now_ms)


def ready_to_swap(local: LocalLog, new: Segment) -> None:
    """The compacted segment is complete. Once this rename is durable, a crash keeps it and not the old ones."""
    with local.guard("swapping in a compacted segment"):
        new.rename(names.SWAP)


def swap_in(local: LocalLog, new: Segment, old: Sequence[Segment]) -> None:
    """Put a compacted segment in the place of those that it was made of."""
    with local.guard("swapping in a compacted segment"):
        _rename_away(local, old, SegmentDeletionReason.COMPACTION)
        local.segments.add(new)
    _remove_later(local, old, _mark_snapshots(local, old[1:]))


def swapped_in(local: LocalLog, new: Segment) -> None:
    """The old segments are durably gone. Only now may the new one lose the suffix by which recovery knows it."""
    with local.guard("swapping in a compacted segment"):
        if new.location.suffix == names.SWAP:  # not deleted in the meantime
            new.rename("")

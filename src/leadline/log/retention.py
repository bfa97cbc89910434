"""Which segments of a log are deletable: below its start, beyond its size, past their time.

    only whole segments are deleted, from the oldest on, and none that reaches beyond the high watermark

Pure: decides over the state of the segments.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from leadline.config.topic import LogConfig
from leadline.log.reasons import SegmentDeletionReason
from leadline.log.segment import Segment
from leadline.model import Offset


class DeletableSegments(NamedTuple):
    segments: list[Segment]
    reason: SegmentDeletionReason
    limit: int  # that was reached: an offset, a size or a time

    @property
    def text(self) -> str:
        return self.reason.text(self.limit)


def deletable_segments(
    segments: Sequence[Segment],
    config: LogConfig,
    log_start: Offset,
    log_end: Offset,
    high_watermark: Offset,
    now_ms: int,
) -> DeletableSegments:
    """The oldest segments that one of the rules selects."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end]

    def oldest(rule: Callable[[Segment, Offset], bool]) -> int:
        count = 0
        for segment, end in zip(segments, ends, strict=True):
            empty_last = segment is segments[-1] and segment.size == 0
            if empty_last or high_watermark < end or not rule(segment, end):
                break
            count += 1
        return count

    below_start = oldest(lambda segment, end: segment is not segments[-1] and end <= log_start)
    rules = [(below_start, SegmentDeletionReason.LOG_START_OFFSET, log_start)]
    if config.delete:
        excess = sum(segment.size for segment in segments) - config.retention_bytes
        if config.retention_bytes >= 0 and excess >= 0:
            by_size = _by_size(segments, excess, oldest)
            rules.append((by_size, SegmentDeletionReason.RETENTION_BYTES, config.retention_bytes))
        if config.retention_ms >= 0:
            by_time = oldest(lambda segment, _: now_ms - segment.largest_timestamp > config.retention_ms)
            rules.append((by_time, SegmentDeletionReason.RETENTION_MS, config.retention_ms))
    count, reason, limit = max(rules, key=lambda rule: rule[0])
    return DeletableSegments(list(segments[:count]), reason, limit)


def _by_size(
    segments: Sequence[Segment], excess: int, oldest: Callable[[Callable[[Segment, Offset], bool]], int]
) -> int:
    deleted_bytes = 0

    def fits(segment: Segment, _: Offset) -> bool:
        nonlocal deleted_bytes
        deleted_bytes += segment.size
        return deleted_bytes <= excess

    return oldest(fits)

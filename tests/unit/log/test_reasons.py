"""The reasons for deletions, as they stand in the log."""

import pytest

from leadline.log.reasons import SegmentDeletionReason


@pytest.mark.parametrize(
    ("reason", "limit", "text"),
    [
        (SegmentDeletionReason.LOG_START_OFFSET, 5, "they are below the log start offset 5"),
        (SegmentDeletionReason.RETENTION_BYTES, 100, "retention.bytes=100 is exceeded"),
        (SegmentDeletionReason.RETENTION_MS, 7, "they are older than retention.ms=7"),
        (SegmentDeletionReason.TRUNCATION, None, "truncated"),
        (SegmentDeletionReason.COMPACTION, None, "they were compacted"),
    ],
)
def test_a_reason_names_the_limit_that_was_reached(reason: SegmentDeletionReason, limit: int | None, text: str) -> None:
    assert reason.text(limit) == text

"""Why segments are deleted and why the start of a log moves: the reasons of Kafka, as values.

The text of a reason is for the log line. `{}` stands for the limit that was reached.
"""

from enum import Enum


class SegmentDeletionReason(Enum):
    LOG_START_OFFSET = "they are below the log start offset {}"
    RETENTION_BYTES = "retention.bytes={} is exceeded"
    RETENTION_MS = "they are older than retention.ms={}"
    TRUNCATION = "truncated"
    ROLL = "it was still empty when the next one was due"
    COMPACTION = "they were compacted"

    def text(self, limit: int | None = None) -> str:
        return self.value.format(limit)


class LogStartIncrementReason(Enum):
    CLIENT_RECORD_DELETION = "client delete records request"
    LEADER_OFFSET_INCREMENTED = "leader offset increment"
    SEGMENT_DELETION = "segment deletion"

"""The names of files and directories. They carry base offsets, and suffixes for unfinished work.

topic-partition/                     a partition's log
    00000000000000000042.log         a segment, by its first offset; beside it .index .timeindex .txnindex
    00000000000000000042.snapshot    the producer state at that offset
    ....deleted                      waits for its removal
    ....cleaned                      compaction is writing it: void after a crash
    ....swap                         compaction has finished it: takes its place after a crash
    ....removed                      recovery took it out of the log: no broker reads it (see removed_data)
topic-partition.<uid>-delete/        a deleted partition, waits for its removal
topic-partition.<uid>-stray/         found here, but does not belong to this broker
topic-partition.<uid>-future/        a replica on its way to this directory
"""

import re
from enum import StrEnum
from uuid import UUID

from leadline.model import Offset, TopicPartition

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
DELETED, CLEANED, SWAP = ".deleted", ".cleaned", ".swap"
REMOVED = ".removed"

EPOCHS_FILE = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE = "partition.metadata"

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
META_PROPERTIES_FILE = "meta.properties"
RECOVERY_POINTS_FILE = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS_FILE = "replication-offset-checkpoint"
LOG_STARTS_FILE = "log-start-offset-checkpoint"
CLEANED_OFFSETS_FILE = "cleaner-offset-checkpoint"
OFFSET_FILES = (RECOVERY_POINTS_FILE, HIGH_WATERMARKS_FILE, LOG_STARTS_FILE, CLEANED_OFFSETS_FILE)

MAX_NAME_BYTES = 255
MOST_PARTITIONS = 1_000_000  # of a topic: no cluster can have as many

_FILE = re.compile(r"(\d+)(\.[a-z]+)(\.deleted|\.cleaned|\.swap)?$")
_REMOVED = re.compile(r"(\d{1,20})\.log(?:\.at-\d+)?\.(\d{1,20})\.removed")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_MARKED_DIR = re.compile(r"(?P<name>\S+)\.(?P<uid>\S+)-(?P<mark>delete|stray|future)$")


class DirMark(StrEnum):
    """Why a partition's directory has another name than topic-partition."""

    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"


def file_name(base_offset: Offset, kind: str, suffix: str = "") -> str:
    return f"{base_offset:020d}{kind}{suffix}"


def removed_name(base_offset: Offset, now_ms: int, position: int | None = None) -> str:
    """The name of data that recovery removes: a whole segment, or its bytes from a position on."""
    at = "" if position is None else f".at-{position}"
    return f"{file_name(base_offset, LOG)}{at}.{now_ms}{REMOVED}"


def removed_base(name: str) -> Offset | None:
    """The base offset of the segment that was removed or truncated; None for another file."""
    match = _REMOVED.fullmatch(name)
    return None if match is None else int(match[1])


def removed_at(name: str) -> int:
    """The time of the removal; 0 if the name does not have one."""
    match = _REMOVED.fullmatch(name)
    return 0 if match is None else int(match[2])


def parse_file_name(name: str) -> tuple[Offset, str, str] | None:
    """Base offset, kind and suffix; None for a file that is not part of a segment."""
    match = _FILE.match(name)
    return None if match is None else (int(match[1]), match[2], match[3] or "")


def dir_name(tp: TopicPartition) -> str:
    return str(tp)


def marked_dir_name(tp: TopicPartition, mark: DirMark, uid: UUID) -> str:
    tail = f"-{tp.partition}.{uid.hex}-{mark}"
    return tp.topic[: MAX_NAME_BYTES - len(tail)] + tail


def parse_dir_name(name: str) -> tuple[TopicPartition, DirMark | None]:
    """ValueError for a directory that is not a partition's."""
    match = _MARKED_DIR.match(name)
    plain, mark = (match["name"], DirMark(match["mark"])) if match else (name, None)
    topic, dash, partition = plain.rpartition("-")
    if not (_TOPIC.fullmatch(topic) and dash and partition.isascii() and partition.isdigit()):
        raise ValueError(f"{name!r} is not the directory of a partition: expected topic-partition")
    if len(partition) > len(str(MOST_PARTITIONS)) or int(partition) >= MOST_PARTITIONS:
        raise ValueError(f"{name!r} is not the directory of a partition: its number is too large")
    return TopicPartition(topic, int(partition)), mark

"""One pass over one log, in values: the request to the compaction process, and its report on each group."""

import json
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from leadline.config.topic import LogConfig
from leadline.log.txn_index import AbortedTxn
from leadline.model import Offset

EXIT_SHORTAGE = 75  # of the process: descriptors, space or memory ran out, and it may succeed another time


class LastRecord(NamedTuple):
    """The last batch of an active producer, which must stay."""

    last_offset: Offset | None  # of its last batch of data; None: only a marker of this epoch
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionRequest:
    """One pass over one log, in values."""

    directory: str
    bases: list[Offset]  # of the segments below the first uncleanable offset
    config: LogConfig
    first_dirty: Offset
    first_uncleanable: Offset
    now_ms: int
    dedupe_bytes: int
    load_factor: float
    io_buffer_bytes: int
    max_bytes_per_second: float
    producers: dict[int, LastRecord]
    aborted_later: list[AbortedTxn] = field(default_factory=list)  # begun here, with markers in later segments
    max_message_bytes: int = 1_048_588  # the broker's, for the growth of buffers

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "CompactionRequest":
        values = json.loads(text)
        config = values["config"]
        config["cleanup_policy"] = tuple(config["cleanup_policy"])
        values["config"] = LogConfig(**config)
        values["aborted_later"] = [AbortedTxn(*txn) for txn in values["aborted_later"]]
        values["producers"] = {int(key): LastRecord(*value) for key, value in values["producers"].items()}
        return cls(**values)


@dataclass(slots=True)
class CleanerStats:
    """What a pass read and kept."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    keys: int = 0
    keyless: int = 0  # records that should not be in a compacted topic
    seconds: float = 0.0

    def add(self, records_read: int, records_written: int, keyless: int) -> None:
        self.records_read += records_read
        self.records_written += records_written
        self.keyless += keyless


@dataclass(slots=True)
class CleanedGroup:
    """Segments that became one."""

    bases: list[Offset]
    end_offset: Offset  # of the whole pass: the clean offset once the last group is in place
    stats: CleanerStats = field(default_factory=CleanerStats)

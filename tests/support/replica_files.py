"""The replicas of a partition in log directories of their own, byte for byte alike, as brokers would leave them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from leadline.config.storage import StorageConfig
from leadline.log import checkpoints, names
from leadline.log.cleaner import cleanable, request_for
from leadline.log.log import Isolation, Log
from leadline.log.producer_state import AppendOrigin
from leadline.model import Offset, TopicPartition
from leadline.records.batch import CONTROL, FLAGS_AT
from leadline.runtime.ports import OsFiles
from tests.support.logs import START_MS, TP, LogBench, bytes_of, compact

COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "2000", "index.interval.bytes": "300"}
SMALL = {"segment.bytes": "4000", "index.interval.bytes": "300"}


class Replicas:
    """What is appended is written by the first one, the leader, and copied to the others."""

    def __init__(
        self, parent: Path, count: int = 2, settings: Mapping[str, str] = SMALL, tp: TopicPartition = TP
    ) -> None:
        self.tp, self.dirs = tp, [parent / f"broker-{n}" for n in range(count)]
        for directory in self.dirs:
            directory.mkdir(exist_ok=True)
        self.logs = [LogBench(directory, settings, tp=tp).open() for directory in self.dirs]
        self.epoch = 0

    @property
    def leader(self) -> Log:
        return self.logs[0]

    @property
    def paths(self) -> list[str]:
        return [str(directory) for directory in self.dirs]

    @property
    def folders(self) -> list[Path]:
        return [directory / str(self.tp) for directory in self.dirs]

    def append(self, *batches: bytearray) -> None:
        for batch in batches:
            origin = AppendOrigin.COORDINATOR if batch[FLAGS_AT] & CONTROL else AppendOrigin.CLIENT
            first = self.leader.log_end
            self.leader.append_as_leader(batch, self.epoch, origin)
            copy = bytes_of(self.leader.read(first, 1 << 20, Isolation.LOG_END))
            for follower in self.logs[1:]:
                follower.append_as_follower(bytearray(copy))
                assert follower.log_end == self.leader.log_end

    def compact(self, n: int, now_ms: int = START_MS) -> Offset:
        """One replica, all but its last segment. Up to where it is clean now."""
        log = self.logs[n]
        log.advance_high_watermark(log.log_end)
        log.roll()
        target = cleanable(log, None, now_ms)
        assert target is not None
        return compact(log, request_for(target, StorageConfig(), now_ms))[-1].end_offset

    def stop(self, high_watermark: Offset | None = None, cleaned: Sequence[Offset | None] = ()) -> None:
        """As a clean stop leaves them."""
        for n, (directory, log) in enumerate(zip(self.dirs, self.logs, strict=True)):
            at = log.log_end if high_watermark is None else high_watermark
            log.advance_high_watermark(at)
            log.close()
            files = OsFiles()
            checkpoints.write_offsets(files, str(directory / names.HIGH_WATERMARKS_FILE), {self.tp: at})
            checkpoints.write_offsets(files, str(directory / names.RECOVERY_POINTS_FILE), {self.tp: log.log_end})
            if n < len(cleaned) and (until := cleaned[n]) is not None:
                checkpoints.write_offsets(files, str(directory / names.CLEANED_OFFSETS_FILE), {self.tp: until})
            checkpoints.write_clean_shutdown(files, str(directory), 0)
            checkpoints.write_meta_properties(files, str(directory), {"version": "0", "broker.id": str(n)}, 0)

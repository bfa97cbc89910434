"""Recovering a log twice gives what recovering it once gave, and no index of a recovered log points past it.

A copy of the disk is recovered, so that what the broker itself finds there does not change.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from leadline.config.topic import LogConfig
from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.checkpoints import EpochEntry, read_offsets
from leadline.log.local_log import LocalLog
from leadline.log.log_context import LogContext
from leadline.log.producer_snapshots import encode_snapshot
from leadline.log.recovery import Opening, open_log
from leadline.model import Offset, TopicPartition
from leadline.records.checksum import crc32c
from leadline.runtime.ports import Job
from leadline.simulation.checkers.indexes import indexes_past_their_log
from leadline.simulation.disk_contents import DATA, copy_of, files_in, partitions_on
from leadline.simulation.ports import SeededChance
from leadline.simulation.virtual_disk import Directory, MountedDisk, VirtualDisk

KINDS = (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)  # of the files that a recovery decides about


class RecoveredLog(NamedTuple):
    log_start: Offset
    log_end: Offset
    epochs: list[EpochEntry]
    producers: bytes  # as a snapshot has them
    files: dict[str, bytes]


class _NoThread:
    """`Background` of a log without appends."""

    def run(self, doing: str, job: object, then: object, short: object = None) -> NoReturn:
        raise AssertionError(f"a recovery does it by itself: {doing}")

    def run_in_group(self, doing: str, plan: Callable[[], Job | None]) -> NoReturn:
        raise AssertionError(f"a recovery does it by itself: {doing}")

    def later(self, delay_ms: int, call: Callable[[], None]) -> NoReturn:
        raise AssertionError("a recovery waits for nothing")


def _failed(_: LocalLog, doing: str, error: OSError | CorruptFile) -> NoReturn:
    raise AssertionError(f"a recovery reports its errors by itself: {doing}") from error


def unrepeatable_recoveries(disk: VirtualDisk) -> Iterator[str]:
    """Recovers all logs on a disk that no broker uses, twice, and compares."""
    copied = copy_of(disk)
    files = MountedDisk(copied, "recovery")
    context = LogContext(disk.clock, SeededChance("recovery"), files, _NoThread(), _failed)
    try:
        recovery_points = read_offsets(files, f"/{DATA}/{names.RECOVERY_POINTS_FILE}")
        log_starts = read_offsets(files, f"/{DATA}/{names.LOG_STARTS_FILE}")
    except CorruptFile:
        return  # the broker reports that itself
    for tp, directory in partitions_on(copied).items():
        opening = Opening(
            tp,
            f"/{DATA}/{tp.topic}-{tp.partition}",
            LogConfig(),
            clean=False,
            recovery_point=recovery_points.get(tp, 0),
            log_start=log_starts.get(tp, 0),
            contiguous=True,
        )
        yield from _differences(tp, opening, context, directory)


def _differences(tp: TopicPartition, opening: Opening, context: LogContext, directory: Directory) -> Iterator[str]:
    try:
        once, again = (_recovered(opening, context, directory) for _ in range(2))
    except CorruptFile as error:
        yield f"unusable log: {tp} cannot be opened: {error}"
        return
    for name, first, second in zip(RecoveredLog._fields, once, again, strict=True):
        if first != second:
            yield f"unrepeatable recovery: {name} of {tp} is {_shown(first)}, and then {_shown(second)}"
    for line in indexes_past_their_log(again.files):
        yield f"{line}, of {tp} after a recovery"


def _recovered(opening: Opening, context: LogContext, directory: Directory) -> RecoveredLog:
    log = open_log(opening, context)
    files = {name: data for name, data in files_in(directory).items() if name.endswith(KINDS)}
    return RecoveredLog(
        log.log_start, log.log_end, list(log.epochs.entries), encode_snapshot(log.producer_state.by_id), files
    )


def _shown(value: object) -> object:
    """Files by their sizes and checksums."""
    if isinstance(value, dict):
        return {name: (len(data), crc32c(data)) for name, data in value.items()}
    return value

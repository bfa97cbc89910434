"""Every kind of file in a log directory, damaged in every way while a broker uses it: all other partitions are served.

Damage to a file of one partition is harmless, or costs the damaged records, or takes this partition offline, with one
line that names the file and the cure. Its clients get KAFKA_STORAGE_ERROR. The log directory stays online, and so does
the broker. Damage to a file of the whole directory takes nothing offline.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.config.topic import LogConfig
from leadline.errors import UNUSABLE_REMEDY, CorruptMessage, StorageError
from leadline.log.cleaner import cleanable
from leadline.log.log import Isolation, Log
from leadline.log.producer_state import AppendOrigin
from tests.support import in_memory
from tests.support.damaged_dirs import (
    DAMAGES,
    FILES_OF_THE_DIRECTORY,
    KEPT,
    OFFLINE,
    ORDERS,
    PART,
    RECORDS,
    WHOLE,
    Damage,
    Outcome,
    a_directory,
    empty,
    file_of,
    healthy_dirs,
    missing,
    new_broker,
    offsets_read,
    permissions,
    truncated,
)
from tests.support.logs import START_MS, batch, marker
from tests.support.waiting import eventually
from tests.support.watched_files import WatchedFiles

# What comes of each damage, in the order of DAMAGES:
# empty, truncated, garbage, flipped, missing, unreadable, huge, a_directory, a_loop
OF_A_PARTITION: dict[str, tuple[Outcome, ...]] = {
    "0*0.log": (OFFLINE, OFFLINE, PART, PART, OFFLINE, OFFLINE, WHOLE, OFFLINE, OFFLINE),
    "active.log": (OFFLINE, OFFLINE, PART, PART, OFFLINE, OFFLINE, WHOLE, OFFLINE, OFFLINE),
    "0*0.index": (OFFLINE, OFFLINE, WHOLE, WHOLE, OFFLINE, OFFLINE, WHOLE, OFFLINE, OFFLINE),
    "0*0.timeindex": (OFFLINE, OFFLINE, WHOLE, WHOLE, OFFLINE, OFFLINE, WHOLE, OFFLINE, OFFLINE),
    "*.txnindex": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE),
    "last.snapshot": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE),
    "partition.metadata": (WHOLE,) * 9,
    "leader-epoch-checkpoint": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, OFFLINE, WHOLE),
}


@pytest.fixture(scope="module")
def healthy() -> Iterator[dict[bool, Path]]:
    yield from healthy_dirs()


@pytest.fixture
def directory(healthy: dict[bool, Path]) -> Iterator[Path]:
    for path in in_memory.directory():
        shutil.copytree(healthy[True], path / "data")
        yield path / "data"


Use = Callable[[Broker, Log], Awaitable[object] | object]


def read(_: Broker, log: Log) -> object:
    return offsets_read(log)


def read_committed(_: Broker, log: Log) -> object:
    offset = log.log_start
    while (result := log.read(offset, 1, Isolation.COMMITTED)).slice is not None:
        offset = log.segments.floor(offset).find(offset).last_offset + 1  # type: ignore[union-attr]
    return result


def look_up_a_time(_: Broker, log: Log) -> object:
    return log.offset_for_time(START_MS - 1), log.segment_times()


def append(broker: Broker, _: Log) -> object:
    return broker.services.replicas.append(ORDERS, batch())


def abort_a_transaction(broker: Broker, log: Log) -> None:
    entry = log.producer_state.by_id.get(7)
    sequence = 0 if entry is None else entry.last_sequence + 1
    broker.services.replicas.append(ORDERS, batch(producer_id=7, sequence=sequence, transactional=True))
    broker.services.replicas.append(ORDERS, marker(7, commit=False), AppendOrigin.COORDINATOR)


def roll(_: Broker, log: Log) -> None:
    log.roll()


def append_and_roll(broker: Broker, log: Log) -> None:
    append(broker, log)
    log.roll()


def begin_epoch(_: Broker, log: Log) -> None:
    log.begin_epoch(1 + max(entry.epoch for entry in log.epochs.entries))


def flush(_: Broker, log: Log) -> None:
    log.flush(active=True)


def look_for_what_to_clean(_: Broker, log: Log) -> object:
    with log.guard("looking"):
        return cleanable(log, None, 0)


async def clean(broker: Broker, log: Log) -> None:
    log.update_config(LogConfig.parse({"cleanup.policy": "compact"}))
    await broker.log_tasks.cleaner.clean_filthiest()


def write_topic_id(_: Broker, log: Log) -> None:
    topic_id, log.topic_id = log.topic_id, None
    assert topic_id is not None
    log.assign_topic_id(topic_id)


async def truncate(broker: Broker, log: Log) -> None:
    await broker.dirs.truncation.truncate_to(ORDERS, log.log_end - 1)


def delete_old_segments(_: Broker, log: Log) -> None:
    log.delete_records(log.segments.bases[1])
    log.delete_old_segments()


async def checkpoint(broker: Broker, _: Log) -> None:
    (log_dir,) = broker.dirs.dirs.values()
    await broker.dirs.checkpoints.write_recovery_points(log_dir)
    await broker.dirs.checkpoints.write_log_starts(log_dir)
    await broker.dirs.checkpoints.write_high_watermarks(log_dir)
    await broker.dirs.checkpoints.write_cleaned_offsets(log_dir, {KEPT: 3})


READS: tuple[Use, ...] = (read, read_committed, look_up_a_time, look_for_what_to_clean)
WRITES: tuple[Use, ...] = (append, abort_a_transaction, flush, begin_epoch, roll, append, truncate, checkpoint)


class InUse:
    """A broker whose files of orders-0 are closed, as the cache closes those of idle segments."""

    def __init__(self, directory: Path) -> None:
        self.broker = new_broker(directory)
        self.broker.dirs.files = WatchedFiles(permissions)

    async def __aenter__(self) -> "InUse":
        await self.broker.start()
        (self.log_dir,) = self.broker.dirs.dirs.values()
        self.log = self.broker.dirs.logs[ORDERS]
        await self.settle()
        self.close_files()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.broker.stop()

    def close_files(self) -> None:
        for segment in self.log.segments:
            segment.release()

    async def settle(self) -> None:
        """Everything that goes on in the background ends."""
        for _ in range(3):
            await self.log_dir.disk.drain()

    async def use(self, uses: tuple[Use, ...]) -> None:
        for use in uses:
            with suppress(StorageError, CorruptMessage):
                if isinstance(result := use(self.broker, self.log), Awaitable):
                    await result
            await self.settle()

    def check(self, outcome: Outcome) -> None:
        """What came of orders-0; all others are served."""
        assert outcome_of(self.broker) is outcome
        assert not self.broker.failed.is_set()
        assert not self.broker.dirs.offline


def outcome_of(broker: Broker) -> Outcome:
    """Of orders-0. All others are served."""
    replicas = broker.services.replicas
    before = replicas.leading(KEPT).log.log_end
    replicas.append(KEPT, batch())
    assert offsets_read(replicas.leading(KEPT).log) == list(range(before + 1))
    try:
        log = replicas.leading(ORDERS).log
    except StorageError:
        return OFFLINE
    return WHOLE if offsets_read(log)[:RECORDS] == list(range(RECORDS)) else PART


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [record for record in caplog.records if record.exc_info], lines
    assert not [line for line in lines if "is a bug" in line]
    return lines


def check_named(lines: list[str], file: Path) -> None:
    (line,) = [line for line in lines if line.startswith("orders-0 is offline: ")]
    assert str(file) in line
    assert "Before the next start" in line


@pytest.mark.parametrize(
    ("kind", "damage", "outcome"),
    [
        pytest.param(kind, damage, outcome, id=f"{kind} {damage.__name__}")
        for kind, outcomes in OF_A_PARTITION.items()
        for damage, outcome in zip(DAMAGES, outcomes, strict=True)
    ],
)
def test_a_file_that_is_damaged_in_use_harms_its_own_partition_at_most(
    directory: Path, caplog: pytest.LogCaptureFixture, kind: str, damage: Damage, outcome: Outcome
) -> None:
    file = file_of(directory, kind)

    async def scenario() -> None:
        async with InUse(directory) as running:
            damage(file)
            await running.use(READS)
            running.close_files()
            await running.use(WRITES)
            running.check(outcome)

    asyncio.run(scenario())
    lines = lines_of(caplog)
    if outcome is OFFLINE:
        check_named(lines, file)
    asyncio.run(start_again(directory))


async def start_again(directory: Path) -> Outcome:
    broker = new_broker(directory)
    broker.dirs.files = WatchedFiles(permissions)
    await broker.start()
    try:
        return outcome_of(broker)
    finally:
        await broker.stop()


def in_the_way(path: Path) -> None:
    """A directory lies where a file is to be created."""
    path.unlink(missing_ok=True)
    (path / "something").mkdir(parents=True)


def gone(path: Path) -> None:
    """The whole directory of the partition."""
    shutil.rmtree(path)


# Each use of a log, and damage to a file that it needs. A roll creates the segment `next`, or `later` after an append.
USES: tuple[tuple[Use, str, Damage], ...] = (
    (read, "first.log", missing),
    (read, "first.log", truncated),
    (read, "first.index", a_directory),
    (look_up_a_time, "first.timeindex", missing),
    (look_for_what_to_clean, "first.log", missing),
    (clean, "first.log", missing),
    (write_topic_id, "partition.metadata.tmp", in_the_way),
    (append, "active.log", missing),
    (append, "active.log", a_directory),
    (abort_a_transaction, "active.txnindex", in_the_way),
    (flush, "active.index", missing),
    (flush, "", gone),
    (roll, "active.timeindex", a_directory),
    (roll, "active.log", empty),
    (roll, "next.log", in_the_way),
    (append_and_roll, "later.snapshot", in_the_way),
    (roll, "", gone),
    (begin_epoch, "leader-epoch-checkpoint", a_directory),
    (begin_epoch, "leader-epoch-checkpoint.tmp", in_the_way),
    (begin_epoch, "", gone),
    (truncate, "active.index", a_directory),
    (truncate, "", gone),
    (delete_old_segments, "first.log", missing),
    (delete_old_segments, "first.log.deleted", in_the_way),
    (delete_old_segments, "", gone),
)


def path_of(directory: Path, name: str) -> Path:
    partition = directory / str(ORDERS)
    bases = {
        "first": f"{0:020}",
        "active": max(partition.glob("*.log")).stem,
        "next": f"{RECORDS:020}",
        "later": f"{RECORDS + 1:020}",
    }
    base, dot, kind = name.partition(".")
    return partition / f"{bases.get(base, base)}{dot}{kind}"


@pytest.mark.parametrize(
    ("use", "name", "damage"),
    [pytest.param(*case, id=f"{case[0].__name__} {case[1]} {case[2].__name__}") for case in USES],
)
def test_each_use_of_a_log_that_needs_a_damaged_file_takes_its_partition_offline(
    directory: Path, caplog: pytest.LogCaptureFixture, use: Use, name: str, damage: Damage
) -> None:
    file = path_of(directory, name)

    async def scenario() -> None:
        async with InUse(directory) as running:
            damage(file)
            await running.use((use,))
            running.check(OFFLINE)
            with pytest.raises(StorageError, match="Before the next start"):
                append(running.broker, running.log)

    asyncio.run(scenario())
    check_named(lines_of(caplog), file)


def test_a_directory_whose_partition_went_offline_in_use_is_not_marked_as_closed(directory: Path) -> None:
    """What was not closed is recovered by the next start; until then, its lines stay in the checkpoints."""

    async def scenario() -> dict[str, str]:
        async with InUse(directory) as running:
            a_directory(path_of(directory, "leader-epoch-checkpoint"))
            await running.use((append, begin_epoch))
            running.check(OFFLINE)
            await running.use((checkpoint,))
        return running.broker.dirs.not_closed

    assert "these went offline, and may not be on the disk: orders-0" in "".join(asyncio.run(scenario()).values())
    assert not (directory / ".kafka_cleanshutdown").exists()
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert f"{ORDERS.topic} {ORDERS.partition} " in (directory / name).read_text()
    shutil.rmtree(path_of(directory, "leader-epoch-checkpoint"))
    assert asyncio.run(start_again(directory)) is WHOLE


def test_a_partition_that_cannot_be_closed_does_not_keep_others_from_being_closed(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = path_of(directory, "first.log")

    async def scenario() -> dict[str, str]:
        async with InUse(directory) as running:
            await running.use((append,))
            a_directory(file)
        return running.broker.dirs.not_closed

    assert "orders-0" in "".join(asyncio.run(scenario()).values())
    check_named(lines_of(caplog), file)
    assert asyncio.run(start_again(directory)) is OFFLINE


def test_a_partition_that_went_offline_in_use_can_be_deleted_with_its_topic(directory: Path) -> None:
    async def scenario() -> None:
        async with InUse(directory) as running:
            shutil.rmtree(directory / str(ORDERS))
            await running.use((begin_epoch,))
            running.check(OFFLINE)
            await running.broker.services.cluster.delete_topic(ORDERS.topic)
            await eventually(lambda: ORDERS not in running.broker.services.replicas.hosted)
        assert not running.broker.dirs.not_closed

    asyncio.run(scenario())


CHECKPOINTS = tuple(name for name in FILES_OF_THE_DIRECTORY if name.endswith("-checkpoint"))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_of_the_directory_takes_nothing_offline(
    directory: Path, caplog: pytest.LogCaptureFixture, name: str, damage: Damage
) -> None:
    file = directory / name

    async def scenario() -> dict[str, str]:
        async with InUse(directory) as running:
            damage(file)
            await running.use((append, roll, append, checkpoint))
            running.check(WHOLE)
        return running.broker.dirs.not_closed

    not_closed = asyncio.run(scenario())
    lines = lines_of(caplog)
    if not_closed:
        assert [line for line in lines if str(file) in line and UNUSABLE_REMEDY in line]
    assert bool(not_closed) is (file.is_dir() and name != "cleaner-offset-checkpoint")  # a stop does not write that


def test_a_directory_that_is_gone_is_offline_as_a_whole(directory: Path) -> None:
    """It is not the fault of the partition whose file is missed first."""

    async def scenario() -> None:
        async with InUse(directory) as running:
            shutil.rmtree(directory)
            await running.use((read,))
            assert list(running.broker.dirs.offline) == [str(directory)]
            assert running.broker.failed.is_set()

    asyncio.run(scenario())

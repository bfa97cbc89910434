"""Every kind of file in a log directory, damaged in every way: a broker that starts on it serves all other partitions.

Damage to a file of one partition is harmless, or costs what was not flushed, or takes this partition offline, with one
line that names the file and the cure. Damage to a file of the whole directory is harmless, or the broker refuses to
start, with one line. Nothing is ever taken for a bug.
"""

import asyncio
import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leadline.broker.broker import Broker
from leadline.cli.start.command import REFUSALS
from leadline.errors import StorageError
from leadline.model import TopicPartition
from leadline.replication.hosted_partition import HostedPartition
from tests.support import in_memory
from tests.support.damaged_dirs import (
    DAMAGES,
    KEPT,
    OFFLINE,
    ORDERS,
    PART,
    PATIENCE_S,
    RECORDS,
    REFUSED,
    WHOLE,
    Damage,
    Outcome,
    file_of,
    healthy_dirs,
    new_broker,
    offsets_read,
    permissions,
)
from tests.support.logs import batch
from tests.support.watched_files import WatchedFiles

# What comes of each damage, in the order of DAMAGES: after a clean stop, and after a crash.
OF_A_PARTITION: dict[str, tuple[tuple[Outcome, ...], tuple[Outcome, ...]]] = {
    "0*0.log": (
        (PART, PART, PART, PART, PART, OFFLINE, WHOLE, OFFLINE, OFFLINE),
        (PART, PART, PART, PART, PART, OFFLINE, WHOLE, OFFLINE, OFFLINE),
    ),
    "active.log": (
        (PART, PART, PART, PART, PART, OFFLINE, WHOLE, OFFLINE, OFFLINE),
        (PART, PART, PART, PART, PART, OFFLINE, WHOLE, OFFLINE, OFFLINE),
    ),
    "0*0.index": ((WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, OFFLINE, WHOLE, OFFLINE, OFFLINE),) * 2,
    "0*0.timeindex": ((WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, OFFLINE, WHOLE, OFFLINE, OFFLINE),) * 2,
    "*.txnindex": ((WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, OFFLINE, WHOLE, OFFLINE, OFFLINE),) * 2,
    "last.snapshot": ((WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, OFFLINE, WHOLE, OFFLINE, OFFLINE),) * 2,
    "partition.metadata": (
        (WHOLE, OFFLINE, OFFLINE, OFFLINE, WHOLE, OFFLINE, OFFLINE, OFFLINE, OFFLINE),
        (WHOLE, OFFLINE, OFFLINE, WHOLE, WHOLE, OFFLINE, OFFLINE, OFFLINE, OFFLINE),  # another broker's topic, maybe
    ),
    "leader-epoch-checkpoint": ((WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, OFFLINE, WHOLE, OFFLINE, OFFLINE),) * 2,
}
OF_THE_DIRECTORY: dict[str, tuple[Outcome | None, ...]] = {  # None: SQLite does not ask `permissions`
    "recovery-point-offset-checkpoint": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, REFUSED, WHOLE, REFUSED, REFUSED),
    "log-start-offset-checkpoint": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, REFUSED, WHOLE, REFUSED, REFUSED),
    "replication-offset-checkpoint": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, REFUSED, WHOLE, REFUSED, REFUSED),
    "cleaner-offset-checkpoint": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, REFUSED, WHOLE, REFUSED, REFUSED),
    ".kafka_cleanshutdown": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, REFUSED, REFUSED),
    "meta.properties": (WHOLE, WHOLE, WHOLE, REFUSED, WHOLE, REFUSED, REFUSED, REFUSED, REFUSED),
    "coordination.db": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, None, WHOLE, REFUSED, REFUSED),
    ".lock": (WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, REFUSED, WHOLE, REFUSED, REFUSED),
}


@pytest.fixture(scope="module")
def healthy() -> Iterator[dict[bool, Path]]:
    yield from healthy_dirs()


@pytest.fixture
def path() -> Iterator[Path]:
    yield from in_memory.directory()


class Tried:
    """One start on a damaged directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.refusal: Exception | None = None
        self.offline: StorageError | None = None
        self.offsets: list[int] = []
        self.kept: list[int] = []

    async def run(self) -> None:
        broker = new_broker(self.directory)
        broker.dirs.files = WatchedFiles(permissions)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await broker.start()
        except REFUSALS as error:
            self.refusal = error
            return
        try:
            kept = self.led(broker, KEPT)
            assert kept is not None
            broker.services.replicas.append(KEPT, batch())
            self.kept = offsets_read(kept.log)
            orders = self.led(broker, ORDERS)
            if orders is not None:
                self.offsets = offsets_read(orders.log)
                broker.services.replicas.append(ORDERS, batch())
        finally:
            await broker.stop()

    def led(self, broker: Broker, tp: TopicPartition) -> HostedPartition | None:
        try:
            return broker.services.replicas.leading(tp)
        except StorageError as error:
            self.offline = error
            return None

    @property
    def outcome(self) -> Outcome:
        if self.refusal is not None:
            return REFUSED
        if self.offline is not None:
            return OFFLINE
        return WHOLE if self.offsets == list(range(RECORDS)) else PART


def cases() -> Iterator[tuple[str, Damage, bool, Outcome]]:
    for kind, (after_a_clean_stop, after_a_crash) in OF_A_PARTITION.items():
        for clean, outcomes in ((True, after_a_clean_stop), (False, after_a_crash)):
            for damage, outcome in zip(DAMAGES, outcomes, strict=True):
                yield kind, damage, clean, outcome
    for kind, of_damages in OF_THE_DIRECTORY.items():
        for damage, of_directory in zip(DAMAGES, of_damages, strict=True):
            if of_directory is not None:
                yield kind, damage, True, of_directory


@pytest.mark.parametrize(
    ("kind", "damage", "clean", "outcome"),
    [pytest.param(*case, id=f"{case[0]} {case[1].__name__} {'clean' if case[2] else 'crash'}") for case in cases()],
)
def test_a_damaged_file_harms_its_own_partition_at_most(
    healthy: dict[bool, Path],
    path: Path,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    damage: Damage,
    clean: bool,
    outcome: Outcome,
) -> None:
    directory = path / "data"
    shutil.copytree(healthy[clean], directory)
    file = file_of(directory, kind)
    damage(file)
    tried = Tried(directory)
    with caplog.at_level(logging.INFO):
        asyncio.run(tried.run())
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [record for record in caplog.records if record.exc_info], lines
    assert not [line for line in lines if "is a bug" in line]
    assert tried.outcome is outcome, (tried.refusal, tried.offline, tried.offsets, lines)
    if outcome is REFUSED:
        assert file.name in str(tried.refusal)
        assert "\n" not in str(tried.refusal)
        return
    assert tried.kept == list(range(RECORDS + 1))
    if outcome is OFFLINE:
        named = [line for line in lines if line.startswith("orders-0 is offline: ")]
        assert len(named) == 1, lines
        assert str(file) in named[0]


NODES = (
    "brokers/topics/orders",
    "brokers/topics/orders/partitions/0/state",
    "config/topics/orders",
    "controller_epoch",
)


@pytest.mark.parametrize("node", NODES)
def test_a_node_that_cannot_be_read_costs_no_records(
    healthy: dict[bool, Path], path: Path, caplog: pytest.LogCaptureFixture, node: str
) -> None:
    """SQLite does not notice a byte that changed within a value."""
    directory = path / "data"
    shutil.copytree(healthy[True], directory)
    parent, _, name = f"/{node}".rpartition("/")
    with closing(sqlite3.connect(directory / "coordination.db")) as database:
        changed = database.execute(
            "UPDATE node SET data = ? WHERE parent = ? AND name = ?", (b'{"version":\xff', parent or "/", name)
        )
        assert changed.rowcount == 1
        database.commit()
    tried = Tried(directory)
    asyncio.run(tried.run())
    assert tried.outcome is WHOLE, (tried.refusal, caplog.messages)
    assert not [record for record in caplog.records if record.exc_info], caplog.messages
    settings = new_broker(directory)

    async def retention() -> int:
        await settings.start()
        try:
            return settings.dirs.logs[ORDERS].config.retention_ms
        finally:
            await settings.stop()

    assert asyncio.run(retention()) == -1, "what it was, or for ever where it is not known any more"


def test_what_lies_about_in_the_directories_is_left_alone(
    healthy: dict[bool, Path], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = path / "data"
    shutil.copytree(healthy[False], directory)
    (directory / "lost+found").mkdir()
    (directory / "backup-20260101").mkdir()
    (directory / "backup-202601").mkdir()
    (directory / "my notes-1").mkdir()
    (directory / "orders-0.bak").mkdir()
    (directory / "nowhere-0").symlink_to(directory / "nothing")
    (directory / "a file").write_text("x")
    (directory / "empty-3").mkdir()
    orders = directory / str(ORDERS)
    (orders / "notes.txt").write_text("x")
    (orders / "00000000000000000000.log.bak").write_text("x")
    (orders / "sub").mkdir()
    moved = path / "elsewhere"
    shutil.move(directory / str(KEPT), moved)
    (directory / str(KEPT)).symlink_to(moved)
    tried = Tried(directory)
    asyncio.run(tried.run())
    assert tried.outcome is WHOLE, (tried.refusal, tried.offline, caplog.messages)
    assert tried.kept == list(range(RECORDS + 1))
    assert (orders / "notes.txt").exists()
    assert not [record for record in caplog.records if record.exc_info], caplog.messages


def test_a_file_in_the_place_of_a_partition_takes_it_offline_alone(
    healthy: dict[bool, Path], path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    directory = path / "data"
    shutil.copytree(healthy[True], directory)
    shutil.rmtree(directory / str(ORDERS))
    (directory / str(ORDERS)).write_text("x")
    tried = Tried(directory)
    asyncio.run(tried.run())
    assert tried.outcome is OFFLINE, (tried.refusal, caplog.messages)
    assert tried.kept == list(range(RECORDS + 1))

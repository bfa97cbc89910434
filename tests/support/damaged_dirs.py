"""Log directories to be damaged, and every way to damage a file."""

import asyncio
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

from leadline.broker.broker import Broker
from leadline.broker.ports import Ports
from leadline.config.broker import broker_settings
from leadline.errors import CorruptMessage
from leadline.log.log import Isolation, Log
from leadline.log.producer_state import AppendOrigin
from leadline.model import TopicPartition
from leadline.records.batch import crc_of, header_at
from tests.support import in_memory
from tests.support.logs import batch, bytes_of, marker

ORDERS, KEPT = TopicPartition("orders", 0), TopicPartition("kept", 0)
RECORDS = 27
PATIENCE_S = 60
HUGE_BYTES = 1 << 40
FILES_OF_THE_DIRECTORY = (
    "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint",
    "cleaner-offset-checkpoint", ".kafka_cleanshutdown", "meta.properties", "coordination.db", ".lock",
)  # fmt: skip
SMALL = {"segment.bytes": "700", "index.interval.bytes": "100", "retention.ms": "-1"}


class Outcome(Enum):
    WHOLE = "all records are served"
    PART = "some records are served, those before the damage at least"
    OFFLINE = "the partition is offline, and said to be"
    REFUSED = "the broker does not start, and says why"


WHOLE, PART, OFFLINE, REFUSED = Outcome


def empty(path: Path) -> None:
    path.write_bytes(b"")


def truncated(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 + 1])


def garbage(path: Path) -> None:
    path.write_bytes(bytes((7 * n * n + 13 * n) % 256 for n in range(max(path.stat().st_size, 100))))


def flipped(path: Path) -> None:
    """Within the records of a batch, if it is a log; to another id, if it is one."""
    data = bytearray(path.read_bytes()) or bytearray(1)
    at = len(data) - 3 if path.suffix == ".log" else len(data) // 2
    data[at] ^= 0x40
    if path.name == "partition.metadata":
        data[at] = ord("B") if data[at] ^ 0x40 == ord("A") else ord("A")
    path.write_bytes(data)


def missing(path: Path) -> None:
    path.unlink()


def unreadable(path: Path) -> None:
    """By `permissions` below: the tests may run as root, and root is denied nothing."""
    path.with_name(f"{path.name}.denied").touch()


def huge(path: Path) -> None:
    os.truncate(path, HUGE_BYTES)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "something").touch()


def a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


Damage = Callable[[Path], None]
DAMAGES: tuple[Damage, ...] = (
    empty, truncated, garbage, flipped, missing, unreadable, huge, a_directory, a_loop,
)  # fmt: skip


def permissions(operation: str, path: str) -> None:
    """As the system has them for `unreadable` files."""
    if operation in ("open", "rename_over") and os.path.exists(f"{path}.denied"):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)


def new_broker(directory: Path) -> Broker:
    settings = {"log.dirs": str(directory), "listeners": "PLAINTEXT://localhost:0", "log.segment.delete.delay.ms": "0"}
    return Broker(broker_settings(settings), Ports())


async def fill(directory: Path) -> None:
    """Copies the files while the broker runs: they look as after a crash."""
    broker = new_broker(directory.with_name("running"))
    await broker.start()
    me = broker.services.metadata.me.id
    for tp in (ORDERS, KEPT):
        await broker.services.cluster.create_topic(tp.topic, ((me,),), SMALL)
    replicas = broker.services.replicas
    for tp in (ORDERS, KEPT):
        for n in range(RECORDS // 3):
            replicas.append(tp, batch(producer_id=1, sequence=n))
            replicas.append(tp, batch(producer_id=2, sequence=n, transactional=True))
            replicas.append(tp, marker(2, commit=n % 2 == 0), AppendOrigin.COORDINATOR)
    (log_dir,) = broker.dirs.dirs.values()
    await log_dir.disk.drain()
    await log_dir.disk.drain()
    await broker.dirs.checkpoints.write_high_watermarks(log_dir)
    await broker.dirs.checkpoints.write_log_starts(log_dir)
    await broker.dirs.checkpoints.write_cleaned_offsets(log_dir, {KEPT: 3})
    shutil.copytree(log_dir.path, directory)
    await broker.stop()


def file_of(directory: Path, kind: str) -> Path:
    """The file that a line of the tables speaks of."""
    if kind in FILES_OF_THE_DIRECTORY:
        return directory / kind
    partition = directory / str(ORDERS)
    if kind == "active.log":
        return max(partition.glob("*.log"))
    if kind == "last.snapshot":
        return max(partition.glob("*.snapshot"))
    return min(partition.glob(kind))


def healthy_dirs() -> Iterator[dict[bool, Path]]:
    """After a crash and after a clean stop: orders-0 with several segments, and kept-0."""
    for path in in_memory.directory():
        asyncio.run(fill(path / "crashed"))
        shutil.copytree(path / "crashed", path / "clean")
        asyncio.run(stop_cleanly(path / "clean"))
        yield {clean: path / ("clean" if clean else "crashed") for clean in (True, False)}


async def stop_cleanly(directory: Path) -> None:
    broker = new_broker(directory)
    await broker.start()
    await broker.stop()
    (log_dir,) = [directory]
    assert (log_dir / ".kafka_cleanshutdown").exists()


def offsets_read(log: Log) -> list[int]:
    """As a consumer reads: batch by batch, and none but whole ones."""
    offsets, offset = list[int](), log.log_start
    with suppress(CorruptMessage):
        while (read := log.read(offset, 1, Isolation.LOG_END)).slice is not None:
            data = bytes_of(read)
            header = header_at(data)
            if crc_of(data, 0, len(data)) == header.crc:
                offsets += range(header.base_offset, header.last_offset + 1)
            offset = header.last_offset + 1
    return offsets

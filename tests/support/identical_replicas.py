"""Replicas on the disks of several brokers, compared byte for byte once nothing is written any more."""

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from leadline.log.checkpoints import read_epochs
from leadline.records.batch import walk
from leadline.runtime.ports import OsFiles
from tests.support.waiting import until


def log_of(directory: Path, partition: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted((directory / partition).glob("*.log")))


def are_identical(directories: Sequence[Path], partition: str) -> bool:
    return len({log_of(directory, partition) for directory in directories}) == 1


def epochs_in(directory: Path, partition: str) -> list[int]:
    """In the order in which they wrote."""
    return list(dict.fromkeys(header.leader_epoch for _, header in walk(log_of(directory, partition))))


def replicas_are_identical(directories: Sequence[Path], partitions: Iterable[str]) -> None:
    """At last, and they agree on which leader wrote what."""
    for partition in partitions:
        until(partial(are_identical, directories, partition), partial(str, partition))
        epochs = epochs_in(directories[0], partition)
        assert epochs == sorted(epochs), f"{partition}: {epochs}"
        for directory in directories:
            checkpoint = read_epochs(OsFiles(), str(directory / partition / "leader-epoch-checkpoint"))
            assert {entry.epoch for entry in checkpoint} >= set(epochs), f"{directory.name} {partition}: {checkpoint}"

"""Small files that are replaced whole, on a crash disk: the old content or the new, behind every single operation."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from leadline.log.checkpoints import EpochEntry as Epoch
from leadline.log.checkpoints import (
    encode_epochs,
    read_epochs,
    read_meta_properties,
    read_offsets,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from leadline.log.files import replace_file
from leadline.model import TopicPartition
from leadline.runtime.ports import Files, OsFiles
from tests.support.crash_disk import CrashDisk

TP = TopicPartition("orders", 0)


def offsets(files: Files, directory: str, value: int) -> None:
    write_offsets(files, f"{directory}/offsets", {TP: value})


def epochs(files: Files, directory: str, value: int) -> None:
    replace_file(files, f"{directory}/epochs", encode_epochs([Epoch(0, 0), Epoch(value, value)]))


def properties(files: Files, directory: str, value: int) -> None:
    write_meta_properties(files, directory, {"broker.id": str(value)}, 0)


CASES: dict[str, tuple[Callable[[Files, str, int], None], Callable[[str], object]]] = {
    "offset checkpoint": (offsets, lambda path: read_offsets(OsFiles(), f"{path}/offsets")[TP]),
    "leader epochs": (epochs, lambda path: read_epochs(OsFiles(), f"{path}/epochs")[-1].epoch),
    "meta.properties": (properties, lambda path: int((read_meta_properties(OsFiles(), path) or {})["broker.id"])),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_file_that_is_replaced_shows_the_old_content_or_the_new(name: str, strict: bool, scratch: Path) -> None:
    write, read = CASES[name]
    run = scratch / "run"
    run.mkdir()
    disk = CrashDisk(run)
    write(disk, str(run), 1)
    written = len(disk.journal)
    write(disk, str(run), 2)
    contents = set()
    for operations in range(written, len(disk.journal) + 1):
        for seed in range(10):
            left = scratch / f"{operations}-{seed}"
            disk.after_power_failure(left, operations, Random(seed), strict=strict)
            contents.add(read(str(left)))
    assert contents == {1, 2}


def test_a_clean_shutdown_file_is_gone_for_good_once_it_was_taken(scratch: Path) -> None:
    run = scratch / "run"
    run.mkdir()
    disk = CrashDisk(run)
    write_clean_shutdown(disk, str(run), 7)
    assert take_clean_shutdown(disk, str(run)) == 7
    taken = len(disk.journal)
    offsets(disk, str(run), 1)
    for operations in range(taken, len(disk.journal) + 1):
        left = scratch / str(operations)
        disk.after_power_failure(left, operations, Random(operations), strict=True)
        assert take_clean_shutdown(OsFiles(), str(left)) is None

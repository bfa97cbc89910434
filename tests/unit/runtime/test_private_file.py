"""The files of the embedded tree: only their owner may read them."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.coordination.database import FILE_NAME, Database
from tests.support import in_memory
from tests.support.logs import ManualClock


@pytest.fixture
def directory() -> Iterator[Path]:
    yield from in_memory.directory()


def modes(directory: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()}


def test_a_new_tree_and_its_log_are_private(directory: Path) -> None:
    database = Database(str(directory), ManualClock())
    assert len(modes(directory)) > 1
    assert set(modes(directory).values()) == {0o600}
    database.close()


def test_a_tree_that_others_could_read_becomes_private(directory: Path) -> None:
    Database(str(directory), ManualClock()).close()
    (directory / FILE_NAME).chmod(0o644)
    Database(str(directory), ManualClock()).close()
    assert modes(directory)[FILE_NAME] == 0o600


def test_what_is_kept_of_a_damaged_tree_is_private(directory: Path) -> None:
    (directory / FILE_NAME).write_bytes(b"no database" * 1000)
    (directory / FILE_NAME).chmod(0o644)
    Database(str(directory), ManualClock()).close()
    assert len(modes(directory)) > 1
    assert set(modes(directory).values()) == {0o600}

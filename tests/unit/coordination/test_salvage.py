"""A damaged coordination.db: what can be read is kept, and the tree goes on."""

import logging
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from leadline.coordination.database import FILE_NAME, Database
from leadline.coordination.tree import Create
from leadline.errors import CorruptFile
from leadline.runtime.ports import SystemTime
from tests.support import in_memory

NODES = {f"/topics/t{n}": os.urandom(20).hex().encode() * 20 for n in range(300)}


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    database = Database(str(tmp_path), SystemTime())
    database.begin()
    for path, data in {"/topics": b"", **NODES}.items():
        database.transaction(lambda path=path, data=data: database.create(Create(path, data)))  # type: ignore[misc]
    database.commit()
    database.close()
    return tmp_path / FILE_NAME


def readable(file: Path) -> dict[str, bytes]:
    database = Database(str(file.parent), SystemTime())
    try:
        nodes = {f"/topics/{name}": database.get(f"/topics/{name}") for name in database.children("/topics") or ()}
        database.begin()
        database.transaction(lambda: database.create(Create("/more", sequential=True)))
        database.commit()
        return {path: node.data for path, node in nodes.items() if node is not None}
    finally:
        database.close()


def test_a_file_that_is_whole_is_left_as_it_is(file: Path) -> None:
    assert readable(file) == NODES
    assert not file.with_name(f"{FILE_NAME}.damaged").exists()


@pytest.mark.parametrize("page", range(1, 20, 3))
def test_what_a_damaged_page_does_not_hide_is_kept(file: Path, page: int, caplog: pytest.LogCaptureFixture) -> None:
    data = bytearray(file.read_bytes())
    assert len(data) > 20 * 4096
    data[page * 4096 : page * 4096 + 200] = b"\xff" * 200
    file.write_bytes(data)
    with caplog.at_level(logging.ERROR):
        kept = readable(file)
    assert kept.items() <= NODES.items()
    (line,) = caplog.messages
    assert "the records of topics are not affected" in line
    assert "\n" not in line
    assert file.with_name(f"{FILE_NAME}.damaged").read_bytes()[4096:] == data[4096:]
    assert readable(file).items() >= kept.items(), "the next start finds a file that is whole"
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("content", [b"garbage" * 100, b"SQLite format 3\0" + b"\7" * 5000])
def test_of_what_is_no_database_nothing_is_kept_but_the_file(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert readable(file) == {}
    assert file.with_name(f"{FILE_NAME}.damaged").read_bytes() == content


def test_a_file_cut_anywhere_or_with_any_byte_changed_opens_or_is_refused(file: Path) -> None:
    whole, chosen = file.read_bytes(), random.Random(5)
    for _ in range(40):
        data = bytearray(whole)
        at = chosen.randrange(len(data)) if chosen.random() < 0.7 else chosen.randrange(100)
        if chosen.random() < 0.3:
            del data[at:]
        else:
            data[at] ^= 1 << chosen.randrange(8)
        file.write_bytes(data)
        for left in file.parent.glob(f"{FILE_NAME}-*"):
            left.unlink()
        with suppress(CorruptFile):  # the bytes that say what kind of file it is
            readable(file)


def test_a_file_of_another_format_is_refused_with_what_helps(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[60:64] = (99).to_bytes(4, "big")  # user_version
    file.write_bytes(data)
    with pytest.raises(CorruptFile, match=r"format 99; expected .*delete it: then the settings of topics"):
        Database(str(file.parent), SystemTime())

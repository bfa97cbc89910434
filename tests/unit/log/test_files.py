"""Whole reads and writes of files, replacement, removal, and whose fault an error is."""

import errno
import os
from pathlib import Path

import pytest

from leadline.errors import CorruptFile
from leadline.log import files as log_files
from leadline.log.files import (
    file_size,
    naming,
    read_file,
    remove_files,
    remove_tree,
    replace_file,
    unless_unusable,
    unusable_file,
    write_file,
)
from leadline.runtime.ports import OsFiles

FILES = OsFiles()


@pytest.mark.parametrize("sync", [True, False])
def test_what_is_written_is_read_back_whole(tmp_path: Path, sync: bool) -> None:
    path = str(tmp_path / "file")
    write_file(FILES, path, b"long" * 1000, sync=sync)
    write_file(FILES, path, b"short", sync=sync)
    assert read_file(FILES, path) == b"short"
    assert file_size(FILES, path) == 5


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    with pytest.raises(CorruptFile, match="it has 5 bytes; no such file is larger than 4"):
        read_file(FILES, str(tmp_path / "file"), most_bytes=4)


def test_a_replacement_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "checkpoint")
    replace_file(FILES, path, b"old")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "it cannot be read or written")

    monkeypatch.setattr(log_files, "write_all", refuse)
    with pytest.raises(OSError, match="it cannot be read"):
        replace_file(FILES, path, b"new")
    assert read_file(FILES, path) == b"old"


def test_files_that_are_missing_are_as_good_as_removed(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    remove_files(FILES, [str(tmp_path / "a"), str(tmp_path / "b")])
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_removed_with_everything_in_it(tmp_path: Path) -> None:
    (tmp_path / "orders-0" / "notes of a person").mkdir(parents=True)
    (tmp_path / "orders-0" / "notes of a person" / "file").touch()
    remove_tree(FILES, str(tmp_path / "orders-0"))
    assert not (tmp_path / "orders-0").exists()


@pytest.mark.parametrize(("code", "name"), [(errno.EACCES, "/d/file"), (errno.ENOENT, "/d/file")])
def test_a_file_that_the_system_refuses_is_the_cause(code: int, name: str) -> None:
    cause = unusable_file(OSError(code, os.strerror(code), name), "/d")
    assert cause is not None
    assert name in str(cause)


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.ENOSPC])
def test_an_error_of_the_disk_is_not_that_of_a_file(code: int) -> None:
    error = OSError(code, os.strerror(code), "/d/file")

    def fail() -> None:
        raise error

    assert unusable_file(error, "/d") is None
    with pytest.raises(OSError, match=os.strerror(code)):
        unless_unusable(fail)


def test_an_error_about_a_descriptor_gets_the_name_of_its_file() -> None:
    with pytest.raises(OSError, match="/d/file") as raised, naming("/d/file"):
        raise OSError(errno.EBADF, "Bad file descriptor")
    assert raised.value.filename == "/d/file"

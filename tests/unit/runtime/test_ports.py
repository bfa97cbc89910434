"""The real disk, where it is more than calls of `os`."""

import os
import threading
from pathlib import Path

import pytest

from leadline.runtime.ports import LARGE_BYTES, OsFiles


@pytest.mark.parametrize(("size", "deleted"), [(LARGE_BYTES, True), (LARGE_BYTES, False), (LARGE_BYTES - 1, True)])
def test_only_a_large_file_that_was_deleted_is_closed_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, deleted: bool
) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size)
    if deleted:
        os.unlink(tmp_path / "file")
    real, closed, where = os.close, threading.Event(), list[int]()

    def close(fd: int) -> None:
        real(fd)
        where.append(threading.get_ident())
        closed.set()

    monkeypatch.setattr(os, "close", close)
    OsFiles().close(fd)
    assert closed.wait(120)
    assert (where != [threading.get_ident()]) == (deleted and size >= LARGE_BYTES)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)

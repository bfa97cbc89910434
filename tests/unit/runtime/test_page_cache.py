"""The page cache: what Linux says of it, and how files are written back."""

import ctypes
import errno
import os
from pathlib import Path

import pytest

from leadline.runtime import page_cache
from leadline.runtime.page_cache import DirtyPages, _sync_file_range, dirty_pages, is_cached, load, write_back


def test_linux_reports_the_dirty_pages_and_both_thresholds(tmp_path: Path) -> None:
    path = tmp_path / "vmstat"
    path.write_text("nr_dirty 5\nnr_writeback 2\nnr_dirty_threshold 90\nnr_dirty_background_threshold 40\nother 1\n")
    assert dirty_pages(str(path)) == DirtyPages(7, 40, 90)
    path.write_text("nr_dirty 5\n")
    assert dirty_pages(str(path)) is None
    assert dirty_pages(str(tmp_path / "none")) is None


def test_writeback_takes_a_real_file(tmp_path: Path) -> None:
    call = _sync_file_range()
    if call is None:
        pytest.skip("needs a system that has sync_file_range")
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(10_000))
        file.flush()
        assert call(file.fileno(), 0, 10_000, 7) == 0
        assert write_back(file.fileno(), 0, 10_000)


@pytest.mark.parametrize("error", [OSError(errno.EMFILE, ""), ImportError()])
def test_where_the_call_cannot_be_loaded_nothing_is_written_back(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Its first use may come when no descriptor is left. That is no failure of the disk."""

    def load_call() -> None:
        raise error

    monkeypatch.setattr(page_cache, "_sync_file_range", load_call)
    assert not write_back(0, 0, 0)


def test_an_error_of_the_disk_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: int) -> int:
        ctypes.set_errno(errno.EIO)
        return -1

    monkeypatch.setattr(page_cache, "_sync_file_range", lambda: fail)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        write_back(0, 0, 0)


def test_a_range_that_was_loaded_is_cached_and_one_past_the_end_counts_as_cached(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(2_000_000))
    with path.open("rb") as file:
        load(file.fileno(), 0, 3_000_000)
        assert is_cached(file.fileno(), 0, 2_000_000)
        assert is_cached(file.fileno(), 2_000_000, 10)

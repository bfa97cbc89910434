"""The file of `leadline pipeline report` is checked before a topic is read."""

from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.cli.pipeline.report import _check_writable


def test_a_directory_and_a_file_in_a_missing_directory_cannot_be_written(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "report.html"):
        with pytest.raises(Failure, match=f"--out {path}: cannot write a file there"):
            _check_writable(path)


def test_a_new_file_and_an_existing_one_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    existing = tmp_path / "report.html"
    existing.touch()
    for path in (existing, tmp_path / "new.html", Path("relative.html")):
        _check_writable(path)

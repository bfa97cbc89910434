"""Text files that a user names: UTF-8, or a failure that says where it is not."""

from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.cli.text_files import read_text


def test_text_is_read_as_utf8(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes("grün\r\n".encode())
    assert read_text(file) == "grün\n"


def test_bytes_that_are_no_text_are_named_by_position(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"abc\xff")
    with pytest.raises(Failure, match="expected text in UTF-8; byte 3 does not fit"):
        read_text(file)

"""Passwords come from a prompt, a file or stdin; files with secrets are private."""

import argparse
import io
from pathlib import Path

import pytest

from leadline.admin.errors import Failure
from leadline.cli.passwords import add_password_options, password_of, write_private


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def password(*arguments: str) -> str:
    parser = argparse.ArgumentParser()
    add_password_options(parser)
    return password_of(parser.parse_args(arguments), "alice").reveal_text()


def test_a_file_and_stdin_have_it_in_their_first_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("s e c\r\nmore\n")
    assert password("--password-file", str(tmp_path / "file")) == "s e c"
    monkeypatch.setattr("sys.stdin", io.StringIO("from stdin\n"))
    assert password("--password-stdin") == "from stdin"


def test_a_file_that_is_no_text_is_named_without_what_it_holds(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes("geheim-grün".encode("latin-1"))
    with pytest.raises(Failure) as failure:
        password("--password-file", str(file))
    assert str(failure.value) == f"{file}: expected text in UTF-8; byte 9 does not fit"


def test_on_the_command_line_it_is_taken_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    assert password("--password", "hunter2") == "hunter2"
    shown = capsys.readouterr().err
    assert "visible to all users" in shown
    assert "hunter2" not in shown


def test_a_person_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    answers = iter(["one", "one", "one", "two", "", ""])
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(answers))
    assert password() == "one"
    with pytest.raises(Failure, match="not the same"):
        password()
    with pytest.raises(Failure, match="empty"):
        password()


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    with pytest.raises(Failure, match="--password-file or --password-stdin"):
        password()


def test_a_private_file_is_its_owners_alone_and_never_overwritten(tmp_path: Path) -> None:
    write_private(tmp_path / "key", b"secret")
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_private(tmp_path / "key", b"other")
    assert (tmp_path / "key").read_bytes() == b"secret"

"""Passwords that a command takes: from a prompt, a file or stdin. From the command line only with a warning."""

import argparse
import getpass
import os
import sys
from pathlib import Path

from leadline.admin.errors import Failure
from leadline.cli.errors import print_error
from leadline.cli.text_files import read_text
from leadline.security.secret import Secret


def add_password_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the password (default: ask for it)").add_mutually_exclusive_group()
    group.add_argument("--password-file", type=Path, metavar="FILE", help="file whose first line is the password")
    group.add_argument("--password-stdin", action="store_true", help="read one line from stdin")
    group.add_argument("--password", metavar="TEXT", help="not safe: other users of this machine can see it")


def password_of(options: argparse.Namespace, whose: str) -> Secret:
    if options.password is not None:
        print_error("warning: --password is visible to all users of this machine; --password-file is not")
        return _checked(options.password)
    if options.password_file is not None:
        return _checked(_first_line(read_text(options.password_file)))
    if options.password_stdin:
        return _checked(_first_line(sys.stdin.readline()))
    if not sys.stdin.isatty():
        raise Failure("no terminal to ask for the password: give --password-file or --password-stdin")
    password = getpass.getpass(f"Password of {whose}: ")
    if password != getpass.getpass("Again: "):
        raise Failure("the two passwords are not the same")
    return _checked(password)


def _first_line(text: str) -> str:
    return text.partition("\n")[0].removesuffix("\r")


def _checked(password: str) -> Secret:
    if not password:
        raise Failure("the password is empty")
    return Secret.of(password)


def write_private(path: Path, data: bytes) -> None:
    """A new file that only its owner may read. FileExistsError if there is one."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)

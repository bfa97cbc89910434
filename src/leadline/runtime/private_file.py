"""A file that only its owner may read: the tree holds the credentials of users and the keys of tokens."""

import os
import stat

MODE = 0o600


def make_private(path: str) -> None:
    """The file exists afterwards. SQLite gives the files beside it, its log among them, the same mode."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MODE)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & ~MODE:
            os.fchmod(fd, MODE)
    finally:
        os.close(fd)

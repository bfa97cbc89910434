"""A file that only its owner may read: the tree holds the credentials of users and the keys of tokens.

A file that exists is not opened. Closing it would release the locks that SQLite has on it in this process.
"""

import os
import stat

MODE = 0o600


def make_private(path: str) -> None:
    """The file exists afterwards. SQLite gives the files beside it, its log among them, the same mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, MODE))
    except FileExistsError:
        if stat.S_IMODE(os.stat(path).st_mode) & ~MODE:
            os.chmod(path, MODE)

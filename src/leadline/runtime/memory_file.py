"""A file for libraries that read keys from paths: it exists in memory alone, so that no key touches a disk.

Where the system has no such files, it is one that only its owner may read, in the folder for temporary files.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from leadline.runtime.descriptor_path import descriptor_path


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """The path of a file with these bytes, for this process only. It is gone when the context ends."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile(prefix="leadline-", buffering=0) as file:  # mode 0600
            _write(file.fileno(), data)
            yield file.name
        return
    fd = os.memfd_create("leadline", os.MFD_CLOEXEC)
    try:
        _write(fd, data)
        yield descriptor_path(fd)
    finally:
        os.close(fd)


def _write(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]

"""A file that exists in memory alone: for libraries that read keys from paths, so that no key touches a disk."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def memory_file(data: bytes) -> Iterator[str]:
    """The path of a file with these bytes, for this process only. It is gone when the context ends."""
    fd = os.memfd_create("leadline", os.MFD_CLOEXEC)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)

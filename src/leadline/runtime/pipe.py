"""What a call writes to a file, in chunks while it writes: for libraries that can do no less than everything at once.

A thread makes the call. It waits while the pipe is full, so no more is held than the pipe takes.
"""

import os
import threading
from collections.abc import Callable, Iterator

PIECE_BYTES = 256 * 1024


def chunks_written(write: Callable[[str], object]) -> Iterator[bytes]:
    """The bytes that `write` writes to the path that it gets, and then its exception, if it raised one."""
    reading, writing = os.pipe()
    errors: list[Exception] = []

    def run() -> None:
        try:
            write(f"/proc/self/fd/{writing}")
        except Exception as error:  # noqa: BLE001  the reader raises it
            errors.append(error)
        finally:
            os.close(writing)

    thread = threading.Thread(target=run, name="pipe-writer")
    try:
        try:
            thread.start()
        except RuntimeError:
            os.close(writing)
            raise
        while piece := os.read(reading, PIECE_BYTES):
            yield piece
    finally:
        os.close(reading)  # a writer that is not done fails
    thread.join()
    if errors:
        raise errors[0]

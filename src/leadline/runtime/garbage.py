"""Python's garbage collector beside hundreds of thousands of objects that live long.

A full collection visits every container that is not frozen. With the partitions of a large cluster that takes a second,
in one turn of the loop, and finds nothing: these objects have no cycles, so counting references frees them. Work that
creates many of them runs without collections, and freezes them at its end: later collections skip them.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY_OBJECTS = 50_000
LONGEST_S = 60.0  # the work may wait for somebody who does not answer


@contextmanager
def without_collections() -> Iterator[None]:
    """No collection runs meanwhile, for a minute at most. Many objects that still exist at the end are frozen."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    end = asyncio.get_running_loop().call_later(LONGEST_S, gc.enable)
    try:
        yield
    finally:
        end.cancel()
        if gc.get_count()[0] > MANY_OBJECTS:
            gc.freeze()
        gc.enable()

"""Python's garbage collector beside hundreds of thousands of objects that live long.

A full collection visits every container that is not frozen. With the partitions of a large cluster that takes a second,
in one turn of the loop, and finds nothing: these objects have no cycles, so counting references frees them. Work that
creates many of them runs without collections, and freezes them at its end: later collections skip them.

Partitions also come one by one. `LongLivedObjects` counts them, and freezes all objects after every UNFROZEN of them.

The collector belongs to the whole process. A loop that shares its process with others leaves it alone.
"""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY_OBJECTS = 50_000
UNFROZEN = 500  # partitions, at most; a collection visits their objects in a few milliseconds
LONGEST_S = 60.0  # the work may wait for a peer that does not answer


class LongLivedObjects:
    """Counts what is created for long, such as partitions. A collection visits few of them between two freezes."""

    def __init__(self) -> None:
        self._unfrozen = 0

    def created(self) -> None:
        self._unfrozen += 1
        if self._unfrozen >= UNFROZEN and gc.isenabled() and not _shares_process():
            self._unfrozen = 0
            gc.freeze()


def _shares_process() -> bool:
    return getattr(asyncio.get_running_loop(), "shares_process", False)


@contextmanager
def without_collections() -> Iterator[None]:
    """No collection runs meanwhile, for a minute at most. Many objects that still exist at the end are frozen."""
    if not gc.isenabled() or _shares_process():
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


@contextmanager
def collections_off() -> Iterator[None]:
    """Collect no garbage within the block, without a time limit: for a process that ends or starts over soon."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

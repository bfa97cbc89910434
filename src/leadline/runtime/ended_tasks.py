"""Waiting for tasks that were cancelled."""

import asyncio
from typing import Any


async def all_ended(*tasks: "asyncio.Future[Any]") -> None:
    """Returns once all of them are done. Their exceptions are ignored: they were asked to end.

    `asyncio.gather` needs a turn of the loop for a task that is done before Python 3.12, and none since.
    """
    for task in tasks:
        if not task.done():
            await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

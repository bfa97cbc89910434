"""The loop of a broker: asyncio's, but who has sent something is served when it is found, not put in line first.

asyncio makes a list of what is ready, puts each into its queue, and calls what is in the queue: of a small request that
is a tenth of the work. Here what is ready comes before what was called soon; nothing else differs.
"""

import asyncio
import selectors
from collections.abc import Callable, Iterable

_Ready = tuple[selectors.SelectorKey, int]  # with whom to call for reading and for writing; what it is ready for


class EventLoop(asyncio.SelectorEventLoop):
    """`serves_one`: whether at most one socket is served in this iteration, as far as the selector knows."""

    def __init__(
        self, selector: selectors.BaseSelector | None = None, serves_one: Callable[[], bool] = lambda: False
    ) -> None:
        super().__init__(selector)
        self.serves_one = serves_one

    def _process_events(self, event_list: Iterable[_Ready]) -> None:
        """A handle that is cancelled belonged to a socket that was closed meanwhile: another may have its number."""
        for (_, _, _, (reader, writer)), events in event_list:
            if events & selectors.EVENT_READ and reader is not None and not reader.cancelled():
                reader._run()
            if events & selectors.EVENT_WRITE and writer is not None and not writer.cancelled():
                writer._run()

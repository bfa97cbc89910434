"""Sockets that no connection has any more, and that are closed a little later.

    ClosingSockets      nothing is read from them until their time is over
    LingeringSockets    what still arrives is read and thrown away

A socket lingers so that its peer learns why it was refused. The system answers unread bytes with a reset. A
peer that gets a reset while it writes does not read what was sent to it before.

    a bounded number of sockets, each for a bounded time and a bounded number of bytes
    what lingering sockets send is read in steps: a turn of the loop has one at most
"""

import asyncio

from leadline.runtime.network import SHUT_WR, Socket
from leadline.runtime.step_scheduler import StepScheduler

MAX_REFUSED = 1000  # connections that came too fast
MAX_LINGERING = 256
LINGER_SECONDS = 2.0  # at most: a peer that has read the end closes its side
LINGER_BYTES = 1024 * 1024
DISCARD_BYTES = 64 * 1024  # in one step


class ClosingSockets:
    """Each has a time at which it is closed. If there are too many, the oldest is closed at once."""

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._timers: dict[Socket, asyncio.TimerHandle] = {}  # the first one first

    def __len__(self) -> int:
        return len(self._timers)

    def __contains__(self, sock: Socket) -> bool:
        return sock in self._timers

    def add(self, sock: Socket, delay_s: float) -> None:
        if len(self._timers) >= self._max_count:
            self.close(next(iter(self._timers)))
        self._timers[sock] = asyncio.get_running_loop().call_later(delay_s, self.close, sock)

    def close(self, sock: Socket) -> None:
        self._timers.pop(sock).cancel()
        sock.on_readable(None)
        sock.close()

    def close_all(self) -> None:
        for sock in list(self._timers):
            self.close(sock)


class LingeringSockets:
    """`room`: a buffer that bytes are read into. It is shared, and used for the length of one call."""

    def __init__(self, room: memoryview, steps: StepScheduler) -> None:
        self._room, self._steps = room[:DISCARD_BYTES], steps
        self._sockets = ClosingSockets(MAX_LINGERING)

    def __len__(self) -> int:
        return len(self._sockets)

    def add(self, sock: Socket) -> None:
        """Send the end, and close the socket when the peer has done so, or the time is over."""
        try:
            sock.shutdown(SHUT_WR)
            sock.on_readable(_Discard(sock, self._room, self._sockets, self._steps))
        except OSError:  # the peer is gone, or the loop cannot watch the socket
            sock.close()
        else:
            self._sockets.add(sock, LINGER_SECONDS)

    def close_all(self) -> None:
        self._sockets.close_all()


class _Discard:
    """Reads from one socket in steps, while it has something to read."""

    def __init__(self, sock: Socket, room: memoryview, sockets: ClosingSockets, steps: StepScheduler) -> None:
        self._sock, self._room, self._sockets, self._steps = sock, room, sockets, steps
        self._left_bytes = LINGER_BYTES

    def __call__(self) -> None:
        """The socket is readable. Nobody is called for it until its step."""
        self._sock.on_readable(None)
        self._steps.schedule(self._step)

    def _step(self) -> None:
        if self._sock not in self._sockets:
            return
        try:
            count = self._sock.recv_into(self._room)
        except (BlockingIOError, InterruptedError):
            self._sock.on_readable(self)
            return
        except OSError:
            count = 0
        self._left_bytes -= count
        if not count or self._left_bytes <= 0:
            self._sockets.close(self._sock)
        else:
            self._sock.on_readable(self)

"""Sockets that no connection has any more, and that are closed a little later.

    ClosingSockets      nothing is read from them until their time is over
    LingeringSockets    what still arrives is read and thrown away

A socket lingers so that its peer learns why it was refused. The system answers bytes that nobody reads with a reset. A
peer that gets a reset while it writes does not read what was sent to it before.

    a bounded number of sockets, each for a bounded time and a bounded number of bytes
"""

import asyncio

from leadline.runtime.network import SHUT_WR, Socket

MAX_REFUSED = 1000  # connections that came too fast
MAX_LINGERING = 256
LINGER_SECONDS = 2.0  # at most: a peer that has read the end closes its side
LINGER_BYTES = 1024 * 1024


class ClosingSockets:
    """Each has a time to be closed at. Of too many, the first one is closed at once."""

    def __init__(self, max_count: int) -> None:
        self._max_count = max_count
        self._timers: dict[Socket, asyncio.TimerHandle] = {}  # the first one first

    def __len__(self) -> int:
        return len(self._timers)

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
    """`room`: where bytes are read to. Everybody may use it, for the length of one call."""

    def __init__(self, room: memoryview) -> None:
        self._room = room
        self._sockets = ClosingSockets(MAX_LINGERING)

    def __len__(self) -> int:
        return len(self._sockets)

    def add(self, sock: Socket) -> None:
        """Send the end, and close the socket when the peer has done so, or the time is over."""
        try:
            sock.shutdown(SHUT_WR)
            sock.on_readable(_Discard(sock, self._room, self._sockets))
        except OSError:  # the peer is gone, or the loop cannot watch the socket
            sock.close()
        else:
            self._sockets.add(sock, LINGER_SECONDS)

    def close_all(self) -> None:
        self._sockets.close_all()


class _Discard:
    """Reads from one socket as often as it is called."""

    def __init__(self, sock: Socket, room: memoryview, sockets: ClosingSockets) -> None:
        self._sock, self._room, self._sockets = sock, room, sockets
        self._left_bytes = LINGER_BYTES

    def __call__(self) -> None:
        try:
            count = self._sock.recv_into(self._room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        self._left_bytes -= count
        if not count or self._left_bytes <= 0:
            self._sockets.close(self._sock)

"""The memory of requests that are being received, shared by all connections.

Small requests are read into one buffer and served there. A request that arrives in parts gets a buffer of its own.
Large buffers are used again, since new memory costs more than its use.

queued.max.request.bytes bounds what has begun to arrive: `is_full` says that no further request may begin. One that has
begun is received to its end.

Connections that are not logged in yet have a memory of their own, `LoginMemory`. An announced size costs
nothing there, and received bytes are bounded.
"""

from collections.abc import Callable

from leadline.broker.connection_state import CloseConnection

SCRATCH_BYTES = 256 * 1024  # one read takes at most this much from a socket
GROWTH_BYTES = 1024 * 1024  # up to here, the buffer of a frame has four times the room for what has arrived; then twice
MAX_SPARE_BUFFERS = 4  # buffers of large frames that are kept for the next ones
LOGIN_GROWTH_BYTES = 4096
LOGIN_SCRATCH_BYTES = 16 * 1024  # as a TLS record: a message of a login is smaller
MAX_LOGIN_BYTES = 16 * 1024 * 1024  # of frames that have arrived in part, on connections that are not logged in


class FrameMemory:
    scratch_bytes = SCRATCH_BYTES
    growth_bytes = GROWTH_BYTES
    limit_name = "socket.request.max.bytes"
    has_requests = True  # its frames begin with a header

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self.scratch = memoryview(bytearray(self.scratch_bytes))
        self.max_frame_bytes = 0
        self.is_full = False
        self._queued_max_bytes = -1  # queued.max.request.bytes; not positive: no bound
        self._reserved = 0
        self._spare: list[bytearray] = []
        self._starved: dict[Callable[[], None], None] = {}  # in the order in which they began to wait

    def configure(self, max_frame_bytes: int, queued_max_bytes: int) -> None:
        self.max_frame_bytes, self._queued_max_bytes = max_frame_bytes, queued_max_bytes
        self.release(0)

    def reserve(self, count: int) -> None:
        self._reserved += count
        self.is_full = 0 < self._queued_max_bytes < self._reserved

    def release(self, count: int) -> None:
        self.reserve(-count)
        if self._starved and not self.is_full:
            starved, self._starved = self._starved, {}
            for resume in starved:
                self._call_soon(resume)

    def arrived(self, count: int) -> None:
        """`count` bytes of a partial frame have arrived; negative: they are no longer kept."""

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` soon after memory was released."""
        self._starved[resume] = None

    def stop_waiting(self, resume: Callable[[], None]) -> None:
        self._starved.pop(resume, None)

    def buffer(self, size: int) -> bytearray:
        """A buffer for a frame that arrives in parts: a spare one if it is large enough."""
        if size > SCRATCH_BYTES and self._spare and len(self._spare[-1]) >= size:
            return self._spare.pop()
        return bytearray(size)

    def keep_spare(self, buffer: bytearray) -> None:
        if SCRATCH_BYTES < len(buffer) <= 2 * GROWTH_BYTES and len(self._spare) < MAX_SPARE_BUFFERS:
            self._spare.append(buffer)


class LoginMemory(FrameMemory):
    """The memory of all connections of one listener that are not logged in."""

    scratch_bytes = LOGIN_SCRATCH_BYTES
    growth_bytes = LOGIN_GROWTH_BYTES
    limit_name = "sasl.server.max.receive.size"
    has_requests = False  # some are messages of a mechanism

    def __init__(self, call_soon: Callable[[Callable[[], None]], object], max_frame_bytes: int) -> None:
        super().__init__(call_soon)
        self.max_frame_bytes = max_frame_bytes
        self._arrived = 0

    def arrived(self, count: int) -> None:
        if count > 0 and self._arrived + count > MAX_LOGIN_BYTES:
            raise CloseConnection(f"connections that are not logged in have sent more than {MAX_LOGIN_BYTES} bytes")
        self._arrived += count

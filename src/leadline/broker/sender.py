"""Sends the replies of one connection: bytes with sendmsg, slices of files with sendfile.

Records are never copied through Python, and nothing waits for a disk: see `pending_slice`. While small requests come,
slices leave in steps, so that a large reply delays a small request by one step at most: see `step_scheduler`.

A sender calls nothing but the socket. What it waits for is its `state`; the connection sees to that, and then calls
`resume`.
"""

from collections import deque
from collections.abc import Callable

from leadline.broker.connection_state import SEND_MAY_FOLLOW, SendState
from leadline.broker.pending_slice import PendingSlice
from leadline.broker.reply_queue import Reply
from leadline.log.segment import FileSlice
from leadline.model import Buffer
from leadline.runtime.network import MSG_MORE, Socket
from leadline.runtime.step_scheduler import StepScheduler
from leadline.wire.primitives import BUFFERS, Piece

LARGE_SLICE_BYTES = 64 * 1024  # a request whose reply has such a slice is not a small one
MAX_BUFFERS = 64  # in one sendmsg
FLUSH_BYTES = 64 * 1024  # replies to requests that arrived together leave together, up to this size
STEP_BYTES = 256 * 1024  # of files, in one step
TURN_BYTES = 1024 * 1024  # of files, in one turn of the loop while there are no steps: a small request may come

_READY = SendState.READY


class Sender:
    __slots__ = (
        "_file_bytes",
        "_gathered",
        "_now",
        "_readahead",
        "_scheduler",
        "_sock",
        "has_large_slice",
        "queue",
        "queued_bytes",
        "state",
    )  # fmt: skip

    def __init__(
        self,
        sock: Socket,
        scheduler: StepScheduler,
        now: Callable[[], float],
        readahead: Callable[[PendingSlice], None],
    ) -> None:
        self._sock, self._scheduler, self._now, self._readahead = sock, scheduler, now, readahead
        self.state = _READY
        self.queue: deque[Piece | PendingSlice] = deque()
        self.queued_bytes = 0  # put here since everything had left; slices of files do not count
        self.has_large_slice = False
        self._gathered = bytearray()  # small replies, which leave as one piece after the queue
        self._file_bytes = 0  # sent out of files in this step

    def put(self, reply: Reply) -> None:
        if isinstance(reply, bytes):
            self._gathered += reply
            self.queued_bytes += len(reply)
            return
        if self._gathered:
            self._queue_gathered()
        self.queue.extend(reply)
        for piece in reply:
            if isinstance(piece, BUFFERS):
                self.queued_bytes += len(piece)
            elif piece.length >= LARGE_SLICE_BYTES:
                self.has_large_slice = True

    def flush(self) -> None:
        """Send now as much as possible, unless earlier data still waits. OSError: the connection is broken."""
        if self.state is not _READY:
            return
        if not self.queue:  # as nearly always
            if not self._gathered:
                return
            try:
                del self._gathered[: self._sock.send(self._gathered)]
            except (BlockingIOError, InterruptedError):
                self._queue_gathered()
                self._enter(SendState.AWAITING_ROOM)
                return
            if not self._gathered:
                self.queued_bytes = 0
                return
        self._send_all()

    def writable(self) -> None:
        """The socket has room. Large replies still give way to small requests."""
        if self.queue and not isinstance(self.queue[0], BUFFERS) and self._is_in_steps():
            self._enter(SendState.AWAITING_STEP)
        else:
            self._send_all()

    def resume(self) -> None:
        """Continues after a wait."""
        self._send_all()

    def cold_slice(self) -> PendingSlice:
        """The slice that it waits for the disk with."""
        assert self.state is SendState.AWAITING_DISK
        part = self.queue[0]
        assert isinstance(part, PendingSlice)
        return part

    def close(self) -> None:
        self._enter(SendState.CLOSED)
        self.queue.clear()
        self._gathered.clear()

    def _send_all(self) -> None:
        self._file_bytes = 0
        if self._gathered:
            self._queue_gathered()
        queue = self.queue
        try:
            while queue:
                piece = queue[0]
                state = self._send_buffers() if isinstance(piece, BUFFERS) else self._send_slice(piece)
                if state is not _READY:
                    self._enter(state)
                    return
        except (BlockingIOError, InterruptedError):
            self._enter(SendState.AWAITING_ROOM)
            return
        self.queued_bytes, self.has_large_slice = 0, False
        if self.state is not _READY:
            self._enter(_READY)

    def _send_buffers(self) -> SendState:
        queue, buffers = self.queue, list[Buffer]()
        for piece in queue:
            if not isinstance(piece, BUFFERS) or len(buffers) == MAX_BUFFERS:
                break
            buffers.append(piece)
        flags = MSG_MORE if len(buffers) < len(queue) else 0  # what follows travels in the same packets
        sent = self._sock.send(buffers[0], flags) if len(buffers) == 1 else self._sock.sendmsg(buffers, (), flags)
        for buffer in buffers:
            if sent < len(buffer):
                queue[0] = memoryview(buffer)[sent:]
                return SendState.AWAITING_ROOM
            sent -= len(buffer)
            queue.popleft()
        return _READY

    def _send_slice(self, piece: Piece | PendingSlice) -> SendState:
        part = piece if isinstance(piece, PendingSlice) else self._begin_slice(piece)
        in_steps = self._is_in_steps()
        max_bytes = STEP_BYTES if in_steps else TURN_BYTES
        while part.length:
            if not part.is_cached():
                return SendState.AWAITING_DISK
            if (left := max_bytes - self._file_bytes) <= 0:
                return SendState.AWAITING_STEP if in_steps else SendState.AWAITING_ROOM
            count = min(part.length, part.cached, left)
            sent = part.send(self._sock, count)
            self._file_bytes += sent
            if sent < count:
                return SendState.AWAITING_ROOM
        self.queue.popleft()
        return _READY

    def _begin_slice(self, piece: Piece | PendingSlice) -> PendingSlice:
        assert isinstance(piece, FileSlice), f"a reply holds bytes and slices of files, not {piece!r}"
        part = self.queue[0] = PendingSlice(piece.file, piece.position, piece.length)
        self._readahead(part)
        return part

    def _is_in_steps(self) -> bool:
        return not self._scheduler.is_quiet(self._now())

    def _queue_gathered(self) -> None:
        self.queue.append(self._gathered)
        self._gathered = bytearray()

    def _enter(self, state: SendState) -> None:
        assert state in SEND_MAY_FOLLOW[self.state], f"{self.state} to {state}"
        self.state = state

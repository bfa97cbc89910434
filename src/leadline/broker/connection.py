"""One client's connection: a thin shell over a socket. It moves bytes between the socket, the reader and the sender.

Requests are served one after the other, as in Kafka; their replies leave in the same order (`reply_queue`). While a
request waits, or its reply does not leave, the connection reads nothing more: a slow reader delays only itself and
cannot grow our memory. `connection_state` has the states of a connection and the table of what may follow.

Large frames are received and served in steps, and so are many small frames that arrive together: see `step_scheduler`.

What a peer asked for is carried out even if the peer leaves meanwhile, as in Kafka, which does not read from a
connection either while its request is under way. The reply then goes nowhere.

TLS is a `Socket` over the accepted one (`tls_socket`): the connection does not notice. Until the peer is known, `serve`
is that of its login (`authentication`): all frames go through it.

A request above a quota mutes its connection: the reply leaves at once, and nothing more is read or served until the
time is over. The muted time does not count as idle.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leadline.api.context import ClientConnection
from leadline.api.request_meter import ClientMeter
from leadline.broker.connection_state import (
    RECEIVE_MAY_FOLLOW,
    CloseConnection,
    InvalidFrameSize,
    ReceiveState,
    SendState,
)
from leadline.broker.frame_memory import FrameMemory
from leadline.broker.frame_reader import SIZE_BYTES, FrameReader
from leadline.broker.reply_queue import MAX_QUEUED, PendingReply, Reply, ReplyQueue, unchanged
from leadline.broker.sender import FLUSH_BYTES, MAX_BUFFERS, Sender
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.runtime.network import Socket
from leadline.runtime.ports import shortage
from leadline.security.principal import Principal

if TYPE_CHECKING:
    from leadline.broker.net import Net

log = logging.getLogger(__name__)

T = TypeVar("T")

LARGE_BYTES = 64 * 1024  # frames of this size or more are received and served in steps
MAX_READS = 4  # of a large frame in one turn of the loop, while no small requests come
TURN_SECONDS = 0.001  # the frames of one read that were not served by then wait for the connection's next step

# Serves one request. The frame is in a buffer that is reused: it is valid only until the first await.
ServeFrame = Callable[["Connection", memoryview], Reply | PendingReply | Awaitable[Reply | None] | None]

RECEIVE_ERRORS = (CloseConnection, OSError, MemoryError)  # that end this connection only

_REPLIES = (bytes, list)
_READING, _SCHEDULED, _BLOCKED = ReceiveState.READING, ReceiveState.SCHEDULED, ReceiveState.BLOCKED
_STARVED, _CLOSED, _READY = ReceiveState.STARVED, ReceiveState.CLOSED, SendState.READY


class Connection:
    def __init__(self, net: "Net", sock: Socket, host: str, port: int, listener: str) -> None:
        self.net, self.sock, self.host, self.port, self.listener = net, sock, host, port, listener
        self.serve: ServeFrame = net.serve  # or that of its login, until its peer is known
        self.refuse_size: Callable[[str], Awaitable[Reply | None]] | None = (
            None  # of a login: its failure, for a reason
        )
        self.is_logged_in = True
        self.client = ClientConnection(host, listener)  # the view that requests have of it
        self.last_active = net.now()  # when its bytes were last served
        self.receive_state = _READING
        self._is_watched = False  # the socket calls `_readable`; this ends only when there was nothing to read
        self._memory = net.memory
        self._reader = FrameReader(net.memory)
        self._replies = ReplyQueue()
        self._sender = Sender(sock, net.scheduler, net.now, net.readahead.request)
        self._recv_into = sock.recv_into
        self._unmuting: asyncio.TimerHandle | None = None  # set while it is muted
        self.client_meter: ClientMeter | None = None  # of the client that requests come from, if there are quotas

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def answers(self) -> "list[asyncio.Future[Any]]":
        """The answers that its requests still wait for."""
        return self._replies.answers

    @property
    def is_served(self) -> bool:
        """Whether one of its requests is under way."""
        return len(self._replies.queue) > 0

    def start(self) -> None:
        self._watch()

    def await_login(self, memory: FrameMemory) -> None:
        """Its peer is not authenticated, and gets little memory, until `logged_in`."""
        self.is_logged_in, self._memory = False, memory
        self._reader.use(memory)

    def logged_in(self, principal: Principal) -> None:
        """Requests are served from now on."""
        self.client.principal, self.serve = principal, self.net.serve
        if not self.is_logged_in:
            self.is_logged_in, self._memory = True, self.net.memory
            self._reader.use(self.net.memory)
            self.net.logged_in(self)

    def mute(self, throttle_ms: int) -> None:
        """Serve no further request for this long."""
        if self.receive_state is _CLOSED:
            return
        ends_s = asyncio.get_running_loop().time() + throttle_ms / 1000
        if self._unmuting is not None:
            ends_s = max(ends_s, self._unmuting.when())
            self._unmuting.cancel()
        self._unmuting = asyncio.get_running_loop().call_at(ends_s, self._unmute)
        if self.receive_state is _READING:
            self._enter(_BLOCKED)

    def _unmute(self) -> None:
        self._unmuting = None
        self.last_active = self.net.now()
        self._go_on()

    def send_last(self, reply: Reply) -> None:
        """Send what the peer should still get before the connection is closed, as far as there is room."""
        if self.receive_state is not _CLOSED:
            self._sender.put(reply)
            self._flush()

    def close(self, why: str, *, quiet: bool = False, lingers: bool = False) -> None:
        """`lingers`: the peer can read what it was sent, although it still sends: see `closing_sockets`."""
        if self.receive_state is _CLOSED:
            return
        self._enter(_CLOSED)
        log.log(logging.DEBUG if quiet else logging.WARNING, "connection %s closed: %s", self, why)
        self.sock.on_readable(None)
        self.sock.on_writable(None)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._replies.cancel()
        self._memory.stop_waiting(self._fed)
        self._reader.close()
        self._sender.close()
        if lingers:
            self.net.lingering.add(self.sock)
        else:
            self.sock.close()
        self.serve, self.refuse_size = self.net.serve, None  # or its login would keep it until a garbage collection
        self.net.closed(self)

    # Receiving

    def _readable(self) -> None:
        net, reader, memory = self.net, self._reader, self._memory
        if self.receive_state is not _READING:
            if self.receive_state is not _SCHEDULED:  # its step comes soon
                self._unwatch()
            return
        if memory.is_full and not reader.reserved:
            self._starve()
            return
        self.last_active = now = net.now()
        if reader.partial is not None and reader.target >= LARGE_BYTES and not net.scheduler.is_quiet(now):
            self._schedule_step()
            return
        net.completions.is_held = True
        try:
            if reader.partial is not None:
                self._read_partial()
            elif count := self._recv_into(memory.scratch):
                self._serve_frames(reader.first_frame(memory.scratch[:count]))
            else:
                self.close("the peer closed it", quiet=True)
        except RECEIVE_ERRORS as error:
            self._failed(error)
        finally:
            net.completions.release()

    def _failed(self, error: CloseConnection | OSError | MemoryError) -> None:
        """Receiving or serving failed. Requests that came before still get their replies, as far as they fit."""
        if isinstance(error, InvalidFrameSize) and self.refuse_size is not None and not self.is_logged_in:
            self._wait_for(self.refuse_size(str(error)))
        elif isinstance(error, CloseConnection):
            self._flush()
            self.close(str(error), lingers=True)
        elif isinstance(error, MemoryError):
            self.close(f"its request could not be received: {shortage(error)}", lingers=True)
        elif not isinstance(error, BlockingIOError | InterruptedError):
            self.close(f"it broke: {error}", quiet=True, lingers=True)

    def _read_partial(self) -> None:
        """Receive what has arrived of a partial frame, and serve it when it is whole."""
        for _ in range(MAX_READS):
            if not self._read_more():
                return
            if self._reader.is_whole:
                self._serve_partial()
                return

    def _read_more(self) -> bool:
        """False if the peer has closed the connection."""
        with self._reader.room() as room:
            if self.client_meter is None:
                count = self._recv_into(room)
            else:
                count = self._timed(partial(self._recv_into, room))
        if not count:
            self.close("the peer closed it", quiet=True)
            return False
        self._reader.received(count)
        return True

    def _serve_partial(self) -> None:
        buffer, end = self._reader.take_partial()
        with memoryview(buffer)[SIZE_BYTES:end] as frame:
            self._serve(frame)
        self._memory.keep_spare(buffer)
        self._flush()

    def _serve_frames(self, frame: memoryview | None) -> None:
        """Serve the frames that were read, from this first one on, until one has to wait; keep the rest.

        What is behind a frame that waits is not looked at: an error there must not overtake the answer.
        """
        net, reader, sender, began = self.net, self._reader, self._sender, self.last_active
        is_small = frame is not None
        while frame is not None:
            self._serve(frame)
            if self.receive_state is not _READING or (frame := reader.next_frame()) is None:
                break
            if sender.queued_bytes >= FLUSH_BYTES or len(sender.queue) >= MAX_BUFFERS:
                self._flush()
            if self.receive_state is _READING and net.now() - began > TURN_SECONDS:
                self._schedule_step()
            if self.receive_state is not _READING:
                reader.put_back(frame)
                break
        if is_small and not sender.has_large_slice:  # a small request may ask for a large reply
            net.scheduler.last_small_request_s = began
        if reader.at < reader.end:
            if self.receive_state is _READING:
                reader.begin_partial()
            else:
                reader.keep()
        if sender.queued_bytes or sender.queue:
            self._flush()

    def _serve(self, frame: memoryview) -> None:
        """Serve one request."""
        try:
            answer = self.serve(self, frame)
        except CloseConnection:
            raise
        except Exception as error:  # a fault of ours: logged in full, and the end of this connection only
            if (lacking := shortage(error)) is not None:
                raise CloseConnection(f"its request could not be served: {lacking}") from error
            self._report(error)
            raise CloseConnection(f"serving it failed: {error!r}") from error
        if answer is None:
            return
        if not isinstance(answer, _REPLIES):
            self._wait_for(answer)
        elif not self._replies.queue:
            self._sender.put(answer)
        elif self._replies.add(answer) and self.receive_state is _READING:
            self._enter(_BLOCKED)

    def _report(self, error: BaseException) -> None:
        asyncio.get_running_loop().call_exception_handler({"message": f"serving {self}", "exception": error})

    # Replies

    def _wait_for(self, reply: PendingReply | Awaitable[Reply | None]) -> None:
        if not isinstance(reply, PendingReply):
            reply = PendingReply(asyncio.ensure_future(reply), unchanged, blocks=True)
        if self._replies.add(reply) and self.receive_state is _READING:
            self._enter(_BLOCKED)
        answer = reply.answer
        if isinstance(answer, ImmediateFuture):
            answer.on_done = self._answered
        else:
            answer.add_done_callback(self._answered)

    def _answered(self, answer: "asyncio.Future[Any]") -> None:
        replies = self._replies
        if answer is replies.blocking:
            replies.blocking = None
        if answer.cancelled():
            return
        error = answer.exception()
        if error is not None:
            self._answer_failed(error)
            return
        if self.receive_state is _CLOSED:
            return
        self.last_active = self.net.now()
        replies.move_ready(self._sender.put)
        self._flush()
        if self.receive_state is _BLOCKED:
            self._go_on()

    def _answer_failed(self, error: BaseException) -> None:
        if isinstance(error, CloseConnection):
            self.close(str(error), lingers=True)
        elif (lacking := shortage(error)) is not None:
            self.close(f"its request could not be served: {lacking}")
        else:
            self._report(error)
            self.close(f"serving it failed: {error!r}")

    # Sending

    def _flush(self) -> None:
        sender = self._sender
        if sender.state is _READY:
            try:
                if self.client_meter is None:
                    sender.flush()
                else:
                    self._timed(sender.flush)
            except OSError as error:
                self.close(f"it broke: {error}", quiet=True)
                return
            if sender.state is not _READY:
                self._await_sender(_READY)

    def _send_on(self, send: Callable[[], None]) -> None:
        """Resume a sender that waited."""
        before = self._sender.state
        if before is SendState.CLOSED:
            return
        try:
            self._timed(send)
        except OSError as error:
            self.close(f"it broke: {error}", quiet=True)
            return
        self._await_sender(before)
        self._go_on()

    def _timed(self, work: Callable[[], T]) -> T:
        """Work on the socket, which counts towards the quota of the client."""
        meter = self.client_meter
        if meter is None:
            return work()
        began_s = self.net.now()
        try:
            return work()
        finally:
            meter.record_network_time(self.net.now() - began_s)

    def _await_sender(self, before: SendState) -> None:
        """See to what the sender waits for by now."""
        state = self._sender.state
        if state is not _READY and self.receive_state is _READING:
            self._enter(_BLOCKED)
        if (state is SendState.AWAITING_ROOM) is not (before is SendState.AWAITING_ROOM):
            self.sock.on_writable(self._writable if state is SendState.AWAITING_ROOM else None)
        if state is SendState.AWAITING_STEP:
            self.net.scheduler.schedule(self._resume_sender)
        elif state is SendState.AWAITING_DISK:
            self.net.readahead.load(self._sender.cold_slice()).add_done_callback(self._loaded)

    def _writable(self) -> None:
        self._send_on(self._sender.writable)

    def _resume_sender(self) -> None:
        self._send_on(self._sender.resume)

    def _loaded(self, done: "asyncio.Future[None]") -> None:
        if self.receive_state is _CLOSED:
            return
        if (error := done.exception()) is not None:
            self.close(f"the requested records cannot be read: {error}")
            return
        self._sender.cold_slice().loaded()
        self._resume_sender()

    # States

    def _enter(self, state: ReceiveState) -> None:
        assert state in RECEIVE_MAY_FOLLOW[self.receive_state], f"{self.receive_state} to {state}"
        self.receive_state = state

    def _is_blocked(self) -> bool:
        replies = self._replies
        is_waiting = replies.blocking is not None or len(replies.queue) >= MAX_QUEUED
        return is_waiting or self._unmuting is not None or self._sender.state is not _READY

    def _go_on(self) -> None:
        """Serve the frames that were kept and continue to read, if nothing blocks the connection any more."""
        if self.receive_state is not _BLOCKED or self._is_blocked():
            return
        self._enter(_READING)
        reader = self._reader
        if reader.at < reader.end or reader.partial is not None:
            self._serve_kept()
        elif not self._is_watched:
            self._watch()

    def _serve_kept(self) -> None:
        """Serve the frames that had to wait, then read on."""
        self.last_active = self.net.now()
        try:
            if self._reader.is_whole:
                self._serve_partial()
            elif self._reader.at < self._reader.end:
                self._serve_frames(self._reader.next_frame())
        except RECEIVE_ERRORS as error:
            self._failed(error)
        if self.receive_state is _READING:
            self._watch()

    def _schedule_step(self) -> None:
        self._enter(_SCHEDULED)
        self.net.scheduler.schedule(self._take_step)

    def _take_step(self) -> None:
        """Receive more of a large frame, or serve it if it is whole, or serve some of the many small ones."""
        if self.receive_state is _CLOSED:
            return
        if self._is_blocked():
            self._enter(_BLOCKED)
            return
        self._enter(_READING)
        reader = self._reader
        if reader.partial is None or reader.is_whole:
            self._serve_kept()
            return
        try:
            if self._read_more() and reader.is_whole:
                self._schedule_step()
        except RECEIVE_ERRORS as error:
            self._failed(error)

    def _starve(self) -> None:
        """Wait until requests of others have released memory."""
        self._enter(_STARVED)
        self._unwatch()
        self._memory.wait(self._fed)

    def _fed(self) -> None:
        if self.receive_state is _STARVED:
            self._enter(_BLOCKED if self._is_blocked() else _READING)
            if self.receive_state is _READING:
                self._watch()

    def _watch(self) -> None:
        if not self._is_watched:
            self._is_watched = True
            self.sock.on_readable(self._readable)

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self.sock.on_readable(None)

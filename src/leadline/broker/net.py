"""Sockets: frames in, replies out, in order, and never more of either than a connection can take.

A frame is a size (4 bytes, big-endian) and that many bytes. Requests of a connection are served one after the other,
as Kafka does; while one is waiting, or its reply does not leave, nothing more is read from that connection: a slow
reader holds up itself and nobody's memory. Where only the reply is still to come, as of records that others are to
copy, the next request is served meanwhile. Replies leave in the order of the requests in any case.

Large frames are read and served in steps, and large replies leave in steps: see `turns`. Many small frames that come at
once are served in steps, too.

A reply is a list of bytes and file slices. Bytes go out with sendmsg, slices with sendfile: records are never copied
through Python, and nobody waits for a disk: see `slices`.
"""

import asyncio
import errno
import logging
import socket
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from leadline.broker.slices import AHEAD_BYTES, READ_AHEAD_BYTES, Rest, ask, read_through
from leadline.log.files import CACHE
from leadline.log.segment import FileSlice
from leadline.model import Buffer
from leadline.runtime.deferred_completions import DeferredCompletions
from leadline.runtime.immediate_future import ImmediateFuture
from leadline.runtime.ports import shortage
from leadline.runtime.step_scheduler import StepScheduler
from leadline.wire.primitives import BUFFERS, Piece

log = logging.getLogger(__name__)

SCRATCH_BYTES = 256 * 1024  # what one read takes from a socket at most, shared by all connections
GROWTH_BYTES = 1024 * 1024  # a large frame's buffer grows by at least this much, as its bytes arrive
READS_AT_ONCE = 4  # of a large frame, while nobody else wants anything
LARGE_BYTES = 64 * 1024  # frames from here on are read and served in steps
STEP_BYTES = 256 * 1024  # of files, sent in one step
TURN_BYTES = 1024 * 1024  # and in one turn of the loop while nobody asks for little: somebody may begin to
TURN_SECONDS = 0.001  # after so much of a turn, the other requests of a connection have to wait for the next one
MOST_SPARE = 4  # rooms for large frames that are kept
SEND_AT_ONCE = 64  # buffers in one sendmsg
SEND_FROM_BYTES = 64 * 1024  # replies of several requests go out together, up to so much
SEND_BUFFER_BYTES = 307_200  # unless socket.send.buffer.bytes is set: Kafka's default takes twice the turns
UNPACED = b"reno"  # congestion control within a machine, where there is no network to spare; every Linux has it
LISTEN_BACKLOG = 65_535  # unless socket.listen.backlog.size is set: as many as net.core.somaxconn lets wait
ACCEPT_SECONDS = 0.002  # in one turn; those who come in a burst are accepted in a few turns
SHORTAGE_TOLD_SECONDS = 10.0  # between two lines that tell so
SHORTAGE_SECONDS = 0.5  # until accept is tried again after it failed, unless a connection ends before
MOST_DUE = 64  # replies that a connection waits for while more is served

_SIZE = Struct(">i")


Reply = bytes | list[Piece]  # a whole frame, or its pieces


class Later(NamedTuple):
    """An answer that is to come."""

    answer: "asyncio.Future[Any]"
    frame: Callable[[Any], Reply | None]  # the reply that it makes
    blocks: bool  # the next request has to wait for it; if not, all is done but for the answer


# Serves one request. The frame lies in a buffer that is used again: it may be looked at only until the first await.
Serve = Callable[["Connection", memoryview], Reply | Later | Awaitable[Reply | None] | None]


_REPLIES = (bytes, list)

# accept: one that was about to connect failed, as Linux tells it there; the next one may be fine.
_ONE_FAILED = frozenset(
    (errno.ECONNABORTED, errno.EPERM, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN,
     errno.EHOSTUNREACH, errno.ENONET, errno.ENOPROTOOPT, errno.EOPNOTSUPP, errno.ETIMEDOUT)
)  # fmt: skip


class CloseConnection(Exception):
    """What a peer sent makes no sense: the message says what and why. The connection is closed, nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Kafka's settings for connections."""

    socket_request_max_bytes: int = 104_857_600
    max_connections: int = (1 << 31) - 1
    max_connections_per_ip: int = (1 << 31) - 1
    max_connections_per_ip_overrides: tuple[tuple[str, int], ...] = ()
    connections_max_idle_ms: int = 600_000
    max_connection_creation_rate: int = (1 << 31) - 1
    descriptor_limit: int = 0  # 0: connections are bounded by max.connections before it
    queued_max_request_bytes: int = -1
    socket_send_buffer_bytes: int = SEND_BUFFER_BYTES
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = LISTEN_BACKLOG


class Connection:
    """One client. Its bytes are served as they come; a reply that waits stops the reading."""

    def __init__(self, net: "Net", sock: socket.socket, host: str, port: int, listener: str) -> None:
        self.net, self.sock, self.host, self.port, self.listener = net, sock, host, port, listener
        self.fd = sock.fileno()
        self.last_active = net.now()  # when its bytes began to be served
        self.closed = False
        self.state: object = None  # whatever serves the connection keeps with it
        self._frame: bytearray | None = None  # room for a frame that has not come whole: size and bytes
        self._filled = 0  # bytes of it that are there
        self._whole = 4  # bytes that it has in all; at first only its size is known to be
        self._reserved = 0  # bytes that it counts for in queued.max.request.bytes, from when its size is known
        self._backlog = b""  # read, but to be served later
        self._in_line = False  # for its next step
        self._gathered = bytearray()  # small replies, to leave as one piece behind what is in `_out`
        self._out: deque[Piece | Rest] = deque()
        self._out_bytes = 0  # so many were put there since it was last empty; what lies in files does not count
        self._sends_much = False  # out of files
        self.waiting: asyncio.Future[Any] | None = None  # an answer that further requests have to wait for
        self._due: deque[Reply | Later] = deque()  # replies, in the order in which they are to leave
        self._reading = False
        self._writing = False  # blocked: what is to be sent waits for the socket, for its turn or for the disk
        self._awaits_room = False  # in the socket: the loop tells
        self._step_bytes = 0  # of files, sent in this step

    def __repr__(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def due(self) -> "list[asyncio.Future[Any]]":
        """Answers that are to come."""
        return [due.answer for due in self._due if isinstance(due, Later)]

    @property
    def is_served(self) -> bool:
        return len(self._due) > 0

    # Reading

    def start(self) -> None:
        self._resume()

    def _readable(self) -> None:
        net = self.net
        if self._in_line:
            return
        if net.is_full and not self._reserved:
            self._resume()
            return
        if self._blocked() or self._backlog:
            self._pause()  # not before something comes: it seldom does
            return
        self.last_active = now = net.now()
        if self._frame is None:
            work = self._read_frames
        elif self._whole < LARGE_BYTES or net.turns.is_quiet(now):
            work = self._read_frame
        else:
            self._stand_in_line()
            return
        net.completions.hold()
        try:
            self._guarded(work)
        finally:
            net.completions.release()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (BlockingIOError, InterruptedError):
            return
        except CloseConnection as error:
            self._refuse(error)
        except OSError as error:
            self.close(f"it broke: {error}", quiet=True)

    def _read_frames(self) -> None:
        net = self.net
        if count := self.sock.recv_into(net.scratch):
            self._serve_frames(net.scratch_view[:count])
        else:
            self.close("the peer closed it", quiet=True)

    def _read_frame(self) -> None:
        """More of a frame that is under way, as much as there is by now."""
        for _ in range(READS_AT_ONCE):
            if not self._read_more():
                return
            if self._filled == self._whole:
                self._serve_frame()
                return

    def _read_more(self) -> bool:
        """False if the peer has closed it."""
        assert self._frame is not None
        with memoryview(self._frame)[self._filled : self._whole] as room:
            count = self.sock.recv_into(room)
        if not count:
            self.close("the peer closed it", quiet=True)
            return False
        self._filled += count
        self._frame = self._measured(self._frame)
        return True

    def _stand_in_line(self) -> None:
        if not self._in_line:
            self._in_line = True
            self.net.turns.schedule(self._take_step)

    def _take_step(self) -> None:
        self._in_line = False
        if not self.closed:
            self._guarded(self._step)

    def _step(self) -> None:
        """Read more of a large frame; or serve it, if it is whole; or serve some of the many that are there."""
        if self._frame is None:
            self._serve_backlog()
        elif self._filled == self._whole:
            self._serve_frame()
        elif self._read_more() and self._filled == self._whole:
            self._stand_in_line()

    def _serve_frame(self) -> None:
        frame, self._frame = self._frame, None
        assert frame is not None
        self._release()
        with memoryview(frame)[4 : self._whole] as view:
            self._serve(view)
        self.net.keep_room(frame)
        self._flush()

    def _refuse(self, error: CloseConnection) -> None:
        """What was asked before still gets its answer, as far as the socket takes it at once."""
        self._flush()
        self.close(str(error))

    def _serve_frames(self, data: memoryview) -> None:
        """Whole frames are served where they lie; the rest is kept."""
        net, at, end = self.net, 0, len(data)
        most, began = net.limits.socket_request_max_bytes, self.last_active
        while end - at >= 4:
            (size,) = _SIZE.unpack_from(data, at)
            if not 0 <= size <= most:
                net.refuse_size(size)
            behind = at + 4 + size
            if behind > end:
                break
            if at and net.now() - began > TURN_SECONDS:
                self._stand_in_line()
                break
            self._serve(data[at + 4 : behind])
            at = behind
            if self._out_bytes >= SEND_FROM_BYTES or len(self._out) >= SEND_AT_ONCE:
                self._flush()
            if self.closed:
                return
            if (self._due or self._writing) and self._blocked():
                break
        if at and not self._sends_much:  # what is small by its size may ask for a lot
            net.turns.last_small_request_s = began
        if at < end:
            if self._blocked() or self._in_line:
                self._backlog = bytes(data[at:end])
            else:
                self._begin_frame(data[at:end])
        self._flush()

    def _begin_frame(self, front: memoryview) -> None:
        size = _SIZE.unpack_from(front)[0] + 4 if len(front) >= 4 else 4
        frame = self.net.room(max(min(size, GROWTH_BYTES), len(front)))
        frame[: len(front)] = front
        self._filled, self._whole = len(front), 4
        self._frame = self._measured(frame)

    def _measured(self, frame: bytearray) -> bytearray:
        """With room for what is read next, which grows with what has come, not with what was announced.

        Larger room is another one: a view of what lay in this one before, and was served, may not be gone yet.
        """
        if self._filled < 4:
            return frame
        (size,) = _SIZE.unpack_from(frame)
        if not self._reserved:
            if not 0 <= size <= self.net.limits.socket_request_max_bytes:
                self.net.refuse_size(size)
            self._reserve(size + 4)
        whole = size + 4
        if self._filled == len(frame) < whole:
            frame = frame.ljust(min(whole, max(2 * len(frame), GROWTH_BYTES)), b"\0")
        self._whole = min(whole, len(frame))
        return frame

    def _reserve(self, count: int) -> None:
        self._reserved = count
        self.net.take_memory(count)

    def _release(self) -> None:
        count, self._reserved = self._reserved, 0
        self.net.give_memory(count)

    def _serve(self, frame: memoryview) -> None:
        """Serve one request. What has to wait goes on in a task, and this connection with it."""
        net = self.net
        try:
            answer = net.serve(self, frame)
        except CloseConnection:
            raise
        except Exception as error:  # a fault of ours: told in full, and the end of this connection, not of the broker
            if (lacking := shortage(error)) is not None:
                raise CloseConnection(f"its request could not be served: {lacking}") from error
            net.loop.call_exception_handler({"message": f"serving {self}", "exception": error})
            raise CloseConnection(f"serving it failed: {error!r}") from error
        if answer is None:
            return
        if not isinstance(answer, _REPLIES):
            self._wait_for(answer)
        elif self._due:
            self._due.append(answer)
        else:
            self._put(answer)

    def _wait_for(self, answer: Later | Awaitable[Reply | None]) -> None:
        later = answer if isinstance(answer, Later) else Later(asyncio.ensure_future(answer), as_it_is, blocks=True)
        if later.blocks:
            self.waiting = later.answer
        self._due.append(later)
        if isinstance(later.answer, ImmediateFuture):
            later.answer.on_done = self._answered
        else:
            later.answer.add_done_callback(self._answered)

    def _put(self, reply: Reply) -> None:
        if isinstance(reply, bytes):
            self._gathered += reply
            self._out_bytes += len(reply)
            return
        self._put_gathered()
        self._out.extend(reply)
        for piece in reply:
            if isinstance(piece, BUFFERS):
                self._out_bytes += len(piece)
            elif piece.length >= LARGE_BYTES:
                self._sends_much = True

    def _put_gathered(self) -> None:
        if self._gathered:
            self._out.append(self._gathered)
            self._gathered = bytearray()

    def _answered(self, done: "asyncio.Future[Any]") -> None:
        if done is self.waiting:
            self.waiting = None
        if self.closed or done.cancelled():
            return
        error = done.exception()
        if isinstance(error, CloseConnection):
            self.close(str(error))
            return
        if error is not None and (lacking := shortage(error)) is not None:
            self.close(f"its request could not be served: {lacking}")
            return
        if error is not None:
            self.net.loop.call_exception_handler({"message": f"serving {self}", "exception": error})
            self.close(f"serving it failed: {error!r}")
            return
        self.last_active = self.net.now()
        self._put_all()
        self._flush()
        self._serve_backlog()

    def _put_all(self) -> None:
        """Those that are there, up to the first that is not."""
        due = self._due
        while due:
            first = due[0]
            if isinstance(first, Later):
                done = first.answer
                if not done.done() or done.cancelled() or done.exception() is not None:
                    return
                first = first.frame(done.result()) or b""
            due.popleft()
            self._put(first)

    def _serve_backlog(self) -> None:
        if not self.closed and not self._blocked() and self._backlog:
            data, self._backlog = self._backlog, b""
            self.last_active = self.net.now()
            try:
                self._serve_frames(memoryview(bytearray(data)))
            except CloseConnection as error:
                self._refuse(error)
        self._resume()

    def _blocked(self) -> bool:
        return self.waiting is not None or self._writing or len(self._due) >= MOST_DUE

    def _resume(self) -> None:
        """Read on, unless something is in the way."""
        if self.closed:
            return
        if self.net.is_full and not self._reserved:  # who has begun a frame may end it
            self.net.starved.add(self)
            self._pause()
        elif not (self._reading or self._blocked() or self._backlog):
            self.net.loop.add_reader(self.fd, self._readable)
            self._reading = True

    def _pause(self) -> None:
        if self._reading:
            self.net.loop.remove_reader(self.fd)
            self._reading = False

    # Writing

    def _flush(self) -> None:
        """Send what can be sent now, unless it has to wait already."""
        if self._writing:
            return
        out, self._step_bytes = self._out, 0
        try:
            if self._gathered:
                if not out:  # as nearly always: then it need not go there
                    del self._gathered[: self.sock.send(self._gathered)]
                self._put_gathered()
            while out and not self.closed:
                if isinstance(out[0], BUFFERS):
                    sent = self._send_bytes()
                else:
                    sent = self._send_slice(out[0])
                if not sent:
                    break
        except (BlockingIOError, InterruptedError):
            self._wait_until_writable()
        except OSError as error:
            self.close(f"it broke: {error}", quiet=True)
        else:
            if not out:
                self._out_bytes, self._sends_much = 0, False
                if self._awaits_room:
                    self._await_room(False)
        if not (self.closed or self._reading or self._writing):
            self._resume()

    def _send_on(self) -> None:
        """What it waited for is there."""
        self._writing = False
        self._flush()
        if not self._writing:
            self._serve_backlog()

    def _send_bytes(self) -> bool:
        out, buffers = self._out, list[Buffer]()
        for part in out:
            if not isinstance(part, BUFFERS) or len(buffers) == SEND_AT_ONCE:
                break
            buffers.append(part)
        more = socket.MSG_MORE if len(buffers) < len(out) else 0  # what follows travels in the same packets
        sent = self.sock.send(buffers[0], more) if len(buffers) == 1 else self.sock.sendmsg(buffers, (), more)
        for buffer in buffers:
            if sent < len(buffer):
                out[0] = memoryview(buffer)[sent:]
                self._wait_until_writable()
                return False
            sent -= len(buffer)
            out.popleft()
        return True

    def _send_slice(self, part: "Piece | Rest") -> bool:
        if isinstance(part, FileSlice):
            part = self._out[0] = Rest(part.file, part.position, part.length)
            if (ahead := part.take_ahead()) is not None:
                self.net.in_thread(ask, part.file, ahead)
        assert isinstance(part, Rest), f"a reply holds bytes and slices of files, not {part!r}"
        in_steps = self._is_in_steps()
        most = STEP_BYTES if in_steps else TURN_BYTES
        while part.length:
            if not part.is_warm():
                self._read_ahead(part)
                return False
            if (left := most - self._step_bytes) <= 0:
                self._give_way(in_steps)
                return False
            wanted = min(part.length, part.warm, left)
            sent = part.send(self.fd, wanted)
            self._step_bytes += sent
            if sent < wanted:
                self._wait_until_writable()
                return False
        self._out.popleft()
        return True

    def _is_in_steps(self) -> bool:
        return not self.net.turns.is_quiet(self.net.now())

    def _read_ahead(self, rest: Rest) -> None:
        """The disk is asked in a thread; then the sending goes on."""
        count = min(rest.length, READ_AHEAD_BYTES)

        def warmed(done: "asyncio.Future[None]") -> None:
            if not self.closed:
                rest.warm = count
                if done.exception() is not None:
                    self.close(f"what it asked for cannot be read: {done.exception()}")
                else:
                    self._send_on()

        rest.file.ahead_to = rest.position + count + AHEAD_BYTES
        self._wait_without_room()
        self.net.in_thread(read_through, rest.file.fd, rest.position, count).add_done_callback(warmed)

    def _give_way(self, in_steps: bool) -> None:
        """To others, before it goes on."""
        if in_steps:
            self._wait_without_room()
            self.net.turns.schedule(self._send_on)
        else:
            self._wait_until_writable()

    def _wait_without_room(self) -> None:
        """For something else: that there is room would be told over and over."""
        self._writing = True
        self._await_room(False)

    def _wait_until_writable(self) -> None:
        self._writing = True
        self._await_room(True)

    def _await_room(self, wanted: bool) -> None:
        if wanted and not self._awaits_room:
            self.net.loop.add_writer(self.fd, self._writable)
        elif self._awaits_room and not wanted:
            self.net.loop.remove_writer(self.fd)
        self._awaits_room = wanted

    def _writable(self) -> None:
        """Who sends much does so behind those who ask for little."""
        if self._out and not isinstance(self._out[0], BUFFERS) and self._is_in_steps():
            self._give_way(in_steps=True)
        else:
            self._send_on()

    def close(self, why: str, *, quiet: bool = False) -> None:
        if self.closed:
            return
        self.closed = True
        log.log(logging.DEBUG if quiet else logging.WARNING, "connection %s closed: %s", self, why)
        self.net.loop.remove_reader(self.fd)
        self.net.loop.remove_writer(self.fd)
        self._awaits_room = False  # the number is somebody else's soon
        for answer in self.due:
            answer.cancel()
        self._release()
        self._out.clear()
        self.sock.close()
        self.net.forget(self)


def as_it_is(reply: Reply | None) -> Reply | None:
    return reply


class Net:
    """The listeners of a broker and their connections."""

    serve: Serve  # there once it is started
    completions: DeferredCompletions

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.now = time.monotonic
        self.scratch = bytearray(SCRATCH_BYTES)
        self.scratch_view = memoryview(self.scratch)
        self.connections: set[Connection] = set()
        self._per_host: Counter[str] = Counter()
        self._listeners: list[tuple[socket.socket, str]] = []
        self._accepting = False
        self._second_began, self._created = 0.0, 0  # connections, since this second began
        self._next_second: asyncio.TimerHandle | None = None  # set while no more are accepted in this one
        self._shortage: asyncio.TimerHandle | None = None  # set while none are accepted, as that failed
        self._shortage_told_at = -SHORTAGE_TOLD_SECONDS
        self._memory = 0  # of frames that have begun
        self.is_full = False  # of them, as queued.max.request.bytes says
        self._spare: list[bytearray] = []  # rooms for large frames: memory that is new costs more than its use
        self.starved: set[Connection] = set()  # those that are not read from until others are done
        self.turns = StepScheduler(self.loop)
        self._threads = ThreadPoolExecutor(max_workers=4, thread_name_prefix="read-ahead")
        self._sweep: asyncio.TimerHandle | None = None

    # Listening

    def listen(self, name: str, host: str, port: int) -> tuple[str, int]:
        """Bind a listener; the host as in Kafka: empty means all addresses. The address it got."""
        family = socket.AF_INET6 if ":" in host or (not host and socket.has_dualstack_ipv6()) else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if not host else 1)
        try:
            sock.bind((host, port))
        except OSError as error:
            sock.close()
            raise OSError(error.errno, f"cannot listen on {host or '*'}:{port} ({name}): {error.strerror}") from None
        sock.listen(max(self.limits.socket_listen_backlog_size, 1))
        self._listeners.append((sock, name))
        return sock.getsockname()[0], sock.getsockname()[1]

    def start(self, serve: Serve, looks: DeferredCompletions | None = None) -> None:
        """`looks`: what follows from what was served."""
        self.serve = serve
        self.completions = looks or DeferredCompletions()
        self._accept_when_possible()
        self._sweep = self.loop.call_later(self._sweep_seconds, self._close_idle)

    def reconfigure(self, limits: Limits) -> None:
        """Other limits from now on. Where fewer connections are allowed, those go that were idle for longest."""
        self.limits = limits
        self.take_memory(0)
        if self._listeners:
            self._accept_when_possible()
        excess = len(self.connections) - limits.max_connections
        if excess > 0:
            for connection in sorted(self.connections, key=lambda it: (it.is_served, it.last_active))[:excess]:
                connection.close(f"max.connections={limits.max_connections} is exceeded")

    def _accept_when_possible(self) -> None:
        has_room = len(self.connections) < self.limits.max_connections
        wanted = has_room and self._next_second is None and self._shortage is None
        if wanted and not self._accepting:
            for sock, name in self._listeners:
                self.loop.add_reader(sock.fileno(), self._accept, sock, name)
        elif not wanted and self._accepting:
            if not has_room:
                count, limit = self.limits.max_connections, self.limits.descriptor_limit
                bound = f"the share of ulimit -n={limit}, {count} connections," if limit else f"max.connections={count}"
                log.warning("%s is reached: new connections have to wait", bound)
            for sock, _ in self._listeners:
                self.loop.remove_reader(sock.fileno())
        self._accepting = wanted

    def _accept(self, listening: socket.socket, listener: str) -> None:
        """All who wait, as far as they fit into this turn."""
        ends_at = self.now() + ACCEPT_SECONDS
        while len(self.connections) < self.limits.max_connections and self._may_create():
            try:
                sock, address = listening.accept()
            except OSError as error:
                self._created -= 1
                if error.errno in _ONE_FAILED:
                    log.debug("a connection was not accepted: %s", error)
                    continue
                if error.errno in (errno.EMFILE, errno.ENFILE) and CACHE.make_room():
                    continue
                if not isinstance(error, BlockingIOError | InterruptedError):
                    self._stop_accepting(error)
                break
            self._welcome(sock, address, listener)
            if self.now() > ends_at:
                break
        self._accept_when_possible()

    def _stop_accepting(self, error: OSError) -> None:
        """Descriptors or memory are short: those who wait are still there when that is over."""
        if self.now() - self._shortage_told_at >= SHORTAGE_TOLD_SECONDS:
            self._shortage_told_at = self.now()
            log.error("connections cannot be accepted for now, and have to wait: %s", shortage(error) or error)
        self._shortage = self.loop.call_later(SHORTAGE_SECONDS, self._accept_again)

    def _accept_again(self) -> None:
        if self._shortage is not None:
            self._shortage.cancel()
            self._shortage = None
        if self._listeners:
            self._accept_when_possible()

    def _may_create(self) -> bool:
        """max.connection.creation.rate: so many in a second. Who comes too soon waits in the queue of the listener."""
        now = self.now()
        if now - self._second_began >= 1.0:
            self._second_began, self._created = now, 0
        if self._created < self.limits.max_connection_creation_rate:
            self._created += 1
            return True
        if self._next_second is None:
            self._next_second = self.loop.call_later(self._second_began + 1.0 - now, self._begin_second)
        return False

    def _begin_second(self) -> None:
        self._next_second = None
        if self._listeners:
            self._accept_when_possible()

    def _welcome(self, sock: socket.socket, address: tuple[str, int], listener: str) -> None:
        host, port = address[0].removeprefix("::ffff:"), address[1]
        limit = dict(self.limits.max_connections_per_ip_overrides).get(host, self.limits.max_connections_per_ip)
        if self._per_host[host] >= limit:
            log.warning("connection from %s refused: max.connections.per.ip=%d is reached", host, limit)
            sock.close()
            return
        self._set_options(sock, address[0])
        connection = Connection(self, sock, host, port, listener)
        self.connections.add(connection)
        self._per_host[host] += 1
        try:
            connection.start()
        except OSError as error:  # it cannot be watched
            connection.close(f"it cannot be served: {error}")

    def _set_options(self, sock: socket.socket, host: str) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if host == sock.getsockname()[0]:
            with suppress(OSError):  # then it stays as it is everywhere else
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, UNPACED)
        if self.limits.socket_send_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.socket_send_buffer_bytes)
        if self.limits.socket_receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.socket_receive_buffer_bytes)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self.starved.discard(connection)
        self._per_host[connection.host] -= 1
        if not self._per_host[connection.host]:
            del self._per_host[connection.host]
        self._accept_again()

    # Limits

    def refuse_size(self, size: int) -> NoReturn:
        raise CloseConnection(
            f"a request of {size} bytes; socket.request.max.bytes={self.limits.socket_request_max_bytes}"
        )

    def room(self, size: int) -> bytearray:
        """For a frame that comes in parts: one that was used before, if it is large enough."""
        if size > SCRATCH_BYTES and self._spare and len(self._spare[-1]) >= size:
            return self._spare.pop()
        return bytearray(size)

    def keep_room(self, room: bytearray) -> None:
        if SCRATCH_BYTES < len(room) <= 2 * GROWTH_BYTES and len(self._spare) < MOST_SPARE:
            self._spare.append(room)

    def take_memory(self, count: int) -> None:
        self._memory += count
        self.is_full = 0 < self.limits.queued_max_request_bytes < self._memory

    def give_memory(self, count: int) -> None:
        self.take_memory(-count)
        if self.starved and not self.is_full:
            starved, self.starved = self.starved, set()
            for connection in starved:
                self.loop.call_soon(connection.start)

    def in_thread(self, job: Callable[..., None], *arguments: object) -> "asyncio.Future[None]":
        """Where no thread can be started it is done here: everybody waits for the disk, and nothing fails."""
        try:
            return self.loop.run_in_executor(self._threads, job, *arguments)
        except RuntimeError as error:
            if shortage(error) is None:
                raise
        done: asyncio.Future[None] = self.loop.create_future()
        job(*arguments)
        done.set_result(None)
        return done

    @property
    def _sweep_seconds(self) -> float:
        return min(max(self.limits.connections_max_idle_ms / 10_000, 0.05), 30.0)

    def _close_idle(self) -> None:
        if self.limits.connections_max_idle_ms > 0:
            oldest = self.now() - self.limits.connections_max_idle_ms / 1000
            idle = [found for found in self.connections if not found.is_served and found.last_active < oldest]
            for connection in idle:
                connection.close(f"idle; connections.max.idle.ms={self.limits.connections_max_idle_ms}", quiet=True)
        self._sweep = self.loop.call_later(self._sweep_seconds, self._close_idle)

    # The end

    def stop_listening(self) -> None:
        for sock, _ in self._listeners:
            self.loop.remove_reader(sock.fileno())
            sock.close()
        self._listeners.clear()
        self._accepting = False

    async def close(self, grace_seconds: float = 2.0) -> None:
        """No new connections; what is being answered may finish for a moment; then all are closed."""
        self.stop_listening()
        for timer in (self._sweep, self._next_second, self._shortage):
            if timer is not None:
                timer.cancel()
        under_way = [due for found in self.connections for due in found.due]
        if under_way:
            await asyncio.wait(under_way, timeout=grace_seconds)
        for connection in list(self.connections):
            connection.close("the broker stops", quiet=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

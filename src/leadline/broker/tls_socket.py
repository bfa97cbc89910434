"""TLS between a socket and its frames: a `Socket` over another `Socket`.

Bytes that arrive are decrypted in `recv_into`; bytes to send are encrypted in slices. Encrypted bytes leave in their
order before anything else. The part that the socket did not take waits here: never more than one slice of it.

    handshake  -> open          both sides have the keys: `recv_into` returns the peer's first bytes
    open       -> closed        the peer sent close_notify, broke the protocol, or the socket failed
    any        -> shut down     we sent close_notify or an alert: later bytes are not decrypted
    a step of a handshake takes half a millisecond: a thread takes it, and nobody else touches the TLS object until then
    each step waits for its turn: an iteration of the loop begins one at most
    a renegotiation is refused: see `security/tls.py`
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial

from leadline.model import Buffer
from leadline.runtime.network import MSG_MORE, SHUT_WR, Socket
from leadline.runtime.step_scheduler import StepScheduler
from leadline.runtime.worker_threads import WorkerThreads

SLICE_BYTES = 256 * 1024  # encrypted at once: large enough that calls cost little, small enough for one loop iteration
FIRST_BYTES = 64 * 1024  # of a file, after a request: the peer can decrypt them while the next ones are encrypted
MORE_BYTES = 16 * 1024  # encrypted, and not sent before more follows
RECEIVE_BYTES = 256 * 1024

ReadFile = Callable[[int, memoryview, int], int]  # part of a file into a buffer, as the files port does


Outcome = bool | str  # of a step of a handshake: whether it was the last one; why it failed


class TlsBuffers:
    """Buffers that all connections of a broker share: they are used within one call only."""

    def __init__(self) -> None:
        self.received = memoryview(bytearray(RECEIVE_BYTES))
        self.plain = memoryview(bytearray(SLICE_BYTES))


class TlsFailed(ConnectionError):
    """The peer does not speak TLS, or no TLS that this listener accepts."""


class TlsSocket:
    def __init__(
        self,
        sock: Socket,
        context: ssl.SSLContext,
        buffers: TlsBuffers,
        handshakes: StepScheduler,
        threads: WorkerThreads,
        read_file: ReadFile,
    ) -> None:
        self._sock, self._buffers, self._read_file = sock, buffers, read_file
        self._handshakes, self._threads = handshakes, threads
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_open = False  # the handshake is over, and the end was not sent
        self._is_shut_down = False
        self._has_turn = self._awaits_turn = False  # for a step of its handshake
        self._is_in_thread = False  # such a step
        self._outcome: Outcome | None = None  # of a step that is over, and was not looked at
        self.on_open: Callable[[], None] = _nothing  # called then, before the peer's first bytes are returned
        self._unsent = memoryview(b"")  # encrypted, and not taken by the socket yet
        self._is_answered = False  # bytes of a file were sent since the last request
        self._reader: Callable[[], None] | None = None
        self._writer: Callable[[], None] | None = None
        self._has_more = False  # perhaps: bytes that were received were not all taken
        self._is_reader_due = False  # the reader is called again for them

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the peer in DER; None if the peer showed none."""
        return self._tls.getpeercert(binary_form=True)

    # Receiving

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        if not self.is_open:
            if self._is_shut_down:
                return self._sock.recv_into(buffer)  # it is discarded
            if not self._handshake():
                return 0
        view, count = memoryview(buffer), 0
        self._has_more = False
        try:
            while count < len(view):
                read = self._read(view[count:])
                if not read:
                    return count
                count += read
        except BlockingIOError:
            if not count:
                raise
        else:
            self._has_more = True
            self._call_reader_again()
        return count

    def _read(self, view: memoryview) -> int:
        """Decrypted bytes, as many as there are of one TLS record. 0: the peer has closed its side."""
        while True:
            try:
                return self._tls.read(len(view), view)  # type: ignore[return-value]
            except ssl.SSLWantReadError:
                if self._outgoing.pending:  # an answer to a change of keys
                    self._send_encrypted()
                if not self._receive():
                    return 0
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return 0
            except ssl.SSLError as error:
                raise TlsFailed(f"TLS failed: {_reason(error)}") from None

    def _receive(self) -> bool:
        count = self._sock.recv_into(self._buffers.received)
        if not count:
            self._incoming.write_eof()
            return False
        self._incoming.write(self._buffers.received[:count])
        self._is_answered = False
        return True

    def _handshake(self) -> bool:
        """Go on with the handshake. False if the peer has left; BlockingIOError if it is not over."""
        if self._outcome is not None:
            outcome, self._outcome = self._outcome, None
            return self._end_step(outcome)
        if self._is_in_thread:
            raise BlockingIOError
        if not self._has_turn:
            self._await_turn()
            raise BlockingIOError  # the bytes wait in the socket until then
        self._has_turn = False
        if not self._receive():
            return False
        self._begin_step()
        raise BlockingIOError

    def _begin_step(self) -> None:
        self._is_in_thread = True
        self._sock.on_readable(None)
        step = partial(_handshake_step, self._tls)
        asyncio.ensure_future(self._threads.run(step)).add_done_callback(self._step_ended)

    def _step_ended(self, step: "asyncio.Future[Outcome]") -> None:
        self._is_in_thread = False
        if step.cancelled() or self._is_shut_down:
            return
        self._outcome = step.result()
        if self._reader is None:
            self._has_more = True  # the next reader is called at once
        else:
            self._sock.on_readable(self._reader)
            self._reader()

    def _end_step(self, outcome: "Outcome") -> bool:
        self._send_encrypted()  # if it failed, an alert that says why
        if isinstance(outcome, str):
            raise TlsFailed(f"TLS failed: {outcome}")
        if not outcome:
            raise BlockingIOError
        self.is_open = True
        self.on_open()
        return True

    def _await_turn(self) -> None:
        """No callback runs for a socket that waits: a thousand of them cost an iteration of the loop nothing."""
        if not self._awaits_turn:
            self._awaits_turn = True
            self._sock.on_readable(None)
            self._handshakes.schedule(self._take_turn)

    def _take_turn(self) -> None:
        self._awaits_turn, self._has_turn = False, True
        if self._reader is not None:
            self._sock.on_readable(self._reader)
            self._reader()

    def on_readable(self, call: Callable[[], None] | None, /) -> None:
        self._reader = call
        if not self._awaits_turn and not self._is_in_thread:
            self._sock.on_readable(call)
        if call is not None and self._has_more:
            self._call_reader_again()

    def _call_reader_again(self) -> None:
        """Calls the reader in each iteration of the loop until all bytes are taken, as a readable socket does."""
        if not self._is_reader_due:
            self._is_reader_due = True
            asyncio.get_running_loop().call_soon(self._call_reader)

    def _call_reader(self) -> None:
        self._is_reader_due = False
        if self._reader is not None:
            self._reader()
            if self._has_more:
                self._call_reader_again()

    # Sending

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """The number of bytes that were encrypted. They are sent, or wait here to be sent.

        With `MSG_MORE` a few bytes wait for what follows: a call of the system costs as much as encrypting 16 KB.
        """
        self._check_room()
        if self._is_in_thread:
            raise BlockingIOError
        try:
            count = self._tls.write(memoryview(data)[:SLICE_BYTES])
        except ssl.SSLWantReadError:  # the handshake is not over
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise TlsFailed(f"TLS failed: {_reason(error)}") from None
        if not flags & MSG_MORE or self._outgoing.pending >= MORE_BYTES:
            self._send_encrypted()
        return count

    def sendmsg(self, buffers: Iterable[Buffer], ancillary: Iterable[tuple[int, int, bytes]], flags: int, /) -> int:
        return self.send(b"".join(buffers), flags)

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        """Slice by slice, until the socket does not take all of one: a turn of the loop for each would cost more."""
        self._check_room()  # before the file is read for nothing
        sent = 0
        while sent < count and not self._unsent:
            plain = self._buffers.plain[: min(count - sent, SLICE_BYTES if self._is_answered else FIRST_BYTES)]
            self._is_answered = True
            read = self._read_file(fd, plain, position + sent)
            if not read:
                break
            sent += self.send(plain[:read])
        return sent

    def _check_room(self) -> None:
        """BlockingIOError while a part of the last slice waits."""
        if self._unsent:
            self._send_encrypted()
            if self._unsent:
                raise BlockingIOError

    def _send_encrypted(self) -> None:
        """Send what is encrypted, as far as the socket takes it. `_writable` sees to the rest."""
        if self._outgoing.pending:
            encrypted = self._outgoing.read()
            self._unsent = memoryview(bytes(self._unsent) + encrypted if self._unsent else encrypted)
        if not self._unsent:
            return
        with suppress(BlockingIOError, InterruptedError):
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        if self._unsent:
            self._sock.on_writable(self._writable)

    def _writable(self) -> None:
        try:
            self._send_encrypted()
        except OSError:
            self._sock.on_writable(None)
            if self._reader is not None:
                self._reader()  # it meets the error
            return
        if not self._unsent:
            self._sock.on_writable(self._writer)
            if self._writer is not None:
                self._writer()

    def on_writable(self, call: Callable[[], None] | None, /) -> None:
        self._writer = call
        if not self._unsent:
            self._sock.on_writable(call)

    def set_buffers(self, send_bytes: int, receive_bytes: int, /) -> None:
        self._sock.set_buffers(send_bytes, receive_bytes)

    def shutdown(self, how: int, /) -> None:
        assert how == SHUT_WR
        self._say_goodbye()
        self.is_open, self._is_shut_down = False, True
        self._has_more = self._awaits_turn = self._is_in_thread = False
        self._outcome = None
        self._unsent = memoryview(b"")
        self._sock.shutdown(how)

    def close(self) -> None:
        self._reader = None
        if not self._is_shut_down:
            self._say_goodbye()
        self._is_shut_down = True
        self._sock.close()

    def _say_goodbye(self) -> None:
        """If there is room for it, so that the peer knows that nothing is missing."""
        self._writer = None
        self.on_open = _nothing
        self._sock.on_writable(None)
        if self._is_in_thread:
            return  # there are no keys yet
        with suppress(ssl.SSLError, ValueError):  # it would wait for the peer's close_notify, which is not needed
            self._tls.unwrap()
        with suppress(OSError):  # no room, or the peer is gone
            if self._outgoing.pending or self._unsent:
                self._sock.send(bytes(self._unsent) + self._outgoing.read())


def _handshake_step(tls: ssl.SSLObject) -> Outcome:
    """Runs in a thread. It returns its failure: an exception would keep the connection in memory."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLError as error:
        return _reason(error)
    return True


def _nothing() -> None:
    """Stop waiting for the end of the handshake."""


def _reason(error: ssl.SSLError) -> str:
    """OpenSSL's words for it, without the line of its source."""
    return (error.reason or str(error)).lower().replace("_", " ")

"""A network in the memory of one process: no sockets, no descriptors, nothing but the loop.

It stands behind the same port as the real one, so that a whole broker, and those who talk to it, run on it unchanged.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import TypeVar

from leadline.model import Buffer
from leadline.runtime.network import ListeningSocket, Socket
from leadline.runtime.ports import Files, OsFiles

P = TypeVar("P", bound=asyncio.BaseProtocol)
CAPACITY_BYTES = 100_000  # that one side may send before the other has taken them
FIRST_PORT = 10_000

Call = Callable[[], None]


class Watched:
    """Calls back from the loop for as long as there is something to do."""

    def __init__(self) -> None:
        self._call: Call | None = None
        self._is_scheduled = False

    def is_ready(self) -> bool:
        raise NotImplementedError

    def watch(self, call: Call | None) -> None:
        self._call = call
        self.changed()

    def changed(self) -> None:
        if self._call is not None and not self._is_scheduled and self.is_ready():
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if self._call is not None and self.is_ready():
            self._call()
        self.changed()


class Pipe:
    """Bytes on their way from one side to the other."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.is_closed = False
        self.readable, self.writable = _Readable(self), _Writable(self)

    def put(self, data: bytes) -> int:
        if self.is_closed:
            raise BrokenPipeError
        count = min(len(data), CAPACITY_BYTES - len(self.data))
        if data and not count:
            raise BlockingIOError
        self.data += data[:count]
        self.readable.changed()
        return count

    def take(self, room: bytearray | memoryview) -> int:
        count = min(len(self.data), len(room))
        room[:count] = self.data[:count]
        del self.data[:count]
        self.writable.changed()
        return count

    def close(self) -> None:
        self.is_closed = True
        self.readable.changed()
        self.writable.changed()


class _Readable(Watched):
    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def is_ready(self) -> bool:
        return self._pipe.is_closed or len(self._pipe.data) > 0


class _Writable(Watched):
    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe

    def is_ready(self) -> bool:
        return self._pipe.is_closed or len(self._pipe.data) < CAPACITY_BYTES


class MemorySocket:
    def __init__(self, received: Pipe, sent: Pipe, files: Files) -> None:
        self._received, self._sent, self._files = received, sent, files

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        if not self._received.data and not self._received.is_closed:
            raise BlockingIOError
        return self._received.take(buffer)

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        return self._sent.put(bytes(data))

    def sendmsg(self, buffers: Iterable[Buffer], ancillary: Iterable[tuple[int, int, bytes]], flags: int, /) -> int:
        return self._sent.put(b"".join(bytes(buffer) for buffer in buffers))

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        return self._sent.put(self._files.pread(fd, count, position))

    def on_readable(self, call: Call | None, /) -> None:
        self._received.readable.watch(call)

    def on_writable(self, call: Call | None, /) -> None:
        self._sent.writable.watch(call)

    def set_buffers(self, send_bytes: int, receive_bytes: int, /) -> None:
        """Memory has no such buffers."""

    def shutdown(self, how: int, /) -> None:
        self._sent.close()

    def close(self) -> None:
        self.on_readable(None)
        self.on_writable(None)
        self._received.close()
        self._sent.close()


class MemoryTransport(asyncio.Transport):
    """The side that connected, as asyncio's protocols see it."""

    def __init__(self, protocol: asyncio.BaseProtocol, received: Pipe, sent: Pipe) -> None:
        super().__init__()
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol, self._received, self._sent = protocol, received, sent
        self._unsent = bytearray()
        received.readable.watch(self._readable)

    def write(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[override,unused-ignore]
        self._unsent += data
        self._sent.writable.watch(self._writable)

    def _writable(self) -> None:
        if self._unsent and not self._sent.is_closed:
            del self._unsent[: self._sent.put(bytes(self._unsent))]
        if not self._unsent or self._sent.is_closed:
            self._sent.writable.watch(None)

    def _readable(self) -> None:
        if not self._received.data:
            self.abort()
            return
        room = self._protocol.get_buffer(-1)
        assert isinstance(room, memoryview)
        self._protocol.buffer_updated(self._received.take(room))

    def pause_reading(self) -> None:
        self._received.readable.watch(None)

    def resume_reading(self) -> None:
        self._received.readable.watch(self._readable)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if self._received.readable._call is None:
            return
        self._received.readable.watch(None)
        self._received.close()
        self._sent.close()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class MemoryListeningSocket:
    def __init__(self, network: "MemoryNetwork", address: tuple[str, int]) -> None:
        self._network, self.address = network, address
        self.queue: list[MemorySocket] = []
        self._watched = _Waiting(self)

    def add(self, sock: MemorySocket) -> None:
        self.queue.append(sock)
        self._watched.changed()

    def accept_connection(self) -> tuple[Socket, str, int]:
        if not self.queue:
            raise BlockingIOError
        return self.queue.pop(0), "memory", 1

    def on_readable(self, call: Call | None, /) -> None:
        self._watched.watch(call)

    def close(self) -> None:
        self._network.listening.pop(self.address[1], None)
        for sock in self.queue:
            sock.close()


class _Waiting(Watched):
    def __init__(self, listening: MemoryListeningSocket) -> None:
        super().__init__()
        self._listening = listening

    def is_ready(self) -> bool:
        return len(self._listening.queue) > 0


class MemoryNetwork:
    """`files`: what slices of files are sent from."""

    def __init__(self, files: Files | None = None) -> None:
        self._files: Files = files or OsFiles()
        self.listening: dict[int, MemoryListeningSocket] = {}
        self.addresses = {"localhost": ["127.0.0.1"]}  # of hosts, by name
        self.transports: list[MemoryTransport] = []

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        port = port or FIRST_PORT + len(self.listening)
        self.listening[port] = MemoryListeningSocket(self, (host, port))
        return self.listening[port]

    async def connect(self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None) -> P:
        assert tls is None, "this network has no TLS for clients"
        await asyncio.sleep(0)
        if port not in self.listening:
            raise ConnectionRefusedError(111, "nobody listens in memory")
        to_server, to_client, made = Pipe(), Pipe(), protocol()
        self.transports.append(MemoryTransport(made, to_client, to_server))
        made.connection_made(self.transports[-1])
        self.listening[port].add(MemorySocket(to_server, to_client, self._files))
        return made

    def reset(self, transport: asyncio.Transport) -> None:
        transport.abort()

    async def addresses_of(self, host: str) -> list[str]:
        await asyncio.sleep(0)
        if host not in self.addresses:
            raise OSError(-2, "Name or service not known")
        return self.addresses[host]

    def host_name(self) -> str:
        return "localhost"

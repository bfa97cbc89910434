"""A network between hosts that delays, reorders between connections, drops connections, cuts links, and heals them.

A connection is two streams of bytes. Each stream keeps its order. What is sent over a link that is cut is not lost: as
with TCP it is sent again, and arrives when the link has healed. A connection that is dropped loses what is on its way.
A host that is down is silent; a process that was killed on a host that is up resets its connections.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from leadline.model import Buffer
from leadline.runtime.network import ListeningSocket, Socket
from leadline.runtime.ports import Files
from leadline.simulation.virtual_loop import CURRENT, Process, VirtualLoop

P = TypeVar("P", bound=asyncio.BaseProtocol)
Call = Callable[[], None]

CAPACITY_BYTES = 256 * 1024  # that one side may send before the other has taken them
FIRST_CLIENT_PORT = 40_000
RETRY_S = 1.0  # of a packet that opens a connection

_END = b""  # the last item of a stream that was closed


class Watched:
    """Calls back, as its owner, for as long as there is something to do."""

    def __init__(self, loop: VirtualLoop, is_ready: Callable[[], bool]) -> None:
        self._loop, self._is_ready = loop, is_ready
        self._call: Call | None = None
        self._is_scheduled = False

    def watch(self, call: Call | None) -> None:
        """The process that owns this side watches it."""
        self._call = call
        self._owner = CURRENT.get()
        self.changed()

    def changed(self) -> None:
        if self._call is not None and not self._is_scheduled and self._is_ready():
            self._is_scheduled = True
            context = None if self._owner is None else self._owner.context.copy()
            self._loop.call_soon(self._run, context=context)

    def arrived(self) -> None:
        """As `changed`, in a step of the network itself: the call is made at once."""
        if self._call is not None and not self._is_scheduled and self._is_ready():
            self._is_scheduled = True
            self._loop.run_as(self._owner, self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        if self._call is not None and self._is_ready():
            self._call()
            self.changed()


class Stream:
    """Bytes on their way from one host to another."""

    def __init__(self, network: "VirtualNetwork", source: str, target: str) -> None:
        self._network, self.source, self.target = network, source, target
        self._on_the_way: deque[bytes] = deque()  # sent, and not yet arrived
        self._on_the_way_bytes = 0
        self._arrives_s = 0.0  # the last of them, at the earliest
        self.data = bytearray()  # arrived, and not yet received
        self.is_ended = False  # the end has arrived
        self.is_closed = False  # by the side that sends
        self.is_reset = False
        self.readable = Watched(network.loop, lambda: bool(self.data) or self.is_ended)
        self.writable = Watched(network.loop, lambda: self.is_closed or self.room > 0)

    @property
    def room(self) -> int:
        return CAPACITY_BYTES - self._on_the_way_bytes - len(self.data)

    def put(self, data: bytes) -> int:
        if self.is_closed:
            raise BrokenPipeError
        count = min(len(data), self.room)
        if data and count <= 0:
            raise BlockingIOError
        self._send(data[:count])
        return count

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._send(_END)
            self.writable.changed()

    def take(self, room: bytearray | memoryview) -> int:
        count = min(len(self.data), len(room))
        room[:count] = self.data[:count]
        del self.data[:count]
        if count:
            self.writable.changed()
        return count

    def _send(self, data: bytes) -> None:
        self._on_the_way.append(data)
        self._on_the_way_bytes += len(data)
        self._schedule()

    def _schedule(self) -> None:
        loop = self._network.loop
        due_s = loop.time() + self._network.delay_s(self.source, self.target)
        self._arrives_s = max(due_s, self._arrives_s)
        loop.call_at(self._arrives_s, self._arrive, context=self._network.context)

    def _arrive(self) -> None:
        if not self._on_the_way:
            return
        if self._network.is_cut(self.source, self.target):
            self._network.wait_for_healing(self)
            return
        data = self._on_the_way.popleft()
        self._on_the_way_bytes -= len(data)
        if data == _END:
            self.is_ended = True
        elif not self.is_ended:
            self.data += data
        self.readable.arrived()

    def healed(self) -> None:
        for _ in self._on_the_way:
            self._schedule()

    def reset(self) -> None:
        """Nothing arrives any more but the end."""
        self.data.clear()
        self._on_the_way.clear()
        self._on_the_way_bytes = 0
        self.is_reset = self.is_closed = True
        self._send(_END)
        self.writable.changed()


class VirtualSocket:
    """A connected stream, as a broker sees it."""

    def __init__(self, received: Stream, sent: Stream, files: Files) -> None:
        self._received, self._sent, self._files = received, sent, files
        self._is_closed = False

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        if not self._received.data:
            if not self._received.is_ended:
                raise BlockingIOError
            if self._received.is_reset:
                raise ConnectionResetError
        return self._received.take(buffer)

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        return self._sent.put(bytes(data))

    def sendmsg(self, buffers: Iterable[Buffer], ancillary: Iterable[tuple[int, int, bytes]], flags: int, /) -> int:
        return self._sent.put(b"".join(bytes(buffer) for buffer in buffers))

    def send_file(self, fd: int, position: int, count: int, /) -> int:
        if self._sent.room <= 0:
            raise BlockingIOError
        return self._sent.put(self._files.pread(fd, min(count, self._sent.room), position))

    def on_readable(self, call: Call | None, /) -> None:
        self._received.readable.watch(call)

    def on_writable(self, call: Call | None, /) -> None:
        self._sent.writable.watch(call)

    def set_buffers(self, send_bytes: int, receive_bytes: int, /) -> None:
        """The capacity of a stream is fixed."""

    def shutdown(self, how: int, /) -> None:
        """Nothing more is sent. Arriving bytes can still be received."""
        self._sent.close()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.on_readable(None)
        self.on_writable(None)
        self._sent.close()
        self._received.is_closed = True
        self._received.writable.changed()


class VirtualTransport(asyncio.Transport):
    """The side that connected, as asyncio's protocols see it."""

    def __init__(self, protocol: asyncio.BaseProtocol, received: Stream, sent: Stream) -> None:
        super().__init__()
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._protocol, self._received, self._sent = protocol, received, sent
        self._unsent = bytearray()
        self._is_closed = False
        received.readable.watch(self._readable)

    def is_closing(self) -> bool:
        return self._is_closed

    def write(self, data: bytes | bytearray | memoryview) -> None:  # type: ignore[override,unused-ignore]
        if self._is_closed:
            return
        if not self._unsent and self._sent.room >= len(data) and not self._sent.is_closed:
            self._sent.put(bytes(data))
            return
        self._unsent += data
        self._sent.writable.watch(self._writable)

    def _writable(self) -> None:
        if self._unsent and not self._sent.is_closed:
            del self._unsent[: self._sent.put(bytes(self._unsent))]
        if not self._unsent or self._sent.is_closed:
            self._sent.writable.watch(None)

    def _readable(self) -> None:
        if not self._received.data:
            self.abort(ConnectionResetError() if self._received.is_reset else None)
            return
        room = self._protocol.get_buffer(-1)
        assert isinstance(room, memoryview)
        self._protocol.buffer_updated(self._received.take(room))

    def close(self) -> None:
        self.abort()

    def abort(self, error: Exception | None = None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._received.readable.watch(None)
        self._sent.writable.watch(None)
        self._sent.close()
        self._received.is_closed = True
        self._received.writable.changed()
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, error)


class VirtualListeningSocket:
    def __init__(
        self, network: "VirtualNetwork", process: Process | None, address: tuple[str, int], files: Files
    ) -> None:
        self._network, self.process, self.address, self.files = network, process, address, files
        self._queue: deque[tuple[VirtualSocket, str, int]] = deque()
        self._watched = Watched(network.loop, lambda: bool(self._queue))

    def add(self, sock: VirtualSocket, host: str, port: int) -> None:
        self._queue.append((sock, host, port))
        self._watched.changed()

    def accept_connection(self) -> tuple[Socket, str, int]:
        if not self._queue:
            raise BlockingIOError
        return self._queue.popleft()

    def on_readable(self, call: Call | None, /) -> None:
        self._watched.watch(call)

    def close(self) -> None:
        if self._network.listening.get(self.address) is self:
            del self._network.listening[self.address]
        self._watched.watch(None)
        for sock, _, _ in self._queue:
            sock.close()


class _Connection:
    """The processes at both ends, so that each notices when the other ends."""

    def __init__(self, client: Process | None, server: Process | None, to_server: Stream, to_client: Stream) -> None:
        self.client, self.server, self.to_server, self.to_client = client, server, to_server, to_client

    def reset(self) -> None:
        self.to_server.reset()
        self.to_client.reset()


class VirtualNetwork:
    """`delay_s`: from one host to another, for one piece of a stream."""

    def __init__(self, loop: VirtualLoop, delay_s: Callable[[str, str], float]) -> None:
        self.loop, self.delay_s = loop, delay_s
        self.context = Process("network").context
        self.listening: dict[tuple[str, int], VirtualListeningSocket] = {}
        self._cut: set[tuple[str, str]] = set()
        self._down: set[str] = set()
        self._waiting: dict[Stream, None] = {}  # for a link to heal
        self._connections: list[_Connection] = []
        self._ports = FIRST_CLIENT_PORT

    # Faults

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut or source in self._down or target in self._down

    def cut(self, source: str, target: str) -> None:
        """One way."""
        self._cut.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self._cut.discard((source, target))
        self._send_again()

    def power_off(self, host: str) -> None:
        self._down.add(host)

    def power_on(self, host: str) -> None:
        """Peers whose packets reach it now learn that their connections are gone."""
        self._down.discard(host)
        self._send_again()

    def wait_for_healing(self, stream: Stream) -> None:
        self._waiting[stream] = None

    def _send_again(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream in waiting:
            stream.healed()

    def killed(self, process: Process) -> None:
        """Its sockets are gone: the system resets its connections, as far as the host is up."""
        for address in [address for address, socket in self.listening.items() if socket.process is process]:
            del self.listening[address]
        for connection in self._connections:
            if connection.client is process or connection.server is process:
                connection.reset()
        self._forget_dead()

    def drop(self, host: str, is_dropped: Callable[[], bool]) -> int:
        """Connections of a host, as a router between both ends would. Returns how many."""
        dropped = [c for c in self._connections if host in (c.to_server.source, c.to_server.target) and is_dropped()]
        for connection in dropped:
            connection.reset()
        self._forget_dead()
        return len(dropped)

    def peers_of(self, host: str) -> list[str]:
        """Brokers and clients at the other ends of its connections."""
        links = {(c.to_server.source, c.to_server.target) for c in self._connections}
        return sorted({source if target == host else target for source, target in links if host in (source, target)})

    def _forget_dead(self) -> None:
        self._connections = [c for c in self._connections if not (c.to_server.is_closed and c.to_client.is_closed)]

    # Ports

    def of(self, host: str, files: Files) -> "HostNetwork":
        return HostNetwork(self, host, files)

    def add_connection(self, host: str, listening: VirtualListeningSocket) -> tuple[Stream, Stream, int]:
        target = listening.address[0]
        to_server, to_client = Stream(self, host, target), Stream(self, target, host)
        self._ports += 1
        if len(self._connections) > 1000:
            self._forget_dead()
        self._connections.append(_Connection(CURRENT.get(), listening.process, to_server, to_client))
        return to_server, to_client, self._ports


class HostNetwork:
    """The network port of one host."""

    def __init__(self, network: VirtualNetwork, host: str, files: Files) -> None:
        self._network, self._host, self._files = network, host, files

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        address = (self._host, port or 9092)
        listening = VirtualListeningSocket(self._network, CURRENT.get(), address, self._files)
        self._network.listening[address] = listening
        return listening

    async def connect(self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None) -> P:
        assert tls is None, "this network has no TLS for clients"
        network = self._network
        await self._cross(self._host, host)
        listening = network.listening.get((host, port))
        await self._cross(host, self._host)
        if listening is None or network.listening.get((host, port)) is not listening:
            raise ConnectionRefusedError(111, f"{host}:{port} refuses connections")
        to_server, to_client, client_port = network.add_connection(self._host, listening)
        made = protocol()
        transport = VirtualTransport(made, to_client, to_server)
        made.connection_made(transport)
        listening.add(VirtualSocket(to_server, to_client, listening.files), self._host, client_port)
        return made

    async def _cross(self, source: str, target: str) -> None:
        await asyncio.sleep(self._network.delay_s(source, target))
        while self._network.is_cut(source, target):  # noqa: ASYNC110 - its packets are sent again and again
            await asyncio.sleep(RETRY_S)

    def reset(self, transport: asyncio.Transport) -> None:
        transport.abort()

    async def addresses_of(self, host: str) -> list[str]:
        return [host]  # hosts of this network are addressed by their names

    def host_name(self) -> str:
        return self._host

"""The network between servers on this machine: proxies whose ways can be cut and mended, in a thread of their own.

with network() as net:
    port = net.way("zookeeper", 2181, source="broker 1")    whoever connects to this port is broker 1
    port = net.way("broker 2", 9092)                        who connects tells by its client id: "1" is broker 1
    net.cut("broker 1", "broker 2")                         nothing passes between the two, in either direction
    net.mend()                                              what was held back passes now

A cut loses nothing and closes nothing: bytes wait, as they do in TCP until somebody's patience ends.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from struct import Struct

CHUNK_BYTES = 65536
_HEADER = Struct(">ihhih")  # size, key, version, correlation id, length of the client id


class Network:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._cuts: set[frozenset[str]] = set()
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def way(self, target: str, target_port: int, source: str | None = None) -> int:
        """A port that leads to a server."""
        opened = asyncio.run_coroutine_threadsafe(self._open(target, target_port, source), self._loop)
        return opened.result(120)

    def cut(self, one: str, *others: str) -> None:
        self._loop.call_soon_threadsafe(self._cuts.update, [frozenset({one, other}) for other in others])

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._mend)

    def _mend(self) -> None:
        self._cuts.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    async def _open(self, target: str, target_port: int, source: str | None) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            with suppress(OSError, asyncio.IncompleteReadError):
                try:
                    await self._serve(reader, writer, target, target_port, source)
                finally:
                    writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _serve(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: str,
        target_port: int,
        source: str | None,
    ) -> None:
        first = b""
        if source is None:
            first = await reader.readexactly(_HEADER.size)
            client_id = await reader.readexactly(max(0, _HEADER.unpack(first)[-1]))
            first, source = first + client_id, f"broker {client_id.decode()}"
        way = frozenset({source, target})
        await self._until_open(way)
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", target_port)
        try:
            back_writer.write(first)
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._hand_on(way, reader, back_writer))
                both_ways.create_task(self._hand_on(way, back_reader, writer))
        except* OSError:
            pass
        finally:
            back_writer.transport.abort()

    async def _hand_on(self, way: frozenset[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(CHUNK_BYTES):
            await self._until_open(way)
            writer.write(data)
            await writer.drain()
        await self._until_open(way)  # nobody hears of an end across a cut
        raise ConnectionResetError("one side has closed it: so does the other")

    async def _until_open(self, way: frozenset[str]) -> None:
        while way in self._cuts:
            await self._changed.wait()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def network() -> Iterator[Network]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="network", daemon=True)
    thread.start()
    net = Network(loop)
    try:
        yield net
    finally:
        asyncio.run_coroutine_threadsafe(net.close(), loop).result(120)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

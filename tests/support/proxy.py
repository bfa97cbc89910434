"""A way to a server that can be broken: a TCP port on the loopback interface that hands on to another one.

async with proxy_to(port) as proxy:
    proxy.lose_answers()        what is sent still arrives, what comes back is lost
    proxy.cut()                 no connection any more, and no new one
    proxy.mend()
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from struct import Struct

CHUNK_BYTES = 65536
_SIZE = Struct(">i")


class Proxy:
    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.requests = bytearray()  # all that was sent since answers are lost
        self.accepted = 0  # connections since the last time that it was mended
        self._is_cut = self._is_silent = self._loses_answers = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    def lose_answers(self) -> None:
        self.requests.clear()
        self._loses_answers = True

    def keep_silent(self) -> None:
        """Take connections, read what comes, and say nothing."""
        self._is_silent = True

    def cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        self.accepted = 0
        self._is_cut = self._loses_answers = False

    def frames(self) -> int:
        """How many messages, each behind its size, are in `requests`."""
        at = count = 0
        while at < len(self.requests):
            at += _SIZE.size + _SIZE.unpack_from(self.requests, at)[0]
            count += 1
        return count

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        with suppress(OSError):
            try:
                if self._is_silent:
                    self._writers.add(writer)
                    await reader.read()
                elif not self._is_cut:
                    self.accepted += 1
                    await self._connect(reader, writer)
            finally:
                writer.close()
                self._serving.discard(task)
                await writer.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._writers |= {writer, back_writer}
        try:
            async with asyncio.TaskGroup() as both_ways:
                both_ways.create_task(self._hand_on(reader, back_writer, is_answer=False))
                both_ways.create_task(self._hand_on(back_reader, writer, is_answer=True))
        except* OSError:
            pass
        finally:
            self._writers -= {writer, back_writer}
            back_writer.close()
            with suppress(OSError):
                await back_writer.wait_closed()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_answer: bool) -> None:
        while data := await reader.read(CHUNK_BYTES):
            if not self._loses_answers:
                writer.write(data)
            elif not is_answer:
                self.requests += data
                writer.write(data)
        raise ConnectionResetError("one side has closed it: so does the other")

    async def end(self) -> None:
        self.cut()
        if self._serving:
            await asyncio.wait(self._serving)


@asynccontextmanager
async def proxy_to(target_port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(target_port)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
        await server.wait_closed()

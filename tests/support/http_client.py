"""A client of HTTP over the network port, for tests of servers in the same process."""

import asyncio
from typing import NamedTuple

from leadline.runtime.network import Network


class HttpAnswer(NamedTuple):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes


class ByteStream(asyncio.BufferedProtocol):
    """All that arrives until the peer closes the connection."""

    def __init__(self) -> None:
        self.received, self._room = bytearray(), bytearray(65_536)
        self.is_closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._room)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._room[:nbytes]

    def connection_lost(self, error: Exception | None) -> None:
        if not self.is_closed.done():
            self.is_closed.set_result(None)


async def get(network: Network, address: tuple[str, int], path: str, **headers: str) -> HttpAnswer:
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return parsed(await exchanged(network, address, ("\r\n".join(lines) + "\r\n\r\n").encode()))


async def exchanged(network: Network, address: tuple[str, int], request: bytes) -> bytes:
    """All bytes of the answer."""
    stream = await network.connect(ByteStream, *address)
    stream.transport.write(request)
    await asyncio.wait_for(stream.is_closed, 60)
    stream.transport.close()
    return bytes(stream.received)


def parsed(answer: bytes) -> HttpAnswer:
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = _without_chunks(body)
    return HttpAnswer(int(first.split()[1]), headers, body)


def _without_chunks(body: bytes) -> bytes:
    parts: list[bytes] = []
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        if not length:
            assert rest == b"\r\n"
            return b"".join(parts)
        parts.append(rest[:length])
        body = rest[length + 2 :]
    raise AssertionError("the last chunk is missing")

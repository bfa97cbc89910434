"""A document of an https URL, fetched by a thread of its own: the part of the network that is not Kafka's.

a redirection is not followed, and no proxy is asked: only the server of the URL is trusted
a server that is slow, or sends without end, is given up after `TIMEOUT_S` and `MAX_BYTES`
nobody waits for a thread that is given up
"""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Awaitable, Callable
from http.client import HTTPException, HTTPSConnection
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
MAX_BYTES = 1024 * 1024
_CHUNK_BYTES = 65_536

FetchDocument = Callable[[str, ssl.SSLContext], Awaitable[bytes]]


class DocumentError(Exception):
    """Why there is no document."""


async def fetch_document(url: str, context: ssl.SSLContext) -> bytes:
    """Raises DocumentError."""
    loop = asyncio.get_running_loop()
    fetched: asyncio.Future[bytes] = loop.create_future()

    def complete(result: bytes | DocumentError) -> None:
        if fetched.done():  # whoever waited has given up
            return
        if isinstance(result, bytes):
            fetched.set_result(result)
        else:
            fetched.set_exception(result)

    def work() -> None:
        result: bytes | DocumentError
        try:
            result = _fetch(url, context)
        except (OSError, HTTPException, ValueError) as error:
            result = DocumentError(f"{url}: {error or type(error).__name__}")
        except DocumentError as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(complete, result)

    threading.Thread(target=work, name=f"fetch {url}", daemon=True).start()
    return await fetched


def _fetch(url: str, context: ssl.SSLContext) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise DocumentError(f"{url}: not an https URL")
    deadline_s = time.monotonic() + TIMEOUT_S
    connection = HTTPSConnection(parts.hostname, parts.port, timeout=TIMEOUT_S, context=context)
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("GET", target, headers={"Accept": "application/json", "Connection": "close"})
        with connection.getresponse() as response:
            if response.status != 200:
                raise DocumentError(f"{url}: the server answers {response.status} {response.reason}")
            data = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                data += chunk
                if len(data) > MAX_BYTES:
                    raise DocumentError(f"{url}: larger than {MAX_BYTES} bytes")
                if time.monotonic() > deadline_s:
                    raise DocumentError(f"{url}: not complete after {TIMEOUT_S:.0f} s")
            return bytes(data)
    finally:
        connection.close()

"""A document of an https URL: the part of the network that is not Kafka's. Loops have it fetched by a thread.

a redirection is not followed, and no proxy is asked: only the server of the URL is trusted
a server that is slow, or sends without end, is given up after `TIMEOUT_S` and `MAX_BYTES`
a thread that is given up is not waited for
"""

import asyncio
import contextlib
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPSConnection
from typing import Protocol
from urllib.parse import urlsplit

TIMEOUT_S = 10.0
MAX_BYTES = 1024 * 1024
_CHUNK_BYTES = 65_536
_REFUSALS = range(400, 408)


class DocumentError(Exception):
    """Why there is no document."""

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused  # the server refuses us: another attempt does not help


@dataclass(frozen=True, slots=True)
class Form:
    """The body and the headers of the request for a document. They may be secrets."""

    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    connect_s: float = TIMEOUT_S
    read_s: float = TIMEOUT_S


class FetchDocument(Protocol):
    async def __call__(self, url: str, context: ssl.SSLContext, form: Form | None = None, /) -> bytes: ...


async def fetch_document(url: str, context: ssl.SSLContext, form: Form | None = None, /) -> bytes:
    """Fetches a document: with POST if there is a form, else with GET. Raises DocumentError."""
    loop = asyncio.get_running_loop()
    fetched: asyncio.Future[bytes] = loop.create_future()

    def complete(result: bytes | DocumentError) -> None:
        if fetched.done():  # the caller has given up
            return
        if isinstance(result, bytes):
            fetched.set_result(result)
        else:
            fetched.set_exception(result)

    def work() -> None:
        result: bytes | DocumentError
        try:
            result = read_document(url, context, form)
        except DocumentError as error:
            result = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(complete, result)

    threading.Thread(target=work, name=f"fetch {url}", daemon=True).start()
    return await fetched


def read_document(url: str, context: ssl.SSLContext, form: Form | None = None) -> bytes:
    """As `fetch_document`, by the thread that calls it."""
    try:
        return _read(url, context, form)
    except (OSError, HTTPException, ValueError) as error:
        raise DocumentError(f"{url}: {error or type(error).__name__}") from None


def _read(url: str, context: ssl.SSLContext, form: Form | None) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname:
        raise DocumentError(f"{url}: not an https URL")
    connect_s, read_s = (TIMEOUT_S, TIMEOUT_S) if form is None else (form.connect_s, form.read_s)
    connection = HTTPSConnection(parts.hostname, parts.port, timeout=connect_s, context=context)
    try:
        connection.connect()
        connection.sock.settimeout(read_s)
        deadline_s = time.monotonic() + read_s
        _send(connection, (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), form)
        with connection.getresponse() as response:
            if response.status != 200:
                reason = f"{url}: the server answers {response.status} {response.reason}"
                raise DocumentError(reason, is_refused=response.status in _REFUSALS)
            data = bytearray()
            while chunk := response.read1(_CHUNK_BYTES):
                data += chunk
                if len(data) > MAX_BYTES:
                    raise DocumentError(f"{url}: larger than {MAX_BYTES} bytes")
                if time.monotonic() > deadline_s:
                    raise DocumentError(f"{url}: not complete after {read_s:g} s")
            return bytes(data)
    finally:
        connection.close()


def _send(connection: HTTPSConnection, target: str, form: Form | None) -> None:
    headers = {"Accept": "application/json", "Connection": "close"}
    if form is None:
        connection.request("GET", target, headers=headers)
    else:
        headers |= {"Content-Type": "application/x-www-form-urlencoded", "Cache-Control": "no-cache"}
        connection.request("POST", target, form.body, {**headers, **form.headers})

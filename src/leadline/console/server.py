"""The server of the console: a socket, TLS if there is a certificate, and the end by a signal or with its parent."""

import asyncio
import ipaddress
import os
import socket
from pathlib import Path
from typing import NamedTuple

import uvicorn

from leadline.admin.errors import Failure
from leadline.admin.formatting import host_text
from leadline.console.app import application
from leadline.console.lag_sampler import LagSampler
from leadline.console.page import Console
from leadline.runtime.parent_pipe import parent_pipe

MAX_CONNECTIONS = 200
STOP_S = 3


class ListenAddress(NamedTuple):
    host: str
    port: int  # 0: any free one

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"{host_text(self.host)}:{self.port}"


def listen_address(text: str) -> ListenAddress:
    """HOST:PORT, [IPv6]:PORT or PORT. ValueError for anything else."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not port.isdecimal() or int(port) > 65_535:
        raise ValueError(f"expected HOST:PORT, not {text!r}")
    return ListenAddress(host or "127.0.0.1", int(port))


class TlsFiles(NamedTuple):
    certificate: Path
    key: Path


def bound_socket(address: ListenAddress) -> socket.socket:
    """Bound and listening before anything is printed: the printed address works at once. A Failure if it is in use."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        sock.listen(MAX_CONNECTIONS)
    except OSError as error:
        sock.close()
        raise Failure(f"cannot listen on {address}: {error.strerror}") from None
    return sock


def serve(console: Console, sock: socket.socket, tls: TlsFiles | None) -> None:
    """Serve until SIGINT or SIGTERM, or until the process that started this one has ended."""
    config = uvicorn.Config(
        application(console),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=STOP_S,
        ssl_certfile=None if tls is None else str(tls.certificate),
        ssl_keyfile=None if tls is None else str(tls.key),
    )
    server = uvicorn.Server(config)

    async def run() -> None:
        if (pipe := parent_pipe(os.environ)) is not None:
            asyncio.get_running_loop().add_reader(pipe, setattr, server, "should_exit", True)
        await server.serve(sockets=[sock])

    try:
        with LagSampler(console):
            asyncio.run(run())
    except KeyboardInterrupt:
        pass  # uvicorn raises the signal again after a clean end
    finally:
        console.pool.close()
        sock.close()

"""The loopback, with listeners whose accept fails when a test says so."""

import os
from collections.abc import Callable

from leadline.runtime.network import ListeningSocket, Socket, TcpNetwork


class FailingListener:
    """A listening socket whose accept fails with `error`, while that is set."""

    def __init__(self, sock: ListeningSocket) -> None:
        self._sock = sock
        self.error = 0
        self.accepts = 0  # how often it was called

    @property
    def address(self) -> tuple[str, int]:
        return self._sock.address

    def accept_connection(self) -> tuple[Socket, str, int]:
        self.accepts += 1
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return self._sock.accept_connection()

    def on_readable(self, call: Callable[[], None] | None, /) -> None:
        self._sock.on_readable(call)

    def close(self) -> None:
        self._sock.close()


class FailingNetwork(TcpNetwork):
    """The loopback, with a listener that can fail."""

    listener: FailingListener

    def __init__(self, kind: type[FailingListener] = FailingListener) -> None:
        self._kind = kind

    def listen(self, host: str, port: int, backlog: int) -> ListeningSocket:
        self.listener = self._kind(super().listen(host, port, backlog))
        return self.listener

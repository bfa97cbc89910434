"""What a process tells the one that started it, by the protocol of sd_notify(3): READY=1, STOPPING=1, STATUS=...

Format: one datagram per notice, lines of KEY=VALUE, to the socket in the environment variable NOTIFY_SOCKET. Its value
is a path, or a name after @ that has no file. systemd reads such a socket, and so does a supervisor of several brokers:
the kernel says which process sent a notice.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator, Mapping

NOTIFY_SOCKET = "NOTIFY_SOCKET"
MAX_NOTICE_BYTES = 4096
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, user, group


class NotifySender:
    """Sends notices. Without NOTIFY_SOCKET, or when nobody reads any more, nothing happens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get(NOTIFY_SOCKET, "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name

    def notify(self, *lines: str) -> None:
        if not self._address:
            return
        data = "\n".join(line.replace("\n", " ") for line in lines).encode()[:MAX_NOTICE_BYTES]
        flags = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, flags) as sender:
            sender.sendto(data, self._address)


class NotifyReceiver:
    """A socket without a file. `fileno` is readable when a notice has arrived."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(f"\0leadline/{os.getpid()}/{os.urandom(8).hex()}")

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def name(self) -> str:
        """The value of NOTIFY_SOCKET."""
        address: bytes = self._socket.getsockname()
        return f"@{address[1:].decode()}"

    def close(self) -> None:
        self._socket.close()

    def notices(self) -> Iterator[tuple[int, dict[str, str]]]:
        """All that have arrived: the process that sent each, and its lines."""
        while True:
            try:
                data, control, *_ = self._socket.recvmsg(MAX_NOTICE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                return
            for level, kind, value in control:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    pid, _, _ = _CREDENTIALS.unpack(value)
                    pairs = (line.partition("=") for line in data.decode(errors="replace").splitlines())
                    yield pid, {key: text for key, _, text in pairs}

"""Notices of a process to the one that started it, by the protocol of sd_notify(3): READY=1, STOPPING=1, STATUS=...

Format: one datagram per notice, lines of KEY=VALUE, to the socket in the environment variable NOTIFY_SOCKET. Its value
is a path, or a name after @ that has no file. systemd reads such a socket, and so does a supervisor of several brokers:
the kernel says which process sent a notice. Only Linux has such names, and names the sender. Elsewhere the socket of a
supervisor is a file in a folder that only its user may enter, and the sender names itself in a line MAINPID=.
"""

import contextlib
import os
import socket
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping

NOTIFY_SOCKET = "NOTIFY_SOCKET"
MAX_NOTICE_BYTES = 4096
SENDER = "MAINPID"
_CREDENTIALS = struct.Struct("=iII")  # struct ucred: pid, user, group
_PASS_CREDENTIALS: int | None = getattr(socket, "SO_PASSCRED", None)  # None: the kernel does not report the sender


class NotifySender:
    """Sends notices. Without NOTIFY_SOCKET, or without a reader, nothing happens."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        name = environment.get(NOTIFY_SOCKET, "")
        self._address = f"\0{name[1:]}" if name.startswith("@") else name

    def notify(self, *lines: str) -> None:
        if not self._address:
            return
        if _PASS_CREDENTIALS is None:
            lines = (f"{SENDER}={os.getpid()}", *lines)
        data = "\n".join(line.replace("\n", " ") for line in lines).encode()[:MAX_NOTICE_BYTES]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(data, self._address)


class NotifyReceiver:
    """A socket, without a file where the system has such. `fileno` is readable when a notice has arrived."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        if _PASS_CREDENTIALS is None:
            self._folder = tempfile.TemporaryDirectory(prefix="leadline-")  # mode 0700
            self._socket.bind(os.path.join(self._folder.name, "notify"))
        else:
            self._socket.setsockopt(socket.SOL_SOCKET, _PASS_CREDENTIALS, 1)
            self._socket.bind(f"\0leadline/{os.getpid()}/{os.urandom(8).hex()}")

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def name(self) -> str:
        """The value of NOTIFY_SOCKET."""
        address: bytes | str = self._socket.getsockname()
        return address if isinstance(address, str) else f"@{address[1:].decode()}"

    def close(self) -> None:
        self._socket.close()
        if self._folder is not None:
            self._folder.cleanup()

    def notices(self) -> Iterator[tuple[int, dict[str, str]]]:
        """All that have arrived: the process that sent each, and its lines."""
        while True:
            try:
                data, control, *_ = self._socket.recvmsg(MAX_NOTICE_BYTES, socket.CMSG_SPACE(_CREDENTIALS.size))
            except BlockingIOError:
                return
            pairs = (line.partition("=") for line in data.decode(errors="replace").splitlines())
            notice = {key: text for key, _, text in pairs}
            if (pid := _sender_of(control, notice)) is not None:
                yield pid, notice


def _sender_of(control: Iterable[tuple[int, int, bytes]], notice: dict[str, str]) -> int | None:
    """The process that sent a notice. None: it is unknown."""
    if _PASS_CREDENTIALS is None:
        text = notice.pop(SENDER, "")
        return int(text) if text.isdecimal() else None
    for level, kind, value in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack(value)[0]
            return pid
    return None

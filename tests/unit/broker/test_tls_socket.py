"""TLS over a socket: a peer with Python's own TLS on the other end of a connection."""

import asyncio
import os
import random
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from leadline.broker.tls_socket import FIRST_BYTES, MORE_BYTES, SLICE_BYTES, TlsBuffers, TlsFailed, TlsSocket
from leadline.runtime.network import MSG_MORE, TcpSocket
from leadline.runtime.ports import OsFiles
from leadline.runtime.step_scheduler import StepScheduler
from leadline.runtime.worker_threads import WorkerThreads
from tests.support.certificates import client_context, server_context
from tests.support.waiting import eventually

T = TypeVar("T")
PATIENCE_S = 60
Peer = Callable[[ssl.SSLSocket], object]
Server = Callable[[TlsSocket], Awaitable[object]]


def run(tmp_path: Path, peer: Peer, server: Server, client: str | None = None, **context: ssl.VerifyMode) -> None:
    """The peer runs in a thread, blocking; the server on a loop."""
    ours, theirs = socket.socketpair()
    failures: list[BaseException] = []
    server_side, client_side = server_context(tmp_path, **context), client_context(tmp_path, client)

    def talk() -> None:
        try:
            theirs.settimeout(PATIENCE_S)
            with client_side.wrap_socket(theirs, server_hostname="localhost") as tls:
                peer(tls)
        except BaseException as error:  # noqa: BLE001  shown by the test
            failures.append(error)

    async def main() -> None:
        sock = TcpSocket(ours.family, ours.type, ours.proto, ours.detach())
        sock.setblocking(False)
        handshakes = StepScheduler(asyncio.get_running_loop())
        tls = TlsSocket(sock, server_side, TlsBuffers(), handshakes, WorkerThreads(1, "handshake"), OsFiles.read_into)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await server(tls)
        finally:
            tls.on_readable(None)
            tls.close()

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        asyncio.run(main())
    finally:
        thread.join(PATIENCE_S)
    if failures:
        raise failures[0]


async def received(tls: TlsSocket, count: int, room: int = 100_000) -> bytes:
    """Reads this many bytes, whenever the socket is readable; fewer if the peer closes before."""
    data, buffer, ready = bytearray(), bytearray(room), asyncio.Event()
    tls.on_readable(ready.set)
    while len(data) < count:
        await ready.wait()
        ready.clear()
        try:
            taken = tls.recv_into(memoryview(buffer)[: count - len(data)])
        except BlockingIOError:
            continue
        if not taken:
            break
        data += buffer[:taken]
        ready.set() if taken == room else None
    tls.on_readable(None)
    return bytes(data)


async def sent(tls: TlsSocket, send: Callable[[int], int], count: int) -> None:
    done, room = 0, asyncio.Event()
    while done < count:
        try:
            done += send(done)
        except BlockingIOError:
            room.clear()
            tls.on_writable(room.set)
            await room.wait()
            tls.on_writable(None)


def read_exactly(tls: ssl.SSLSocket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = tls.recv(count - len(data))
        if not chunk:
            break
        data += chunk
    return bytes(data)


def test_bytes_arrive_both_ways_in_order(tmp_path: Path) -> None:
    request, reply = random.Random(1).randbytes(3_000_000), random.Random(2).randbytes(5_000_000)

    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(request)
        assert read_exactly(tls, len(reply)) == reply

    async def server(tls: TlsSocket) -> None:
        assert await received(tls, len(request)) == request
        await sent(tls, lambda done: tls.send(memoryview(reply)[done:]), len(reply))
        assert await received(tls, 1) == b""  # the peer has read everything and said goodbye

    run(tmp_path, peer, server)


def test_a_file_is_sent_in_slices(tmp_path: Path) -> None:
    content = random.Random(3).randbytes(3 * SLICE_BYTES + 12_345)
    path = tmp_path / "file"
    path.write_bytes(content)

    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"go")
        assert read_exactly(tls, len(content) - 100) == content[100:]

    async def server(tls: TlsSocket) -> None:
        await received(tls, 2)
        fd = os.open(path, os.O_RDONLY)
        try:
            await sent(tls, lambda at: tls.send_file(fd, 100 + at, len(content) - 100 - at), len(content) - 100)
            await sent(tls, lambda _: 1 + tls.send_file(fd, len(content), 10), 1)  # nothing is left of the file
        finally:
            os.close(fd)

    run(tmp_path, peer, server)


def test_small_pieces_leave_together(tmp_path: Path) -> None:
    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"go")
        assert read_exactly(tls, 9) == b"onetwosix"

    async def server(tls: TlsSocket) -> None:
        await received(tls, 2)
        assert tls.sendmsg([b"one", memoryview(b"two"), bytearray(b"six")], (), 0) == 9

    run(tmp_path, peer, server)


def test_a_header_leaves_with_the_records_behind_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first slice is a small one: the peer decrypts it while the next one is encrypted."""
    records, sizes = random.Random(4).randbytes(FIRST_BYTES + 5000), list[int]()
    path = tmp_path / "file"
    path.write_bytes(records)
    send = TcpSocket.send

    def noting_send(sock: TcpSocket, data: memoryview, flags: int = 0) -> int:
        sizes.append(len(data))
        return send(sock, data, flags)

    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"go")
        assert read_exactly(tls, 6 + len(records)) == b"header" + records

    async def server(tls: TlsSocket) -> None:
        await received(tls, 2)
        monkeypatch.setattr(TcpSocket, "send", noting_send)
        fd = os.open(path, os.O_RDONLY)
        try:
            assert tls.send(b"header", MSG_MORE) == 6
            assert sizes == []
            await sent(tls, lambda at: tls.send_file(fd, at, len(records) - at), len(records))
        finally:
            os.close(fd)
        assert sizes[0] > FIRST_BYTES
        assert sum(sizes) > len(records)

    run(tmp_path, peer, server)
    assert len(sizes) >= 2


@pytest.mark.parametrize("flags", [0, MSG_MORE])
def test_what_waits_for_more_is_sent_at_the_end_or_when_it_is_much(flags: int, tmp_path: Path) -> None:
    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"go")
        assert read_exactly(tls, MORE_BYTES) == bytes(MORE_BYTES)
        tls.sendall(b"go on")
        assert read_exactly(tls, 10) == b"end"

    async def server(tls: TlsSocket) -> None:
        await received(tls, 2)
        tls.send(bytes(MORE_BYTES), flags)
        await received(tls, 5)
        tls.send(b"end", flags)

    run(tmp_path, peer, server)


def test_a_reader_that_takes_nothing_is_called_again_until_it_does(tmp_path: Path) -> None:
    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"0123456789")
        tls.recv(1)

    async def server(tls: TlsSocket) -> None:
        assert await received(tls, 3, room=3) == b"012"
        calls = 0
        done = asyncio.Event()

        def reader() -> None:
            nonlocal calls
            calls += 1
            if calls == 5:
                assert tls.recv_into(bytearray(100)) == 7
                done.set()

        tls.on_readable(reader)
        await done.wait()
        for _ in range(5):
            await asyncio.sleep(0)
        assert calls == 5
        tls.send(b"!")

    run(tmp_path, peer, server)


def test_what_was_received_and_not_taken_calls_the_reader_again(tmp_path: Path) -> None:
    """The socket itself is not readable any more: all its bytes have been decrypted."""

    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"0123456789")
        tls.recv(1)

    async def server(tls: TlsSocket) -> None:
        assert await received(tls, 10, room=3) == b"0123456789"
        tls.send(b"!")

    run(tmp_path, peer, server)


@pytest.mark.parametrize("name", ["alice", None])
def test_the_certificate_of_the_peer_is_known_once_it_is_open(tmp_path: Path, name: str | None) -> None:
    def peer(tls: ssl.SSLSocket) -> None:
        tls.sendall(b"hello")
        tls.recv(1)

    async def server(tls: TlsSocket) -> None:
        assert not tls.is_open
        await received(tls, 5)
        assert tls.is_open
        certificate = tls.peer_certificate
        assert (certificate is not None and b"alice" in certificate) is (name is not None)
        tls.send(b"!")

    run(tmp_path, peer, server, client=name, verify=ssl.CERT_OPTIONAL)


def test_a_peer_without_a_certificate_is_refused_where_one_is_required(tmp_path: Path) -> None:
    def peer(tls: ssl.SSLSocket) -> None:
        with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
            tls.recv(1)

    async def server(tls: TlsSocket) -> None:
        with pytest.raises(TlsFailed, match="peer did not return a certificate"):
            await received(tls, 1)

    run(tmp_path, peer, server, verify=ssl.CERT_REQUIRED)


def server_sockets(
    count: int, tmp_path: Path, threads: WorkerThreads | None = None
) -> list[tuple[TlsSocket, socket.socket]]:
    """With their peers."""
    context, handshakes = server_context(tmp_path), StepScheduler(asyncio.get_running_loop())
    threads = threads or WorkerThreads(1, "handshake")
    pairs = []
    for _ in range(count):
        ours, theirs = socket.socketpair()
        sock = TcpSocket(ours.family, ours.type, ours.proto, ours.detach())
        sock.setblocking(False)
        theirs.setblocking(False)
        pairs.append((TlsSocket(sock, context, TlsBuffers(), handshakes, threads, OsFiles.read_into), theirs))
    return pairs


def test_a_peer_that_speaks_no_tls_is_refused_at_its_first_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        ((tls, theirs),) = server_sockets(1, tmp_path)
        theirs.sendall(bytes.fromhex("0000001a 0012 0003 00000001"))  # a request of Kafka's
        with pytest.raises(TlsFailed, match="wrong version number"):
            await received(tls, 1)
        tls.close()
        theirs.close()

    asyncio.run(main())


def client_hello(tmp_path: Path) -> bytes:
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client_context(tmp_path).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


class CountedSteps(WorkerThreads):
    """Counts the steps that it was given."""

    def __init__(self) -> None:
        super().__init__(1, "handshake")
        self.count = 0

    async def run(self, job: Callable[[], T]) -> T:
        self.count += 1
        return await super().run(job)


def test_an_iteration_of_the_loop_begins_one_step_of_a_handshake(tmp_path: Path) -> None:
    calls: list[TlsSocket] = []

    def read(tls: TlsSocket) -> None:
        calls.append(tls)
        with pytest.raises(BlockingIOError):
            tls.recv_into(bytearray(100))

    async def main() -> None:
        threads = CountedSteps()
        pairs = server_sockets(20, tmp_path, threads)
        for tls, theirs in pairs:
            theirs.sendall(client_hello(tmp_path))
            tls.on_readable(partial(read, tls))
        counts = [0]
        async with asyncio.timeout(PATIENCE_S):
            while counts[-1] < len(pairs):
                await asyncio.sleep(0)
                counts.append(threads.count)
            await eventually(lambda: len(calls) == 3 * len(pairs))  # for bytes, for its turn, for the end of its step
        assert max(after - before for before, after in pairwise(counts)) == 1
        assert max(Counter(calls).values()) == 3, "a socket that waits for its turn is called"
        for tls, theirs in pairs:
            tls.close()
            theirs.close()

    asyncio.run(main())


def test_a_socket_that_is_closed_while_it_waits_for_its_turn_is_left_alone(tmp_path: Path) -> None:
    async def main() -> None:
        ((tls, theirs), (other, its_peer)) = server_sockets(2, tmp_path)
        for peer in (theirs, its_peer):
            peer.sendall(client_hello(tmp_path))
        for sock in (tls, other):
            sock.on_readable(lambda: pytest.fail("it was closed"))
            with pytest.raises(BlockingIOError):
                sock.recv_into(bytearray(100))
            sock.on_readable(None)
            sock.close()
        for _ in range(10):
            await asyncio.sleep(0)
        theirs.close()
        its_peer.close()

    asyncio.run(main())


def test_a_socket_that_is_closed_during_a_step_of_its_handshake_is_left_alone(tmp_path: Path) -> None:
    """OpenSSL does not bear two threads at once."""

    async def main() -> None:
        may_go_on, began = threading.Event(), threading.Event()

        class HeldSteps(WorkerThreads):
            async def run(self, job: Callable[[], T]) -> T:
                def held() -> T:
                    began.set()
                    may_go_on.wait(PATIENCE_S)
                    return job()

                return await super().run(held)

        calls: list[None] = []
        ((tls, theirs),) = server_sockets(1, tmp_path, HeldSteps(1, "handshake"))

        def read() -> None:
            calls.append(None)
            with pytest.raises(BlockingIOError):
                tls.recv_into(bytearray(100))

        theirs.sendall(client_hello(tmp_path))
        tls.on_readable(read)
        await eventually(began.is_set)
        with pytest.raises(BlockingIOError):
            tls.send(b"early")
        before = len(calls)
        tls.close()
        may_go_on.set()
        await eventually(lambda: not tls._is_in_thread)
        assert len(calls) == before
        theirs.setblocking(True)
        assert theirs.recv(1) == b""
        theirs.close()

    asyncio.run(main())

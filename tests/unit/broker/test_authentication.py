"""Who the peer of a connection is, before its first request is served: over the loopback, with a server that echoes."""

import asyncio
import dataclasses
import gc
import logging
import socket
import ssl
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import ref

import pytest

from leadline.broker import authentication, closing_sockets
from leadline.broker.authentication import ListenerSecurity
from leadline.broker.connection import Connection
from leadline.broker.connection_quotas import ConnectionLimits
from leadline.broker.net import Net
from leadline.broker.reply_queue import Reply
from leadline.config.listeners import SecurityProtocol
from leadline.runtime.event_loop import EventLoop
from leadline.runtime.ports import Time
from leadline.security.gssapi import GssapiWork
from leadline.security.plain import PLAIN, PlainExchange
from leadline.security.principal import ANONYMOUS, Principal
from leadline.security.sasl_authenticator import SaslListener
from leadline.security.sasl_mechanisms import Authenticated, EnabledMechanisms, Failed, Outcome
from leadline.security.secret import Secret
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from leadline.wire.primitives import BUFFERS
from tests.support.ahead_clock import AheadClock
from tests.support.brokers import joined
from tests.support.certificates import client_context, server_context
from tests.support.net import net_of
from tests.support.waiting import eventually

SECONDS = 60
USERS = {"alice": Secret.of("wonderland")}


def echo(connection: Connection, frame: memoryview) -> Reply:
    """The principal and the bytes of a request."""
    data = str(connection.client.principal).encode() + b" " + bytes(frame)
    return len(data).to_bytes(4) + data


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(len(data).to_bytes(4) + data)

    async def receive(self) -> bytes | None:
        """A frame; None if the connection is closed."""
        try:
            size = int.from_bytes(await asyncio.wait_for(self.reader.readexactly(4), SECONDS))
            return await asyncio.wait_for(self.reader.readexactly(size), SECONDS)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    async def ask(self, data: bytes) -> bytes | None:
        self.send(data)
        return await self.receive()

    def request(self, request: Message, version: int) -> None:
        pieces = request_frame(request, version, 7, "test")
        self.writer.write(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS)))

    async def log_in(self, password: str = "wonderland") -> SaslAuthenticateResponse | None:
        self.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
        frame = await self.receive()
        assert frame is not None
        assert parse_response(SaslHandshakeResponse, frame, 1)[1].error_code == 0
        self.request(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{password}".encode()), 2)
        frame = await self.receive()
        return None if frame is None else parse_response(SaslAuthenticateResponse, frame, 2)[1]


def sasl(max_reauth_ms: int = 0, **changes: float) -> ListenerSecurity:
    listener = SaslListener(
        EnabledMechanisms({PLAIN: lambda: PlainExchange(USERS.get)}),
        {PLAIN: max_reauth_ms},
        lambda request, version: ApiVersionsResponse(),
        lambda request, version, code: None,
    )
    return ListenerSecurity(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=listener, **changes)  # type: ignore[arg-type]


@asynccontextmanager
async def server(
    security: ListenerSecurity, connect: ssl.SSLContext | None = None, clock: Time | None = None
) -> AsyncIterator[tuple[Net, Callable[[], Awaitable[Client]]]]:
    net = net_of(ConnectionLimits(connections_max_idle_ms=600_000), {"SECURE": security}, clock=clock)
    _, port = net.listen("SECURE", "127.0.0.1", 0)
    net.start(echo)
    clients: list[Client] = []

    async def client() -> Client:
        name = "localhost" if connect else None
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", port, ssl=connect, server_hostname=name)))
        return clients[-1]

    try:
        yield net, client
    finally:
        for connected in clients:
            connected.writer.close()
        await net.close()


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    with asyncio.Runner(loop_factory=EventLoop) as runner:
        runner.run(main())


# SASL


class Blocking:
    """A mechanism that takes its time: it notes in which threads it works, and waits for `released`."""

    def __init__(self, released: threading.Event) -> None:
        self.released, self.threads = released, list[int]()

    def evaluate(self, response: bytes, now_ms: int) -> GssapiWork[Outcome]:
        return GssapiWork(lambda: self._outcome(response))

    def _outcome(self, response: bytes) -> Outcome:
        self.threads.append(threading.get_ident())
        assert self.released.wait(SECONDS)
        return Failed(reason="no") if b"wrong" in response else Authenticated(Principal("User", "alice"))


def blocking() -> tuple[ListenerSecurity, Blocking]:
    mechanism = Blocking(threading.Event())
    security = sasl(failure_delay_s=0.0)
    assert security.sasl is not None
    listener = dataclasses.replace(security.sasl, mechanisms=EnabledMechanisms({PLAIN: lambda: mechanism}))
    return dataclasses.replace(security, sasl=listener), mechanism


def test_a_login_that_blocks_holds_up_nobody_else_and_what_comes_after_it_waits() -> None:
    async def test() -> None:
        security, mechanism = blocking()
        async with server(security) as (_, client):
            peer, other = await client(), await client()
            login = asyncio.create_task(peer.log_in())
            await eventually(lambda: mechanism.threads)
            assert mechanism.threads != [threading.get_ident()]
            peer.send(b"hello")
            other.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
            assert await other.receive() is not None
            assert not login.done()
            mechanism.released.set()
            response = await login
            assert response is not None
            assert response.error_code == 0
            assert await peer.receive() == b"User:alice hello"

    run(test)


def test_a_login_that_blocks_may_fail_and_its_peer_may_leave_meanwhile() -> None:
    async def test() -> None:
        security, mechanism = blocking()
        async with server(security) as (net, client):
            peer, leaver = await client(), await client()
            login, left = asyncio.create_task(peer.log_in("wrong")), asyncio.create_task(leaver.log_in())
            await eventually(lambda: len(mechanism.threads) == 2)
            leaver.writer.transport.abort()
            assert await left is None
            mechanism.released.set()
            response = await login
            assert response is not None
            assert response.error_code == 58
            await eventually(lambda: not net.connections)

    run(test)


def test_a_peer_that_logged_in_is_served_under_its_name() -> None:
    async def test() -> None:
        async with server(sasl()) as (net, client):
            peer = await client()
            response = await peer.log_in()
            assert response is not None
            assert (response.error_code, response.session_lifetime_ms) == (0, 0)
            assert await peer.ask(b"hello") == b"User:alice hello"
            assert await peer.ask(b"x" * 1_000_000) == b"User:alice " + b"x" * 1_000_000
            assert all(connection.is_logged_in for connection in net.connections)

    run(test)


def test_requests_sent_with_the_last_message_of_a_login_are_served_after_it() -> None:
    async def test() -> None:
        async with server(sasl()) as (_, client):
            peer = await client()
            peer.request(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
            peer.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
            peer.request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland"), 2)
            peer.send(b"first")
            peer.send(b"second")
            for _ in range(3):
                assert await peer.receive() is not None
            assert [await peer.receive(), await peer.receive()] == [b"User:alice first", b"User:alice second"]

    run(test)


def test_nothing_is_served_before_the_login(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with server(sasl(failure_delay_s=0.01)) as (_, client):
            peer = await client()
            assert await peer.ask(bytes.fromhex("0003 0001 00000007 0000 ffffffff")) is None  # Metadata

    run(test)
    assert "its login failed: unexpected Metadata before SaslHandshake" in caplog.text


def test_a_login_that_fails_is_answered_after_the_delay_and_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with server(sasl(failure_delay_s=0.5)) as (_, client):
            peer, started = await client(), time.monotonic()
            response = await peer.log_in("rabbit")
            assert time.monotonic() - started >= 0.5
            assert response is not None
            assert (response.error_code, response.error_message) == (
                58,
                "Authentication failed: Invalid username or password",
            )
            assert await peer.receive() is None

    run(test)
    assert "rabbit" not in caplog.text
    assert "wonderland" not in caplog.text


async def refusal_of(net: Net, peer: Client) -> SaslAuthenticateResponse:
    """A peer that writes on, before and after its login is refused, and reads then."""
    sock = peer.writer.get_extra_info("socket")
    peer.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
    assert await peer.receive() is not None
    peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
    peer.request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0rabbit"), 2)
    peer.send(b"sent with it" * 1000)
    await eventually(lambda: not net.connections)
    peer.send(b"sent later")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
    peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
    frame = await peer.receive()
    assert frame is not None
    assert await asyncio.wait_for(peer.reader.read(), SECONDS) == b"", "the end, not a reset"
    return parse_response(SaslAuthenticateResponse, frame, 2)[1]


@pytest.mark.parametrize("tls", [False, True])
def test_a_peer_that_writes_on_reads_why_its_login_failed(tls: bool, tmp_path: Path) -> None:
    async def test() -> None:
        security = sasl(failure_delay_s=0.01)
        if tls:
            security.protocol, security.tls = SecurityProtocol.SASL_SSL, server_context(tmp_path)
        async with server(security, client_context(tmp_path) if tls else None) as (net, client):
            peer = await client()
            response = await refusal_of(net, peer)
            assert response.error_message == "Authentication failed: Invalid username or password"
            peer.writer.close()
            await eventually(lambda: not net.lingering)

    run(test)


def test_a_peer_that_writes_on_reads_the_alert_of_its_handshake(tmp_path: Path) -> None:
    """In TLS 1.3 a client is done with the handshake before the broker has looked at its certificate."""

    def talk(port: int, is_refused: threading.Event) -> None:
        sock = socket.create_connection(("127.0.0.1", port), SECONDS)
        with client_context(tmp_path).wrap_socket(sock, server_hostname="localhost") as peer:
            peer.send(b"a request" * 100)
            assert is_refused.wait(SECONDS)
            peer.send(b"another")
            peer.send(b"and another")
            with pytest.raises(ssl.SSLError, match=r"(?i)certificate.required"):
                peer.recv(1)

    async def test() -> None:
        tls, is_refused = server_context(tmp_path, verify=ssl.CERT_REQUIRED), threading.Event()
        async with server(ListenerSecurity(protocol=SecurityProtocol.SSL, tls=tls)) as (net, client):
            port = (await client()).writer.get_extra_info("peername")[1]
            talking = asyncio.create_task(asyncio.to_thread(talk, port, is_refused))
            try:
                await eventually(lambda: len(net.lingering) == 1)
            finally:
                is_refused.set()
                await talking

    run(test)


def test_lingering_connections_are_bounded_in_number_time_and_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with server(sasl(failure_delay_s=0.0)) as (net, client):
            peers = [await client() for _ in range(4)]
            for number, peer in enumerate(peers):
                peer.send(b"no request")
                await eventually(lambda number=number: len(net.connections) == 3 - number)  # type: ignore[misc]
            assert len(net.lingering) == 3
            monkeypatch.setattr(closing_sockets, "LINGER_SECONDS", 0.0)
            other = await client()
            other.send(b"no request")
            await eventually(lambda: not net.connections)
            await eventually(lambda: len(net.lingering) == 2)
            peers[-1].writer.write(bytes(closing_sockets.LINGER_BYTES))
            await eventually(lambda: len(net.lingering) == 1)

    monkeypatch.setattr(closing_sockets, "MAX_LINGERING", 3)
    monkeypatch.setattr(closing_sockets, "LINGER_SECONDS", 3600.0)
    run(test)


def test_a_peer_that_leaves_before_its_refusal_is_sent_causes_no_error(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with server(sasl(failure_delay_s=0.2)) as (net, client):
            peer = await client()
            peer.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
            assert await peer.receive() is not None
            peer.request(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wrong"), 2)
            peer.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            peer.writer.transport.abort()
            await eventually(lambda: not net.connections)
            gc.collect()
        assert not [record for record in caplog.records if record.levelno >= logging.ERROR]

    run(test)


def test_an_expired_login_serves_no_request_but_may_be_renewed() -> None:
    async def test() -> None:
        clock = AheadClock()
        async with server(sasl(max_reauth_ms=600_000), clock=clock) as (_, client):
            renewing, idle = await client(), await client()
            response = await renewing.log_in()
            assert response is not None
            assert response.session_lifetime_ms == 600_000
            await idle.log_in()
            assert await renewing.ask(b"one") == b"User:alice one"
            clock.ahead_ms = 600_001
            await renewing.log_in()
            assert await renewing.ask(b"two") == b"User:alice two"
            assert await idle.ask(b"two") is None

    run(test)


def test_a_large_announcement_before_the_login_fails_it_after_the_delay(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with server(sasl(max_receive_bytes=1000, failure_delay_s=0.2)) as (net, client):
            peer, began_s = await client(), time.monotonic()
            peer.writer.write((1001).to_bytes(4))
            assert await peer.receive() is None
            assert time.monotonic() - began_s >= 0.2
            await eventually(lambda: net.logins.failed["SECURE"] == 1)

    run(test)
    assert "a request of 1001 bytes; sasl.server.max.receive.size=1000" in caplog.text


@pytest.mark.parametrize("size", [-1, 1001])
def test_an_announcement_behind_a_login_that_fails_does_not_shorten_the_delay(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Who guesses passwords would know at once that one is wrong."""

    async def test() -> None:
        async with server(sasl(max_receive_bytes=1000, failure_delay_s=0.3)) as (_, client):
            peer = await client()
            peer.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
            assert await peer.receive() is not None
            began_s = time.monotonic()
            login = joined(request_frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0rabbit"), 2, 7, "test"))
            peer.writer.write(login + size.to_bytes(4, signed=True))
            frame = await peer.receive()
            assert frame is not None
            assert time.monotonic() - began_s >= 0.3
            assert parse_response(SaslAuthenticateResponse, frame, 2)[1].error_code == 58
            assert await peer.receive() is None

    run(test)
    assert "its login failed: Authentication failed: Invalid username or password" in caplog.text
    assert "Error" not in caplog.text


def test_an_announcement_behind_a_login_that_blocks_waits_for_its_end(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        security, mechanism = blocking()
        async with server(security) as (net, client):
            peer = await client()
            peer.request(SaslHandshakeRequest(mechanism=PLAIN), 1)
            assert await peer.receive() is not None
            login = joined(request_frame(SaslAuthenticateRequest(auth_bytes=b"right"), 2, 7, "test"))
            peer.writer.write(login + (-1).to_bytes(4, signed=True))
            await eventually(lambda: len(mechanism.threads) == 1)
            mechanism.released.set()
            frame = await peer.receive()
            assert frame is not None
            assert parse_response(SaslAuthenticateResponse, frame, 2)[1].error_code == 0
            assert await peer.receive() is None
            assert net.logins.successful["SECURE"] == 1

    run(test)
    assert "a request of -1 bytes" in caplog.text
    assert "Error" not in caplog.text


def test_each_listener_has_a_limit_of_its_own_for_messages_of_a_login() -> None:
    async def test() -> None:
        listeners = {"SMALL": sasl(max_receive_bytes=1000), "LARGE": sasl(max_receive_bytes=9000)}
        net = net_of(securities=listeners)
        ports = {name: net.listen(name, "127.0.0.1", 0)[1] for name in listeners}
        net.start(echo)
        small, large = [Client(*await asyncio.open_connection("127.0.0.1", ports[name])) for name in listeners]
        try:
            await eventually(lambda: len(net.connections) == 2)
            small.writer.write((1001).to_bytes(4))
            large.writer.write((1001).to_bytes(4))
            assert await small.receive() is None
            assert [connection.listener for connection in net.connections] == ["LARGE"]
        finally:
            small.writer.close()
            large.writer.close()
            await net.close()

    run(test)


def test_of_too_many_logins_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with server(sasl()) as (net, client):
            oldest, second = await client(), await client()
            await eventually(lambda: len(net.connections) == 2)
            await second.log_in()
            third, fourth = await client(), await client()
            assert await oldest.receive() is None
            await third.log_in()
            await fourth.log_in()
            assert await second.ask(b"still here") == b"User:alice still here"

    monkeypatch.setattr(authentication, "MAX_LOGINS", 2)
    run(test)


def test_a_login_that_takes_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with server(sasl()) as (net, client):
            slow, quick = await client(), await client()
            await quick.log_in()
            net.logins.close_late()
            assert await slow.receive() is None
            assert await quick.ask(b"hello") == b"User:alice hello"

    monkeypatch.setattr(authentication, "LOGIN_SECONDS", 0.0)
    run(test)


def test_what_strangers_send_is_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with server(sasl()) as (_, client):
            strangers = [await client() for _ in range(5)]
            for stranger in strangers:
                stranger.writer.write((400_000).to_bytes(4) + bytes(3000))
            assert await strangers[-1].receive() is None
            other = await client()
            assert (await other.log_in()) is not None

    monkeypatch.setattr("leadline.broker.frame_memory.MAX_LOGIN_BYTES", 14_000)
    run(test)


@pytest.mark.parametrize("protocol", SecurityProtocol)
def test_a_closed_connection_leaves_nothing_to_the_garbage_collector(
    protocol: SecurityProtocol, tmp_path: Path
) -> None:
    """Strangers come by the thousand: what they leave would fill the memory, and a collection would stop the loop."""

    async def test() -> None:
        security = sasl() if protocol.sasl else ListenerSecurity()
        security.protocol, security.tls = protocol, server_context(tmp_path) if protocol.tls else None
        async with server(security, client_context(tmp_path) if protocol.tls else None) as (net, client):
            peer = await client()
            peer.writer.write((400_000).to_bytes(4) + bytes(100_000))
            await eventually(
                lambda: net.connections and all(connection._reader.partial for connection in net.connections)
            )
            (connection,) = net.connections
            gone = ref(connection)
            connection.close("by the test", quiet=True)
            del connection
            await asyncio.sleep(0)
            assert gone() is None

    gc.disable()
    try:
        run(test)
    finally:
        gc.enable()


# TLS


@pytest.mark.parametrize("name", ["alice", None])
def test_the_principal_of_a_peer_comes_from_its_certificate(tmp_path: Path, name: str | None) -> None:
    def principal_of(certificate: bytes | None) -> Principal:
        return ANONYMOUS if certificate is None else Principal("User", "alice" if b"alice" in certificate else "?")

    async def test() -> None:
        context = server_context(tmp_path, verify=ssl.CERT_OPTIONAL)
        security = ListenerSecurity(protocol=SecurityProtocol.SSL, tls=context, principal_of=principal_of)
        async with server(security, client_context(tmp_path, name)) as (_, client):
            peer = await client()
            principal = b"User:alice" if name else b"User:ANONYMOUS"
            assert await peer.ask(b"hello") == principal + b" hello"
            assert await peer.ask(b"x" * 3_000_000) == principal + b" " + b"x" * 3_000_000

    run(test)


def test_the_limit_of_a_login_is_for_sasl_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        security = ListenerSecurity(protocol=SecurityProtocol.SSL, tls=server_context(tmp_path), max_receive_bytes=1000)
        async with server(security, client_context(tmp_path)) as (net, client):
            peer, other = await client(), await client()
            assert await peer.ask(b"x" * 300_000) == b"User:ANONYMOUS " + b"x" * 300_000
            other.writer.write((net.limits.socket_request_max_bytes + 1).to_bytes(4))
            assert await other.receive() is None

    run(test)
    assert "a request of 104857601 bytes; socket.request.max.bytes=104857600" in caplog.text


def test_a_certificate_without_a_rule_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def principal_of(certificate: bytes | None) -> Principal:
        raise ValueError("no rule of ssl.principal.mapping.rules applies to CN=alice")

    async def test() -> None:
        security = ListenerSecurity(
            protocol=SecurityProtocol.SSL, tls=server_context(tmp_path), principal_of=principal_of
        )
        async with server(security, client_context(tmp_path)) as (_, client):
            assert await (await client()).ask(b"hello") is None

    run(test)
    assert "its certificate names no user: no rule of ssl.principal.mapping.rules applies" in caplog.text


def test_a_login_travels_over_tls(tmp_path: Path) -> None:
    async def test() -> None:
        security = sasl()
        security.protocol, security.tls = SecurityProtocol.SASL_SSL, server_context(tmp_path)
        async with server(security, client_context(tmp_path)) as (_, client):
            peer = await client()
            assert await peer.log_in() is not None
            assert await peer.ask(b"hello") == b"User:alice hello"

    run(test)


def test_a_handshake_that_takes_too_long_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        security = ListenerSecurity(protocol=SecurityProtocol.SSL, tls=server_context(tmp_path))
        async with server(security, client_context(tmp_path)) as (net, client):
            quick = await client()
            assert await quick.ask(b"hello") == b"User:ANONYMOUS hello"
            port = quick.writer.get_extra_info("peername")[1]
            slow = Client(*await asyncio.open_connection("127.0.0.1", port))
            slow.writer.write(b"\x16\x03\x01")  # the beginning of a hello
            await eventually(lambda: len(net.connections) == 2)
            net.logins.close_late()
            assert await slow.receive() is None
            assert await quick.ask(b"again") == b"User:ANONYMOUS again"
            slow.writer.close()

    monkeypatch.setattr(authentication, "LOGIN_SECONDS", 0.0)
    run(test)


def test_a_peer_that_speaks_no_tls_is_closed_and_others_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        security = ListenerSecurity(protocol=SecurityProtocol.SSL, tls=server_context(tmp_path))
        async with server(security, client_context(tmp_path)) as (_, client):
            peer = await client()
            port = peer.writer.get_extra_info("peername")[1]
            plain = Client(*await asyncio.open_connection("127.0.0.1", port))
            assert await plain.ask(b"\0\x12\0\3\0\0\0\1") is None
            plain.writer.close()
            assert await peer.ask(b"hello") == b"User:ANONYMOUS hello"

    run(test)

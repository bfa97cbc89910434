"""Connections to protected listeners of other brokers: TLS, logins, and logins again, against peers of all kinds."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from leadline.cluster.broker_client import EncodeRequest, PeerLocked, PeerLost, TcpBrokerClient, probe_outcome
from leadline.cluster.broker_login import PeerSecurity
from leadline.cluster.failure_detector import ProbeOutcome
from leadline.runtime.network import TcpNetwork
from leadline.security.sasl_authenticator import (
    SASL_HANDSHAKE,
    Admission,
    LoginState,
    SaslAuthenticator,
    SaslListener,
)
from leadline.security.secret import Secret
from leadline.wire.frames import SIZE, parse_response, request_bytes, request_head, response_frame
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse
from leadline.wire.primitives import BUFFERS
from tests.support.certificates import CertificateAuthority, client_context, server_context
from tests.support.sasl_listeners import MECHANISMS, PASSWORD, new_login, received, sasl_listener
from tests.support.waiting import eventually

PATIENCE_S = 120
WAIT_S = 0.05
SERVICES = {"127.0.0.1": "host", "localhost": "elsewhere"}  # names of hosts, as Kerberos has them


@dataclass
class Peer:
    """A broker that answers ApiVersions once a login is complete. The answer says how many requests it has served."""

    listener: SaslListener | None = None
    tls: ssl.SSLContext | None = None
    port: int = 0
    connections: int = 0
    logins: int = 0
    served: int = 0
    now_ms: int = 0  # each handshake comes a second after the one before: more often it would be refused
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        login = None if self.listener is None else SaslAuthenticator(self.listener)
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
                await self._receive(await reader.readexactly(size), login, writer)
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def _receive(self, frame: bytes, login: SaslAuthenticator | None, writer: asyncio.StreamWriter) -> None:
        head = request_head(frame)
        if login is not None and not self._is_served(head.api_key, login):
            step = received(login, frame, self.now_ms, self.now_ms)
            if step.failure is not None:
                writer.write(step.failure.response)
                raise ConnectionResetError
            self.logins += step.session is not None
            writer.write(step.send)
            return
        self.served += 1
        pieces = response_frame(ApiVersionsResponse(throttle_time_ms=self.served), 1, head.correlation_id)
        writer.write(b"".join(piece for piece in pieces if isinstance(piece, BUFFERS)))

    def _is_served(self, api_key: int, login: SaslAuthenticator) -> bool:
        if login.state is not LoginState.COMPLETE:
            return False
        self.now_ms += 1000 * (api_key == SASL_HANDSHAKE)
        return login.admit(api_key, self.now_ms) is Admission.SERVE


@asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[Peer]:
    server = await asyncio.start_server(peer.serve, "0.0.0.0", 0, ssl=peer.tls)
    peer.port = server.sockets[0].getsockname()[1]
    try:
        yield peer
    finally:
        server.close()
        for writer in peer.writers:
            writer.transport.abort()
        await asyncio.sleep(0)


def sasl(mechanism: str = "PLAIN", password: Secret = PASSWORD, share: float = 0.9) -> PeerSecurity:
    login = partial(new_login, mechanism, password)
    return PeerSecurity(listener="BROKERS", new_login=lambda host: login(SERVICES[host]), login_share=lambda: share)


def run(
    peer: Peer,
    security: PeerSecurity,
    scenario: Callable[[TcpBrokerClient], Awaitable[None]],
    host: str = "127.0.0.1",
    lost: Callable[[], None] = lambda: None,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(PATIENCE_S), listening(peer):
            channel = TcpBrokerClient((host, peer.port), "me", TcpNetwork(), lost, security=security)
            try:
                await scenario(channel)
            finally:
                channel.close()

    asyncio.run(main())


async def request_number(channel: TcpBrokerClient, timeout_s: float = PATIENCE_S) -> int:
    return (await channel.ask(ApiVersionsRequest(), ApiVersionsResponse, 1, timeout_s)).throttle_time_ms


# Logins


def test_a_ticket_is_for_the_host_of_the_peer() -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLocked, match="invalid credentials with SASL mechanism GSSAPI"):
            await request_number(channel)

    run(Peer(sasl_listener()), sasl("GSSAPI"), scenario, host="localhost")


def test_what_a_login_may_block_for_runs_in_threads() -> None:
    security, jobs = sasl("GSSAPI"), list[object]()

    async def in_thread(job: Callable[[], object]) -> object:
        jobs.append(job)
        return await asyncio.to_thread(job)

    async def scenario(channel: TcpBrokerClient) -> None:
        assert await request_number(channel) == 1
        assert len(jobs) == 3  # the ticket, the reply, the offer

    security.in_thread = in_thread
    run(Peer(sasl_listener()), security, scenario)


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_requests_are_sent_once_the_login_is_complete(mechanism: str, with_tls: bool, tmp_path: Path) -> None:
    peer, security = Peer(sasl_listener()), sasl(mechanism)
    if with_tls:
        peer.tls, security.tls = server_context(tmp_path), client_context(tmp_path)

    async def scenario(channel: TcpBrokerClient) -> None:
        assert sorted(await asyncio.gather(*(request_number(channel) for _ in range(5)))) == [1, 2, 3, 4, 5]
        assert (peer.connections, peer.logins) == (1, 1)

    run(peer, security, scenario)


def test_a_refused_login_is_reported_once_and_tried_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = Secret.of("wrong-secret")
    security = sasl("SCRAM-SHA-512", wrong)
    peer, losses = Peer(sasl_listener()), list[None]()

    async def scenario(channel: TcpBrokerClient) -> None:
        for _ in range(50):
            with pytest.raises(PeerLocked, match=r"the login over listener BROKERS failed: Authentication failed"):
                await request_number(channel)
        assert peer.connections < 10
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert f"127.0.0.1:{peer.port}: the login over listener BROKERS failed: " in warnings[0]
        assert "SCRAM-SHA-512" in warnings[0]
        security.new_login = sasl("SCRAM-SHA-512").new_login
        attempts = 0
        while not peer.served:
            attempts += 1
            try:
                await request_number(channel)
            except PeerLost:
                await asyncio.sleep(WAIT_S)
        assert attempts > 1
        assert f"127.0.0.1:{peer.port}: the login over listener BROKERS succeeds again" in caplog.text

    run(peer, security, scenario, lost=lambda: losses.append(None))
    assert not losses
    assert "wrong-secret" not in caplog.text
    assert "alice-secret" not in caplog.text


def test_a_peer_that_does_not_answer_the_login_has_a_time_limit() -> None:
    class SilentPeer(Peer):
        async def _receive(self, frame: bytes, login: SaslAuthenticator | None, writer: asyncio.StreamWriter) -> None:
            """Not a word."""

    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match=r"cannot be reached in 0\.1 s"):
            await request_number(channel, 0.1)

    run(SilentPeer(), sasl(), scenario)


def test_a_peer_that_is_not_known_yet_cannot_announce_much() -> None:
    class Large(Peer):
        async def _receive(self, frame: bytes, login: SaslAuthenticator | None, writer: asyncio.StreamWriter) -> None:
            writer.write(SIZE.pack(100_000_000))

    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match="sent an answer of 100000000 bytes"):
            await request_number(channel)

    run(Large(), sasl(), scenario)


def test_a_connection_that_breaks_during_the_login_was_never_open() -> None:
    losses: list[None] = []

    class Leaving(Peer):
        async def _receive(self, frame: bytes, login: SaslAuthenticator | None, writer: asyncio.StreamWriter) -> None:
            raise ConnectionResetError

    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match="the login over listener BROKERS failed: the peer closed the connection"):
            await request_number(channel)
        assert channel._connection is None

    run(Leaving(), sasl(), scenario, lost=lambda: losses.append(None))
    assert not losses


def test_passwords_are_derived_beside_the_loop() -> None:
    """So many iterations take a tenth of a second, and seconds on a busy machine."""
    peer = Peer(sasl_listener(iterations=200_000))

    async def scenario(channel: TcpBrokerClient) -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        await request_number(channel)
        ticking.cancel()
        assert ticks > 10

    run(peer, sasl("SCRAM-SHA-256"), scenario)


# Logins again


def test_a_login_is_repeated_before_it_ends_and_requests_wait_for_it() -> None:
    peer, security = Peer(sasl_listener(lifetime_ms=200)), sasl(share=0.7)

    async def scenario(channel: TcpBrokerClient) -> None:
        counts = []
        while peer.logins < 3:
            counts += await asyncio.gather(*(request_number(channel) for _ in range(3)))
        assert sorted(counts) == list(range(1, len(counts) + 1))
        assert peer.connections == 1

    run(peer, security, scenario)


def test_a_conversation_goes_on_across_a_new_login() -> None:
    peer, security = Peer(sasl_listener(lifetime_ms=200)), sasl("SCRAM-SHA-256", share=0.7)

    async def scenario(channel: TcpBrokerClient) -> None:
        received: list[int] = []

        def question(correlation_id: int, client_id: str) -> bytes:
            return bytes(request_bytes(ApiVersionsRequest(), 1, correlation_id, client_id))

        def next_request(frame: memoryview) -> EncodeRequest | None:
            received.append(parse_response(ApiVersionsResponse, frame, 1)[1].throttle_time_ms)
            return question if peer.logins < 3 else None

        await channel.converse("it", question, next_request, PATIENCE_S)
        assert received == list(range(1, len(received) + 1))
        assert peer.connections == 1

    run(peer, security, scenario)


def test_a_new_login_that_is_refused_fails_what_waits_and_the_next_request_connects_again() -> None:
    peer, security = Peer(sasl_listener(lifetime_ms=200)), sasl(share=0.5)

    async def scenario(channel: TcpBrokerClient) -> None:
        await request_number(channel)
        security.new_login = sasl(password=Secret.of("wrong")).new_login
        with pytest.raises(PeerLost, match="the login over listener BROKERS failed"):  # noqa: PT012
            while True:
                await request_number(channel)
        security.new_login = sasl().new_login
        while peer.connections < 2 or peer.logins < 2:
            try:
                await request_number(channel)
            except PeerLost:
                await asyncio.sleep(WAIT_S)

    run(peer, security, scenario)


def test_a_closed_client_logs_in_no_more() -> None:
    peer, other = Peer(sasl_listener(lifetime_ms=200)), Peer(sasl_listener(lifetime_ms=200))
    security = sasl(share=0.1)

    async def scenario(channel: TcpBrokerClient) -> None:
        await request_number(channel)
        channel.close()
        logins = peer.logins
        async with listening(other):
            open_channel = TcpBrokerClient(
                ("127.0.0.1", other.port), "me", TcpNetwork(), lambda: None, security=security
            )
            await request_number(open_channel)
            await eventually(lambda: other.logins > 3)
            open_channel.close()
        assert peer.logins == logins

    run(peer, security, scenario)


# TLS


def tls(context: ssl.SSLContext) -> PeerSecurity:
    return PeerSecurity(listener="BROKERS", tls=context)


def test_a_certificate_lets_a_broker_in(tmp_path: Path) -> None:
    peer = Peer(tls=server_context(tmp_path, verify=ssl.CERT_REQUIRED))

    async def scenario(channel: TcpBrokerClient) -> None:
        assert await request_number(channel) == 2  # the first one takes the place of a login
        assert await request_number(channel) == 3

    run(peer, tls(client_context(tmp_path, "broker")), scenario)


def refused_tls(
    peer: Peer, security: PeerSecurity, reason: str, caplog: pytest.LogCaptureFixture, *, kind: type[PeerLost]
) -> None:
    losses: list[None] = []

    async def scenario(channel: TcpBrokerClient) -> None:
        for _ in range(20):
            with pytest.raises(PeerLost, match=f"the login over listener BROKERS failed: .*{reason}") as lost:
                await request_number(channel)
            assert lost.type is kind
        warnings = [record for record in caplog.records if record.name == "leadline.cluster.broker_login"]
        assert len(warnings) == 1

    run(peer, security, scenario, lost=lambda: losses.append(None))
    assert not losses


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_without_a_certificate_is_refused_where_one_is_required(
    newest: ssl.TLSVersion, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With TLS 1.3 it learns that after its handshake. This peer closes without a word, as if it had ended."""
    context = client_context(tmp_path)
    context.maximum_version = newest
    peer = Peer(tls=server_context(tmp_path, verify=ssl.CERT_REQUIRED))
    refused_tls(peer, tls(context), "the peer closed the connection", caplog, kind=PeerLost)


def test_a_peer_with_a_certificate_of_another_authority_is_not_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=CertificateAuthority("Another").pem)
    refused_tls(Peer(tls=server_context(tmp_path)), tls(context), "self-signed certificate", caplog, kind=PeerLocked)


@pytest.mark.parametrize("is_checked", [True, False])
def test_a_peer_has_the_name_of_its_certificate_where_names_are_compared(
    is_checked: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The certificate is for localhost and 127.0.0.1."""
    context, peer = client_context(tmp_path), Peer(tls=server_context(tmp_path))
    context.check_hostname = is_checked

    async def scenario(channel: TcpBrokerClient) -> None:
        if not is_checked:
            assert await request_number(channel) == 2
            return
        with pytest.raises(PeerLost, match=r"not valid for '127\.0\.0\.2'"):
            await request_number(channel)

    run(peer, tls(context), scenario, host="127.0.0.2")


def test_a_peer_that_speaks_no_tls_is_reported(tmp_path: Path) -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match="failed: the peer closed the connection"):
            await request_number(channel)

    class Closing(Peer):
        async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.close()

    run(Closing(), tls(client_context(tmp_path)), scenario)


def test_a_new_context_is_used_by_new_connections(tmp_path: Path) -> None:
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.load_verify_locations(cadata=CertificateAuthority("Another").pem)
    security, peer = tls(client_context(tmp_path)), Peer(tls=server_context(tmp_path))

    async def scenario(channel: TcpBrokerClient) -> None:
        await request_number(channel)
        security.tls = stranger
        assert await request_number(channel) == 3
        channel._break_off(PeerLost("by the test"))
        with pytest.raises(PeerLost, match="the login over listener BROKERS failed"):
            await request_number(channel)

    run(peer, security, scenario)


def test_a_peer_that_does_not_let_this_broker_in_is_not_silent() -> None:
    assert probe_outcome(PeerLocked("a wrong password")) is ProbeOutcome.LOCKED


@pytest.mark.parametrize("host", ["", ".example", "a" * 70 + ".example"])
def test_a_host_that_no_certificate_can_name_is_reported(host: str, tmp_path: Path) -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost):
            await request_number(channel, 5.0)

    run(Peer(tls=server_context(tmp_path)), tls(client_context(tmp_path)), scenario, host=host)

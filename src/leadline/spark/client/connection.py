"""A connection to one broker: a socket, TLS and SASL where the properties ask for them, and messages of our codec.

It blocks and sends one request at a time, in the newest version that both sides support. It receives into one buffer:
the records of an answer are bytes of that buffer, and are valid until the next answer is received.
Properties go by the names of Kafka's clients. Logins are by PLAIN, SCRAM with delegation tokens, or OAUTHBEARER.
A login whose session ends is repeated before it does, ahead of the next request (KIP-368).
"""

import secrets
import socket
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from leadline import __version__
from leadline.config.values import InvalidSetting
from leadline.security.client_properties import OAUTHBEARER, ClientLogin, SecurityProperties, without_words
from leadline.security.sasl_client_authenticator import (
    MAX_LOGIN_ANSWER_BYTES,
    ClientLoginStep,
    LoginComplete,
    LoginRefused,
    LoginRequest,
    SaslClientAuthenticator,
    SaslClientExchange,
    password_exchange,
)
from leadline.spark.client.failures import RequestFailed
from leadline.spark.client.login_tokens import LoginTokens, NoToken, login_tokens
from leadline.spark.errors import JobFailed
from leadline.wire.apis import API_VERSIONS, APIS, UNSUPPORTED_VERSION
from leadline.wire.classes import Message
from leadline.wire.codec import decode, decode_from
from leadline.wire.frames import SIZE, parse_response, request_frame
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ResponseHeader,
    SaslAuthenticateRequest,
)
from leadline.wire.primitives import MalformedRequest, Piece

M = TypeVar("M", bound=Message)

MAX_FRAME_BYTES = 1 << 30
BUFFER_BYTES = 1 << 16
SESSION_SHARE = 0.9  # of a session, after which the login is repeated
LOGIN_PAUSE_S = 1.0  # brokers refuse a login that follows another one sooner
HEADER_BYTES = 256  # the most that an answer's header takes; the decoder of headers copies its input

# Newer versions have larger messages with the same content for one group, one transaction and topics by name.
NEWEST = {
    "FetchRequest": 12,
    "FindCoordinatorRequest": 3,
    "OffsetFetchRequest": 7,
    "AddPartitionsToTxnRequest": 3,
}


class Unreachable(JobFailed):
    """The broker does not answer, or not with the protocol. A retry or another broker may help."""


def is_outage(error: Exception) -> bool:
    """Whether brokers are away, or busy with an election: the same request may succeed later."""
    return isinstance(error, Unreachable) or (isinstance(error, RequestFailed) and error.retriable)


class AccessRefused(JobFailed):
    """The broker refuses the client, or a security property is wrong. A retry does not help."""


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """How a client connects, from its properties."""

    client_id: str
    timeout_s: float  # of one request
    context: ssl.SSLContext | None  # None: no TLS
    mechanism: str | None  # of SASL
    login: ClientLogin | LoginTokens | None

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "ClientSecurity":
        try:
            security = SecurityProperties.of(properties)
            security.check_own()
            context = security.ssl_context(_read) if security.uses_tls else None
            login = login_tokens(security) if security.mechanism == OAUTHBEARER else security.login
        except InvalidSetting as error:
            raise AccessRefused(without_words(error)) from None
        return cls(
            properties.get("client.id", "leadline-spark"),
            int(properties.get("request.timeout.ms", 30_000)) / 1000,
            context,
            security.mechanism,
            login,
        )

    def exchange(self) -> SaslClientExchange:
        """One login. Raises NoToken."""
        assert self.mechanism is not None
        assert self.login is not None
        if isinstance(self.login, LoginTokens):
            return self.login.exchange()
        login = self.login
        return password_exchange(
            self.mechanism, login.username, login.password, secrets.token_bytes, by_token=login.by_token
        )


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


class BlockingConnection:
    def __init__(self, address: BrokerAddress, access: ClientSecurity) -> None:
        self.address, self._access = address, access
        self._correlation_id = 0
        self._buffer = bytearray(BUFFER_BYTES)
        self._versions: dict[int, range] = {}
        self._login_due_s: float | None = None  # monotonic; None: the session has no end
        self._max_answer_bytes = MAX_LOGIN_ANSWER_BYTES  # until the login is over
        self._sock = self._connected()
        try:
            self._learn_versions()
            if access.mechanism is not None:
                self._authenticate(access.mechanism)
        except BaseException:
            self.close()
            raise
        self._max_answer_bytes = MAX_FRAME_BYTES

    def close(self) -> None:
        self._sock.close()

    def limit(self, timeout_s: float) -> None:
        """The time-out of the next requests."""
        self._access = replace(self._access, timeout_s=timeout_s)
        self._sock.settimeout(timeout_s)

    def ask(self, request: Message, kind: type[M]) -> M:
        """One request and its answer."""
        return self.answer(self.send(request), kind)

    def send(self, request: Message) -> int:
        """Sends a request and returns its version, for the later call of `answer`."""
        version = self._version(type(request))
        if self._login_due_s is not None and time.monotonic() >= self._login_due_s:
            self._authenticate_again()
        self._write(request, version)
        return version

    def answer(self, version: int, kind: type[M]) -> M:
        assert kind.API_KEY is not None
        frame, header_version = self._frame(), APIS[kind.API_KEY].response_header_version(version)
        try:
            header, body_at = decode_from(ResponseHeader, frame[:HEADER_BYTES], header_version)
            if header.correlation_id != self._correlation_id:
                raise Unreachable(f"{self.address} answers request {header.correlation_id}, not {self._correlation_id}")
            return decode(kind, frame, version, body_at)
        except MalformedRequest as error:
            raise self._undecodable(error) from None

    def _undecodable(self, error: MalformedRequest) -> Unreachable:
        return Unreachable(f"{self.address} sent an answer that cannot be decoded: {error}")

    def swap_buffer(self, other: bytearray | None) -> bytearray:
        """Receives into another buffer from now on and returns the previous one, so that its records stay valid."""
        buffer, self._buffer = self._buffer, bytearray(BUFFER_BYTES) if other is None else other
        return buffer

    def _version(self, kind: type[Message]) -> int:
        assert kind.API_KEY is not None
        versions = self._versions.get(kind.API_KEY)
        newest = min(kind.VERSIONS[-1], NEWEST.get(kind.__name__, kind.VERSIONS[-1]))
        if versions is None or versions[0] > newest or versions[-1] < kind.VERSIONS[0]:
            name = kind.__name__.removesuffix("Request")
            if versions is None:
                raise AccessRefused(f"{self.address} does not have the request {name}")
            offered = f"{versions[0]} to {versions[-1]}"
            ours = f"{kind.VERSIONS[0]} to {newest}"
            raise AccessRefused(f"{self.address} supports versions {offered} of {name}, this client {ours}")
        return min(newest, versions[-1])

    def _connected(self) -> socket.socket:
        context = self._access.context
        try:
            sock = socket.create_connection(self.address, self._access.timeout_s)
        except OSError as error:
            raise Unreachable(f"cannot reach {self.address}: {self._cause(error)}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return sock
        try:
            return context.wrap_socket(sock, server_hostname=self.address.host)
        except (ssl.SSLCertVerificationError, OSError) as error:
            sock.close()
            raise AccessRefused(f"{self.address}: no TLS: {error}") from None

    def _learn_versions(self) -> None:
        """Learns the versions that the broker supports. A broker without our version answers in version 0."""
        request = ApiVersionsRequest(client_software_name="leadline-spark", client_software_version=__version__)
        for version in (3, 0):
            self._write(request, version)
            frame = self._frame()
            failed = int.from_bytes(frame[4:6], "big", signed=True) == UNSUPPORTED_VERSION
            if version == 3 and failed:
                continue
            try:
                _, answer = parse_response(ApiVersionsResponse, frame, version)
            except MalformedRequest as error:
                raise self._undecodable(error) from None
            self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
            return
        raise Unreachable(f"{self.address} has no version of ApiVersions (api {API_VERSIONS})")

    def _authenticate_again(self) -> None:
        """With a buffer of its own: the records of the last answer stay valid until the next one is received."""
        assert self._access.mechanism is not None
        buffer = self.swap_buffer(None)
        try:
            self._authenticate(self._access.mechanism)
        finally:
            self.swap_buffer(buffer)

    def _authenticate(self, mechanism: str) -> None:
        try:
            session = self._login(mechanism)
        except NoToken as error:
            kind = AccessRefused if error.is_refused else Unreachable
            raise kind(f"{self.address}: no login by {mechanism}: {error}") from None
        except LoginRefused as error:
            raise AccessRefused(f"{self.address} refuses the login by {mechanism}: {error}") from None
        lifetime_s = session.lifetime_ms / 1000
        due_s = time.monotonic() + max(lifetime_s * SESSION_SHARE, LOGIN_PAUSE_S)
        self._login_due_s = due_s if lifetime_s else None

    def _login(self, mechanism: str) -> LoginComplete:
        exchange = self._access.exchange()
        authenticator = SaslClientAuthenticator(mechanism, exchange, self._version(SaslAuthenticateRequest))
        step: ClientLoginStep = authenticator.begin()
        while not isinstance(step, LoginComplete):
            if isinstance(step, LoginRequest):
                self._send_all([step.encode(self._next_correlation_id(), self._access.client_id)])
                step = authenticator.receive(self._frame())
            else:
                step = authenticator.resume(step.run())
        return step

    def _write(self, request: Message, version: int) -> None:
        self._send_all(request_frame(request, version, self._next_correlation_id(), self._access.client_id))

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        return self._correlation_id

    def _send_all(self, pieces: Iterable[Piece]) -> None:
        try:
            for piece in pieces:
                assert isinstance(piece, bytes | bytearray | memoryview)
                self._sock.sendall(piece)
        except OSError as error:
            raise Unreachable(f"{self.address}: {self._cause(error)}") from None

    def _frame(self) -> memoryview:
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        if not 0 <= size <= (limit := self._max_answer_bytes):
            raise Unreachable(f"{self.address} announces an answer of {size} bytes; {limit} are the limit")
        return self._exactly(size)

    def _exactly(self, size: int) -> memoryview:
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view, got = memoryview(self._buffer)[:size], 0
        try:
            while got < size:
                count = self._sock.recv_into(view[got:])
                if not count:
                    raise Unreachable(f"{self.address} closed the connection")
                got += count
        except OSError as error:
            raise Unreachable(f"{self.address}: {self._cause(error)}") from None
        return view

    def _cause(self, error: OSError) -> str:
        if isinstance(error, TimeoutError):
            return f"no answer within {self._access.timeout_s:g} s"
        return error.strerror or str(error)

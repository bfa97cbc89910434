"""A connection to one broker: a socket, TLS and SASL where the properties ask for them, and messages of our codec.

It blocks and sends one request at a time, in the newest version that both sides support. It receives into one buffer:
the records of an answer are bytes of that buffer, and are valid until the next answer is received.
Properties go by the names of Kafka's clients. Certificates and keys are PEM; SASL speaks through kafka-python.
"""
# mypy: disable-error-code="import-untyped"

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from leadline import __version__
from leadline.config.client_properties import HOSTNAME_CHECK, translate_login, translate_tls
from leadline.config.values import InvalidSetting
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
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from leadline.wire.primitives import MalformedRequest

M = TypeVar("M", bound=Message)

MAX_FRAME_BYTES = 1 << 30
BUFFER_BYTES = 1 << 16
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


class AccessRefused(JobFailed):
    """The broker refuses the client, or a security property is wrong. A retry does not help."""


class BrokerAddress(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The security settings of a client, from its properties."""

    client_id: str
    timeout_s: float  # of one request
    tls: bool
    mechanism: str | None  # of SASL
    properties: Mapping[str, str]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "ClientSecurity":
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
            raise AccessRefused(f"security.protocol={protocol}: it is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL")
        sasl = protocol.startswith("SASL")
        return cls(
            properties.get("client.id", "leadline-spark"),
            int(properties.get("request.timeout.ms", 30_000)) / 1000,
            protocol.endswith("SSL"),
            properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "GSSAPI")).upper() if sasl else None,
            properties,
        )


class BlockingConnection:
    def __init__(self, address: BrokerAddress, access: ClientSecurity) -> None:
        self.address, self._access = address, access
        self._correlation_id = 0
        self._buffer = bytearray(BUFFER_BYTES)
        self._versions: dict[int, range] = {}
        self._sock = self._connected()
        try:
            self._learn_versions()
            if access.mechanism is not None:
                self._authenticate(access.mechanism)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._sock.close()

    def ask(self, request: Message, kind: type[M]) -> M:
        """One request and its answer."""
        return self.answer(self.send(request), kind)

    def send(self, request: Message) -> int:
        """Sends a request and returns its version, for the later call of `answer`."""
        version = self._version(type(request))
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
            raise Unreachable(f"{self.address} sent an answer that cannot be decoded: {error}") from None

    def swap_buffer(self, other: bytearray | None) -> bytearray:
        """Receives into another buffer from now on and returns the previous one, so that its records stay valid."""
        buffer, self._buffer = self._buffer, bytearray(BUFFER_BYTES) if other is None else other
        return buffer

    def _version(self, kind: type[Message]) -> int:
        assert kind.API_KEY is not None
        versions = self._versions.get(kind.API_KEY)
        newest = min(kind.VERSIONS[-1], NEWEST.get(kind.__name__, kind.VERSIONS[-1]))
        if versions is None or versions[0] > newest or versions[-1] < kind.VERSIONS[0]:
            offered = f"{versions[0]} to {versions[-1]}" if versions is not None else "none"
            name = kind.__name__.removesuffix("Request")
            ours = f"{kind.VERSIONS[0]} to {newest}"
            raise AccessRefused(f"{self.address} supports versions {offered} of {name}, this client {ours}")
        return min(newest, versions[-1])

    def _connected(self) -> socket.socket:
        context = tls_context(self._access.properties) if self._access.tls else None
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
            _, answer = parse_response(ApiVersionsResponse, frame, version)
            self._versions = {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}
            return
        raise Unreachable(f"{self.address} has no version of ApiVersions (api {API_VERSIONS})")

    def _authenticate(self, mechanism: str) -> None:
        from kafka.errors import KafkaError
        from kafka.net.sasl import SASL_MECHANISMS, get_sasl_mechanism

        if mechanism not in SASL_MECHANISMS:
            raise AccessRefused(f"sasl.mechanism={mechanism}: it is one of {', '.join(SASL_MECHANISMS)}")
        shaken = self.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse)
        if shaken.error_code:
            raise AccessRefused(f"sasl.mechanism={mechanism}: {self.address} has {', '.join(shaken.mechanisms)}")
        username, password = credentials(self._access.properties)
        try:
            side = get_sasl_mechanism(mechanism)(
                sasl_mechanism=mechanism,
                sasl_plain_username=username,
                sasl_plain_password=password,
                security_protocol="SASL_SSL",
                host=self.address.host,
            )
            while not side.is_done():
                self._exchange(side)
        except (KafkaError, ValueError, KeyError) as error:
            raise AccessRefused(f"{self.address}: {mechanism}: {error}") from None

    def _exchange(self, side: "object") -> None:
        from kafka.net.sasl.abc import SaslMechanism

        assert isinstance(side, SaslMechanism)
        request = SaslAuthenticateRequest(auth_bytes=side.auth_bytes())
        answer = self.ask(request, SaslAuthenticateResponse)
        if answer.error_code:
            raise AccessRefused(f"{self.address} refuses the login: {answer.error_message or 'wrong credentials'}")
        side.receive(answer.auth_bytes)

    def _write(self, request: Message, version: int) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        pieces = request_frame(request, version, self._correlation_id, self._access.client_id)
        try:
            for piece in pieces:
                assert isinstance(piece, bytes | bytearray | memoryview)
                self._sock.sendall(piece)
        except OSError as error:
            raise Unreachable(f"{self.address}: {self._cause(error)}") from None

    def _frame(self) -> memoryview:
        (size,) = SIZE.unpack(self._exactly(SIZE.size))
        if not 0 <= size <= MAX_FRAME_BYTES:
            raise Unreachable(f"{self.address} announces an answer of {size} bytes; {MAX_FRAME_BYTES} are the limit")
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


# Properties


def credentials(properties: Mapping[str, str]) -> tuple[str, str]:
    """User and password, under the names of Kafka's clients or of librdkafka."""
    try:
        login = translate_login(properties)
    except InvalidSetting as error:
        raise AccessRefused(str(error)) from None
    if "sasl.username" not in login or "sasl.password" not in login:
        raise AccessRefused("sasl.jaas.config: it must have a username and a password (PLAIN, SCRAM)")
    return login["sasl.username"], login["sasl.password"]


def tls_context(properties: Mapping[str, str]) -> ssl.SSLContext:
    try:
        tls = translate_tls(properties)
        context = ssl.create_default_context(cafile=tls.get("ssl.ca.location"), cadata=tls.get("ssl.ca.pem"))
        _load_certificate(context, tls)
    except InvalidSetting as error:
        raise AccessRefused(str(error)) from None
    except (OSError, ValueError) as error:
        raise AccessRefused(f"ssl: a certificate or key cannot be read: {error}") from None
    if tls.get(HOSTNAME_CHECK, "https").lower() == "none":
        context.check_hostname = False
    return context


def _load_certificate(context: ssl.SSLContext, tls: Mapping[str, str]) -> None:
    if "ssl.keystore.location" in tls:
        raise AccessRefused("ssl.keystore.location: only PEM can be read: ssl.keystore.type=PEM")
    if (certificate := tls.get("ssl.certificate.location")) is not None:
        context.load_cert_chain(certificate, tls.get("ssl.key.location"), tls.get("ssl.key.password"))
    elif "ssl.certificate.pem" in tls:
        raise AccessRefused("ssl.keystore.certificate.chain: only files can be read: ssl.keystore.location")

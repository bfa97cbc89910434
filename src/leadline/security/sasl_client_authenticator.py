"""A login to a broker, of another broker or of a client of our own: the peer's answers in, what to do out.

Pure: no socket, no clock. The caller carries out a step and comes back with its result, until the login is complete.

    state           step that is under way     result                        next step                 next state
    HANDSHAKE       SaslHandshake v1           the mechanism is enabled      SaslAuthenticate v2       AUTHENTICATE
    AUTHENTICATE    SaslAuthenticate v2        a challenge                   its answer                AUTHENTICATE
                                               a challenge that takes time   work for a thread         WORK
                                               the last word of the peer     the session               COMPLETE
    WORK            that, in a thread          what came of it               SaslAuthenticate v2       AUTHENTICATE
    any             any                        a refusal, or nonsense        LoginRefused              FAILED

Other brokers are those of Kafka 2.5 or later, so their versions are not requested; clients know them and pass the
version of SaslAuthenticate. A login that ends is repeated on the same connection, with another authenticator.

    a login is complete once the exchange is: by SCRAM and GSSAPI the peer has then proven who it is, too
    no step, no refusal and no repr contains a secret; words of the peer are quoted and cut
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol, TypeVar

from leadline.errors import IllegalSaslState, UnsupportedSaslMechanism
from leadline.model import NONE, Buffer
from leadline.security.gssapi import GssapiClient, GssapiClientFailed
from leadline.security.plain import PLAIN, PlainClient
from leadline.security.sasl_mechanisms import ThreadWork
from leadline.security.scram import ScramClient, ScramClientFailed
from leadline.security.scram_credentials import RANDOM_BYTES, SCRAM_MECHANISMS, random_text
from leadline.security.secret import Secret
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response, request_bytes
from leadline.wire.messages import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from leadline.wire.primitives import MalformedRequest

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
MAX_QUOTED = 300  # characters of a peer's message
MAX_LOGIN_ANSWER_BYTES = 512 * 1024  # of a peer that is not known yet (CVE-2026-10142); the caller sees to it

M = TypeVar("M", bound=Message)


class LoginRefused(Exception):
    """The peer refuses the login, or fails to prove its identity."""


class SaslClientExchange(Protocol):
    """One login by one mechanism, of the client."""

    @property
    def is_complete(self) -> bool: ...

    def evaluate(self, challenge: bytes) -> bytes | ThreadWork[Any]: ...


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """A request to send; the frame of its answer goes to `receive`."""

    name: str
    encode: Callable[[int, str], Buffer] = field(repr=False)  # from correlation id and client id to a frame


@dataclass(frozen=True, slots=True)
class LoginComplete:
    lifetime_ms: int  # 0: the session has no end


ClientLoginStep = LoginRequest | ThreadWork[Any] | LoginComplete


class ClientLoginState(Enum):
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    WORK = auto()
    COMPLETE = auto()
    FAILED = auto()


class SaslClientAuthenticator:
    def __init__(self, mechanism: str, exchange: SaslClientExchange, version: int = AUTHENTICATE_VERSION) -> None:
        """`version`: of SaslAuthenticate."""
        self._mechanism, self._exchange, self._version = mechanism, exchange, version
        self.state = ClientLoginState.HANDSHAKE

    def begin(self) -> LoginRequest:
        assert self.state is ClientLoginState.HANDSHAKE
        return _request(SaslHandshakeRequest(mechanism=self._mechanism), HANDSHAKE_VERSION)

    def receive(self, frame: Buffer) -> ClientLoginStep:
        """The frame that answers the last request. Raises LoginRefused."""
        try:
            if self.state is ClientLoginState.HANDSHAKE:
                return self._handshake(_parsed(SaslHandshakeResponse, frame, HANDSHAKE_VERSION))
            assert self.state is ClientLoginState.AUTHENTICATE
            return self._authenticate(_parsed(SaslAuthenticateResponse, frame, self._version))
        except (LoginRefused, ScramClientFailed, GssapiClientFailed) as error:
            raise self._failed(error) from None

    def resume(self, result: Any) -> LoginRequest:
        """The result of the work. Raises LoginRefused."""
        assert self.state is ClientLoginState.WORK
        assert isinstance(self._exchange, ScramClient | GssapiClient)
        try:
            return self._token(self._exchange.resume(result))
        except GssapiClientFailed as error:
            raise self._failed(error) from None

    def _failed(self, error: Exception) -> LoginRefused:
        self.state = ClientLoginState.FAILED
        return error if isinstance(error, LoginRefused) else LoginRefused(quoted(str(error)))

    def _handshake(self, response: SaslHandshakeResponse) -> ClientLoginStep:
        enabled = quoted(", ".join(response.mechanisms))
        if response.error_code == UnsupportedSaslMechanism.code:
            raise LoginRefused(f"the SASL mechanism {self._mechanism} is not enabled there: {enabled} are")
        if response.error_code == IllegalSaslState.code:
            raise LoginRefused("a login is not expected there")
        if response.error_code != NONE:
            raise LoginRefused(f"SaslHandshake was answered with error {response.error_code}")
        return self._next(b"")

    def _authenticate(self, response: SaslAuthenticateResponse) -> ClientLoginStep:
        if response.error_code != NONE:
            raise LoginRefused(quoted(response.error_message or f"error {response.error_code}"))
        if not self._exchange.is_complete:
            step = self._next(bytes(response.auth_bytes))
            if not self._exchange.is_complete:
                return step
        self.state = ClientLoginState.COMPLETE
        return LoginComplete(max(response.session_lifetime_ms, 0))

    def _next(self, challenge: bytes) -> ClientLoginStep:
        message = self._exchange.evaluate(challenge)
        if isinstance(message, bytes):
            return self._token(message)
        self.state = ClientLoginState.WORK
        return message

    def _token(self, message: bytes) -> LoginRequest:
        self.state = ClientLoginState.AUTHENTICATE
        return _request(SaslAuthenticateRequest(auth_bytes=message), self._version)


def password_exchange(
    mechanism: str, username: str, password: Secret, random: Callable[[int], bytes], *, by_token: bool
) -> SaslClientExchange:
    """The exchange of PLAIN or SCRAM. `by_token`: the name is the id of a delegation token, the password its HMAC."""
    if mechanism == PLAIN:
        return PlainClient(username, password)
    return ScramClient(SCRAM_MECHANISMS[mechanism], username, password, random_text(random(RANDOM_BYTES)), by_token)


def quoted(words: str) -> str:
    """Words of a peer, for a log line: without line breaks, and not too many."""
    return ascii(words[:MAX_QUOTED])[1:-1]


def _request(message: Message, version: int) -> LoginRequest:
    return LoginRequest(type(message).__name__, partial(request_bytes, message, version))


def _parsed(kind: type[M], frame: Buffer, version: int) -> M:
    try:
        return parse_response(kind, frame, version)[1]
    except MalformedRequest as error:
        raise LoginRefused(f"a malformed answer: {error}") from None

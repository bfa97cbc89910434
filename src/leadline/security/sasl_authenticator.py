"""The login of one connection to a SASL listener: frames and the time in, what to do out.

Pure: no socket, no clock. The caller reads frames of at most `MAX_RECEIVE_BYTES` (sasl.server.max.receive.size), hands
over one at a time, and carries out the step that comes back before it reads the next.

    state           frame                                  step                                      next state
    INITIAL         no Kafka request                       as a token of GSSAPI, if that is enabled  AUTHENTICATE
                                                           else close after the delay                FAILED
    INITIAL         ApiVersions                            the versions                              HANDSHAKE
      or VERSIONS   ApiVersions that is refused            its error: the client may ask again       VERSIONS
    HANDSHAKE       ApiVersions                            close at once                             FAILED
    any of these    SaslHandshake                          the enabled mechanisms                    AUTHENTICATE
                    SaslHandshake, mechanism not enabled   33 with the enabled ones, delayed         FAILED
                    any other request                      close after the delay                     FAILED
    AUTHENTICATE    a token that continues the exchange    its challenge                             AUTHENTICATE
                    what the mechanism accepts             its last message, and the session         COMPLETE
                    what the mechanism refuses             58 with its message, delayed              FAILED
                    what may succeed at the next attempt   close at once                             FAILED
                    what the mechanism may block for       work for a thread                         WORK
                    another request                        34 in its response, delayed               FAILED
    WORK            (its outcome)                          as in AUTHENTICATE
    COMPLETE        (`admit` decides: serve a request, close an expired session, or begin again)
                    SaslHandshake                          the enabled mechanisms                    AUTHENTICATE
                    SaslHandshake, another mechanism       the enabled mechanisms                    OTHER_MECHANISM
                    SaslHandshake, mechanism not enabled   close at once                             FAILED
    OTHER_MECHANISM anything                               close after the delay                     FAILED
    any             a frame that cannot be parsed          close at once                             FAILED

After SaslHandshake v0 tokens travel as they are, each in a frame, and a failure closes without a word. After v1 they
travel in SaslAuthenticate. Clients of Kafka 0.9 begin with a bare token of GSSAPI.

    nothing but SaslHandshake, SaslAuthenticate and ApiVersions is served before the login is complete
    a connection that authenticates again stays who it was, by the mechanism that it used before
    an expired session serves no request; nothing closes it while it is idle
    a failure waits for connection.failed.authentication.delay.ms, response included, while nothing is read
    no step and no reason contains what a client sent as its proof
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from leadline.errors import IllegalSaslState, SaslAuthenticationFailed, UnsupportedSaslMechanism
from leadline.model import NONE
from leadline.security.gssapi import GSSAPI
from leadline.security.principal import Principal
from leadline.security.sasl_mechanisms import (
    Authenticated,
    Challenge,
    EnabledMechanisms,
    Failed,
    Outcome,
    SaslExchange,
    ThreadWork,
)
from leadline.wire.apis import API_VERSIONS, Api, unsupported_api_versions
from leadline.wire.classes import Message
from leadline.wire.codec import decode_from
from leadline.wire.frames import SIZE, RequestHead, request_head, response_frame
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from leadline.wire.primitives import BUFFERS, MalformedRequest

MAX_RECEIVE_BYTES = 524_288  # the default of sasl.server.max.receive.size
MAX_DECODED_BYTES = 16_384  # of a request that has no place in a login
MIN_REAUTHENTICATION_INTERVAL_MS = 1000
SASL_HANDSHAKE, SASL_AUTHENTICATE = 17, 36


class LoginState(Enum):
    INITIAL = auto()
    VERSIONS = auto()  # a Kafka request came; ApiVersions was refused, so that it may come again
    HANDSHAKE = auto()  # ApiVersions was answered: only SaslHandshake may come
    AUTHENTICATE = auto()
    WORK = auto()  # a token of the client is in a thread
    OTHER_MECHANISM = auto()  # of a session that authenticates again; the next frame fails
    COMPLETE = auto()
    FAILED = auto()


MAY_FOLLOW: dict[LoginState, frozenset[LoginState]] = {
    LoginState.INITIAL: frozenset(
        {LoginState.VERSIONS, LoginState.HANDSHAKE, LoginState.AUTHENTICATE, LoginState.FAILED}
    ),
    LoginState.VERSIONS: frozenset(
        {LoginState.VERSIONS, LoginState.HANDSHAKE, LoginState.AUTHENTICATE, LoginState.FAILED}
    ),
    LoginState.HANDSHAKE: frozenset({LoginState.AUTHENTICATE, LoginState.FAILED}),
    LoginState.AUTHENTICATE: frozenset(
        {LoginState.AUTHENTICATE, LoginState.WORK, LoginState.COMPLETE, LoginState.FAILED}
    ),
    LoginState.WORK: frozenset({LoginState.AUTHENTICATE, LoginState.COMPLETE, LoginState.FAILED}),
    LoginState.COMPLETE: frozenset({LoginState.AUTHENTICATE, LoginState.OTHER_MECHANISM, LoginState.FAILED}),
    LoginState.OTHER_MECHANISM: frozenset({LoginState.FAILED}),
    LoginState.FAILED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class SaslSession:
    """A login that succeeded."""

    principal: Principal
    mechanism: str
    lifetime_ms: int  # as the response reports it; 0: the session has no end, or it is over
    expires_monotonic_ms: int | None  # None: it has no end


@dataclass(frozen=True, slots=True)
class LoginFailure:
    """Read no more; wait for the failure delay if `delayed`; send the response, if there is one; close."""

    reason: str  # for our log
    response: bytes = field(default=b"", repr=False)
    delayed: bool = True


@dataclass(frozen=True, slots=True)
class LoginStep:
    """What must happen, top to bottom."""

    send: bytes = field(default=b"", repr=False)  # whole frames, at once
    session: SaslSession | None = None  # the login is complete: serve requests once `send` is sent
    failure: LoginFailure | None = None
    work: ThreadWork[Outcome] | None = None  # read no more; run it in a thread; hand its outcome to `resume`


class Admission(Enum):
    """What to do with a request on a connection whose login is complete."""

    SERVE = auto()
    REAUTHENTICATE = auto()  # pass the frame to `receive`
    CLOSE = auto()  # the session has expired: close without an answer


@dataclass(frozen=True, slots=True)
class SaslListener:
    """What all connections of a listener share."""

    mechanisms: EnabledMechanisms
    max_reauth_ms: Mapping[str, int]  # connections.max.reauth.ms by mechanism; 0 or none: a session has no end
    api_versions: Callable[[ApiVersionsRequest, int], ApiVersionsResponse]  # request and version
    error_response: Callable[[Message, int, int], Message | None]  # request, version, error code; None: it has none


class SaslAuthenticator:
    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self.state = LoginState.INITIAL
        self.session: SaslSession | None = None  # the last login that succeeded
        self._mechanism = ""
        self._exchange: SaslExchange | None = None
        self._in_requests = False  # tokens travel in SaslAuthenticate
        self._head: RequestHead | None = None  # of the token that is evaluated; None: it is bare
        self._reauthenticated_ms: int | None = None  # when the last one began, by the monotonic clock

    @property
    def reauthenticating(self) -> bool:
        return self.session is not None

    def admit(self, api_key: int, monotonic_ms: int) -> Admission:
        """Decides about a request after the login is complete."""
        assert self.state is LoginState.COMPLETE
        assert self.session is not None
        expires_ms = self.session.expires_monotonic_ms
        if expires_ms is None:
            return Admission.SERVE
        if api_key != SASL_HANDSHAKE:
            return Admission.CLOSE if monotonic_ms > expires_ms else Admission.SERVE
        last_ms = self._reauthenticated_ms
        if last_ms is not None and monotonic_ms - last_ms < MIN_REAUTHENTICATION_INTERVAL_MS:
            return Admission.SERVE
        return Admission.REAUTHENTICATE

    def refuse_size(self, reason: str) -> LoginStep:
        """Refuses a frame that is announced too large, or with a negative size."""
        return self._fail(reason)

    def receive(self, frame: bytes, now_ms: int, monotonic_ms: int) -> LoginStep:
        """A frame without its size. `now_ms` is the wall clock, against which credentials expire."""
        try:
            if self.state is LoginState.AUTHENTICATE:
                return self._token(frame, now_ms, monotonic_ms)
            if self.state is LoginState.OTHER_MECHANISM:
                return self._fail("another mechanism than before was requested for re-authentication")
            assert self.state is not LoginState.FAILED, "a login that has failed is over"
            assert self.state is not LoginState.WORK, "nothing is read meanwhile"
            return self._request(frame, now_ms, monotonic_ms)
        except MalformedRequest as error:
            return self._fail(f"malformed request: {error}", delayed=False)

    def resume(self, outcome: Outcome, now_ms: int, monotonic_ms: int) -> LoginStep:
        """The outcome of the work."""
        assert self.state is LoginState.WORK
        return self._answer(outcome, now_ms, monotonic_ms)

    def _move(self, state: LoginState) -> None:
        assert state in MAY_FOLLOW[self.state], f"{self.state} to {state}"
        self.state = state

    def _fail(self, reason: str, response: bytes = b"", delayed: bool = True) -> LoginStep:
        self._move(LoginState.FAILED)
        self._exchange = None
        return LoginStep(failure=LoginFailure(reason, response, delayed))

    # Before the tokens

    def _request(self, frame: bytes, now_ms: int, monotonic_ms: int) -> LoginStep:
        try:
            head = request_head(frame)
        except MalformedRequest:
            if self.state is not LoginState.INITIAL:
                raise
            return self._first_token(frame, now_ms, monotonic_ms)
        if head.api_key == SASL_HANDSHAKE and head.is_supported:
            return self._handshake(frame, head, monotonic_ms)
        if head.api_key == API_VERSIONS:
            return self._api_versions(frame, head)
        if head.api is None:
            if self.state is LoginState.INITIAL:
                return self._first_token(frame, now_ms, monotonic_ms)
            return self._fail(f"unknown api key {head.api_key}", delayed=False)
        if head.api_key == SASL_HANDSHAKE:
            return self._fail(f"SaslHandshake v{head.version} is not supported", delayed=False)
        return self._fail(f"unexpected {head.api.name} before SaslHandshake")

    def _first_token(self, frame: bytes, now_ms: int, monotonic_ms: int) -> LoginStep:
        """No Kafka request: old clients know GSSAPI alone, and begin with a token of it."""
        if GSSAPI not in self._listener.mechanisms:
            return self._fail("the first frame is no Kafka request, and GSSAPI is not enabled")
        self._begin(GSSAPI, in_requests=False)
        return self._token(frame, now_ms, monotonic_ms)

    def _begin(self, mechanism: str, *, in_requests: bool) -> None:
        self._move(LoginState.AUTHENTICATE)
        self._mechanism, self._in_requests = mechanism, in_requests
        self._exchange = self._listener.mechanisms.new_exchange(mechanism)

    def _api_versions(self, frame: bytes, head: RequestHead) -> LoginStep:
        if self.state not in (LoginState.INITIAL, LoginState.VERSIONS):
            return self._fail("unexpected second ApiVersions", delayed=False)
        if not head.is_supported:
            self._move(LoginState.VERSIONS)
            return LoginStep(_frame(unsupported_api_versions(), 0, head.correlation_id))
        request, _ = decode_from(ApiVersionsRequest, frame, head.version, head.body_at)
        response = self._listener.api_versions(request, head.version)
        self._move(LoginState.HANDSHAKE if response.error_code == NONE else LoginState.VERSIONS)
        return LoginStep(_response(response, head))

    def _handshake(self, frame: bytes, head: RequestHead, monotonic_ms: int) -> LoginStep:
        request, _ = decode_from(SaslHandshakeRequest, frame, head.version, head.body_at)
        mechanisms = self._listener.mechanisms
        if self.reauthenticating:
            self._reauthenticated_ms = monotonic_ms
        if request.mechanism not in mechanisms:
            reason = f"unsupported SASL mechanism {request.mechanism!r:.100}"
            if self.reauthenticating:
                return self._fail(reason, delayed=False)
            refusal = SaslHandshakeResponse(error_code=UnsupportedSaslMechanism.code, mechanisms=mechanisms.names)
            return self._fail(reason, _response(refusal, head))
        if self.session is not None and request.mechanism != self.session.mechanism:
            self._move(LoginState.OTHER_MECHANISM)
        else:
            self._begin(request.mechanism, in_requests=head.version >= 1)
        return LoginStep(_response(SaslHandshakeResponse(mechanisms=mechanisms.names), head))

    # The tokens

    def _token(self, frame: bytes, now_ms: int, monotonic_ms: int) -> LoginStep:
        assert self._exchange is not None
        self._head, token = None, frame
        if self._in_requests:
            head = self._head = request_head(frame)
            if head.api is None or not head.is_supported:
                return self._fail(f"api key {head.api_key} v{head.version} is not supported", delayed=False)
            if head.api_key != SASL_AUTHENTICATE:
                return self._other_request(frame, head, head.api)
            request, _ = decode_from(SaslAuthenticateRequest, frame, head.version, head.body_at)
            token = bytes(request.auth_bytes)
        outcome = self._exchange.evaluate(token, now_ms)
        if isinstance(outcome, Outcome):
            return self._answer(outcome, now_ms, monotonic_ms)
        self._move(LoginState.WORK)
        return LoginStep(work=outcome)

    def _other_request(self, frame: bytes, head: RequestHead, api: Api) -> LoginStep:
        """Its error response needs nothing of it. A large one is not decoded: its sender is not known yet."""
        other = api.request()
        if len(frame) <= MAX_DECODED_BYTES:
            other, _ = decode_from(api.request, frame, head.version, head.body_at)
        error = self._listener.error_response(other, head.version, IllegalSaslState.code)
        return self._fail(f"unexpected {api.name} during the login", _response(error, head) if error else b"")

    def _answer(self, outcome: Outcome, now_ms: int, monotonic_ms: int) -> LoginStep:
        outcome = self._unless_another(outcome)
        if isinstance(outcome, Failed):
            return self._refuse(outcome)
        if isinstance(outcome, Challenge):
            self._move(LoginState.AUTHENTICATE)
            return LoginStep(self._message(outcome.data))
        session = self._complete(outcome, now_ms, monotonic_ms)
        if outcome.is_silent and self._head is None:
            return LoginStep(session=session)
        return LoginStep(self._message(outcome.data, session.lifetime_ms), session)

    def _message(self, data: bytes, lifetime_ms: int = 0) -> bytes:
        if self._head is None:
            return SIZE.pack(len(data)) + data
        response = SaslAuthenticateResponse(error_message="", auth_bytes=data, session_lifetime_ms=lifetime_ms)
        return _response(response, self._head)

    def _unless_another(self, outcome: Outcome) -> Outcome:
        """A connection that authenticates again stays who it was."""
        if self.session is None or not isinstance(outcome, Authenticated):
            return outcome
        before, after = self.session.principal, outcome.principal
        if before == after:
            return outcome
        return Failed(
            "Cannot change principals during re-authentication from "
            f"{before.type}.{before.name}: {after.type}.{after.name}"
        )

    def _refuse(self, outcome: Failed) -> LoginStep:
        occasion = "re-authentication" if self.reauthenticating else "authentication"
        message = outcome.message or (
            f"Authentication failed during {occasion} due to invalid credentials with SASL mechanism {self._mechanism}"
        )
        reason = outcome.reason or message
        if outcome.is_retriable:
            return self._fail(reason, delayed=False)
        if self._head is None:
            return self._fail(reason)
        response = SaslAuthenticateResponse(error_code=SaslAuthenticationFailed.code, error_message=message)
        return self._fail(reason, _response(response, self._head))

    def _complete(self, outcome: Authenticated, now_ms: int, monotonic_ms: int) -> SaslSession:
        limits = []
        if (max_reauth_ms := self._listener.max_reauth_ms.get(self._mechanism, 0)) > 0:
            limits.append(max_reauth_ms)
        if outcome.expires_ms is not None:
            limits.append(max(outcome.expires_ms - now_ms, 0))
        lifetime_ms = min(limits, default=0)
        expires_ms = monotonic_ms + lifetime_ms if limits else None
        self._move(LoginState.COMPLETE)
        self._exchange = None
        self.session = SaslSession(outcome.principal, self._mechanism, lifetime_ms, expires_ms)
        return self.session


def _response(message: Message, head: RequestHead) -> bytes:
    return _frame(message, head.version, head.correlation_id)


def _frame(message: Message, version: int, correlation_id: int) -> bytes:
    pieces = response_frame(message, version, correlation_id)
    return b"".join(piece for piece in pieces if isinstance(piece, BUFFERS))

"""GSSAPI (RFC 4752): a client shows a ticket of Kerberos, and both sides prove that they hold its key.

Pure: tokens in, outcomes out. A context of Kerberos does the rest, and may block: each message is work for a thread.

    client                                  server
    token of its context                →
                                        ←   token of its context; none unless the client asks for mutual authentication
    nothing                             →   (only if there was a token)
                                        ←   wrapped: 1 (the only layer it has is none), 0 0 0 (the size of a message)
    wrapped: 1, 0 0 0, authorization id →

    a client is who its ticket says, by the listener's rules; the authorization id is not looked at, as in Kafka
    a name that no rule takes for a user's fails the login
    what Kerberos says of a failure is for our log: a client learns only that its credentials are invalid
    of a failure that the next attempt may not have, such as a replay, a client learns nothing: it tries again
    nobody is logged in to a server that could not wrap its offer: it has the service's key
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Generic, TypeVar

from leadline.runtime.kerberos import GssContext, KerberosError
from leadline.security.kerberos_names import NoUserName, ShortNames
from leadline.security.principal import USER_TYPE, Principal
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed, Outcome

GSSAPI = "GSSAPI"
_NO_LAYER = 1
_LAYER_BYTES = 4  # the layers as bits, and the largest message in three bytes
_OFFER = bytes([_NO_LAYER, 0, 0, 0])

T = TypeVar("T")


class GssapiState(Enum):
    CONTEXT = auto()  # tokens travel
    OFFER = auto()  # the context is established; the client has yet to say so
    LAYER = auto()  # the client chooses a layer


@dataclass(frozen=True, slots=True)
class GssapiWork(Generic[T]):
    """A message of the exchange, for a thread."""

    run: Callable[[], T] = field(repr=False)


class GssapiExchange:
    """The server's side."""

    def __init__(self, new_context: Callable[[], GssContext], names: ShortNames) -> None:
        self._context, self._names = new_context(), names
        self.state = GssapiState.CONTEXT

    def evaluate(self, response: bytes, now_ms: int) -> GssapiWork[Outcome]:
        return GssapiWork(partial(self._outcome, response))

    def _outcome(self, response: bytes) -> Outcome:
        try:
            if self.state is GssapiState.CONTEXT:
                return self._accept(response)
            if self.state is GssapiState.OFFER:
                return self._offer(response)
            return self._authenticated(self._context.unwrap(response))
        except KerberosError as error:
            return Failed(reason=f"GSSAPI: {error}", is_retriable=error.is_retriable)

    def _accept(self, response: bytes) -> Outcome:
        token = self._context.step(response)
        if self._context.is_established:
            self.state = GssapiState.OFFER
            if not token:
                return self._offer(b"")
        return Challenge(token)

    def _offer(self, response: bytes) -> Outcome:
        if response:
            return Failed(reason="GSSAPI: a token after the context was established")
        self.state = GssapiState.LAYER
        return Challenge(self._context.wrap(_OFFER))

    def _authenticated(self, choice: bytes) -> Outcome:
        if len(choice) < _LAYER_BYTES or not choice[0] & _NO_LAYER:
            return Failed(reason="GSSAPI: the client selects a security layer, and there is none")
        try:
            name = self._names.name_of(self._context.initiator)
        except NoUserName as error:
            return Failed(reason=f"GSSAPI: {error}")
        return Authenticated(Principal(USER_TYPE, name), is_silent=True)


class GssapiClientFailed(Exception):
    """There is no ticket for the server, or it is not what it claims to be."""


class GssapiClient:
    """The client's side: the broker itself when it logs in to another."""

    def __init__(self, context: GssContext) -> None:
        self._context = context
        self.is_complete = False

    def evaluate(self, challenge: bytes) -> GssapiWork[bytes | KerberosError]:
        return GssapiWork(partial(self._answer, challenge))

    def resume(self, answer: bytes | KerberosError) -> bytes:
        """The next message. Raises GssapiClientFailed."""
        if isinstance(answer, KerberosError):
            raise GssapiClientFailed(f"GSSAPI: {answer}")
        return answer

    def _answer(self, challenge: bytes) -> bytes | KerberosError:
        try:
            if not self._context.is_established:
                return self._context.step(challenge)
            offer = self._context.unwrap(challenge)
            if len(offer) != _LAYER_BYTES or not offer[0] & _NO_LAYER:
                return KerberosError("the server insists on a security layer, and there is none")
            choice = self._context.wrap(_OFFER)
        except KerberosError as error:
            return error
        self.is_complete = True
        return choice

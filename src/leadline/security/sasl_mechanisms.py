"""The interface of a SASL mechanism: bytes of the client in, an outcome out.

Pure: values and a protocol.

A mechanism makes one exchange per login. The exchange gets the client's messages one at a time, and answers each with
    Challenge       bytes for the client; the exchange continues
    Authenticated   the client's principal, last bytes for it, and when its credential expires
    Failed          why, in words for the client; without any where words would help an attacker
After Authenticated or Failed an exchange is over and is asked nothing more. One that may block answers with work for a
thread, which comes to one of these outcomes; meanwhile it is asked nothing.

    an exchange that fails has not said whether the user exists, other than to a client that knows the password
    no message and no repr of an outcome contains a secret, bytes for the client included
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from leadline.hash_order import java_map, string_hash
from leadline.security.principal import Principal

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Challenge:
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Authenticated:
    principal: Principal
    data: bytes = field(default=b"", repr=False)
    expires_ms: int | None = None  # wall clock; of an OAUTHBEARER or a delegation token
    is_silent: bool = False  # where tokens travel bare, the client waits for no last message, not even an empty one


@dataclass(frozen=True, slots=True)
class Failed:
    message: str | None = None  # for the client; None: only that its credentials are invalid
    reason: str = ""  # for our log, without secrets; empty: the message is enough
    is_retriable: bool = False  # close without a word: a client takes that for a broken connection, and tries again


Outcome = Challenge | Authenticated | Failed


class ThreadWork(Protocol[T_co]):
    """Work that may block or take a while, for a thread."""

    @property
    def run(self) -> Callable[[], T_co]: ...


class SaslExchange(Protocol):
    """One login by one mechanism."""

    def evaluate(self, response: bytes, now_ms: int) -> Outcome | ThreadWork[Outcome]: ...


class EnabledMechanisms:
    """The mechanisms of a listener by name, in the order in which Kafka lists them to clients: a Java HashSet's."""

    def __init__(self, new_exchange: Mapping[str, Callable[[], SaslExchange]]) -> None:
        assert new_exchange, "a SASL listener has a mechanism"
        self._new_exchange = new_exchange
        self.names = mechanism_names(new_exchange)

    def __contains__(self, name: str) -> bool:
        return name in self._new_exchange

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def new_exchange(self, name: str) -> SaslExchange:
        return self._new_exchange[name]()


def mechanism_names(names: Iterable[str]) -> list[str]:
    return java_map(dict.fromkeys(names), string_hash)

"""Rules for the requests of clients: a test delays them, answers them with an error, drops or repeats them.

    delay       the request is served later, by the clock of the cluster
    fail        the request is not served, and its response carries an error code
    drop        the connection is closed: before the request is served, or when its response is lost
    duplicate   the request is served twice, and the client gets one response

A rule applies to the requests of clients, not to those among brokers, unless it says `of_brokers`. The first rule that
matches decides.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from leadline.errors import ERROR_NAMES
from leadline.model import NONE
from leadline.testing.message_parts import NamedPart
from leadline.testing.seen_requests import SeenRequest
from leadline.wire.apis import APIS

API_NAMES = {api.name for api in APIS.values()}
CODES_OF_ERRORS = {name: code for code, name in ERROR_NAMES.items() if code != NONE}


class RuleAction(Enum):
    DELAY = "delay"
    FAIL = "fail"
    DROP_REQUEST = "drop the request"
    DROP_RESPONSE = "drop the response"
    DUPLICATE = "duplicate"


@dataclass(eq=False)
class RequestRule:
    """As a context manager, it ends with its block."""

    action: RuleAction
    api: str | None
    topic: str | None = None
    partition: int | None = None
    client_id: str | None = None
    broker: int | None = None
    when: Callable[[SeenRequest], bool] | None = None
    times: int | None = None  # how often it applies; None: always
    of_brokers: bool = False
    delay_s: float = 0.0
    error_code: int = 0
    hits: int = 0  # how often it has applied
    _remove: Callable[["RequestRule"], None] = field(default=lambda rule: None, repr=False)

    def __enter__(self) -> "RequestRule":
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Requests that are delayed already still wait."""
        self._remove(self)

    def matches(self, request: SeenRequest) -> bool:
        if self.times is not None and self.hits >= self.times:
            return False
        if self.api not in (None, request.api) or self.broker not in (None, request.broker):
            return False
        if request.is_of_broker and not self.of_brokers:
            return False
        if self.client_id not in (None, request.client_id):
            return False
        if self.topic is not None and not any(map(self.names, request.parts)):
            return False
        return self.when is None or bool(self.when(request))

    def names(self, part: NamedPart | None) -> bool:
        """Whether the rule is about a part of a request."""
        if self.topic is None or part is None:
            return True
        return part.topic == self.topic and (self.partition is None or part.partition in (None, self.partition))


def checked_api(name: str | None) -> str | None:
    """Raises ValueError for a request that Kafka does not have."""
    if name is None or name in API_NAMES:
        return name
    raise ValueError(f"there is no request {name!r}{_nearest(name, API_NAMES)}")


def error_code_of(error: str | int) -> int:
    """The code of an error that is given by name, such as NOT_LEADER_OR_FOLLOWER, or as a code."""
    if isinstance(error, int):
        if error not in CODES_OF_ERRORS.values():
            raise ValueError(f"there is no error code {error}")
        return error
    if error not in CODES_OF_ERRORS:
        raise ValueError(f"there is no error {error!r}{_nearest(error.upper(), CODES_OF_ERRORS)}")
    return CODES_OF_ERRORS[error]


def _nearest(name: str, names: "set[str] | dict[str, int]") -> str:
    near = difflib.get_close_matches(name, names, 1, 0.5)
    return f": did you mean {near[0]}?" if near else f". There are: {', '.join(sorted(names))}"

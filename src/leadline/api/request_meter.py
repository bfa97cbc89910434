"""The cost of a request while quotas are in force, and the throttle time that follows from it.

There is a meter for each request once a quota was seen, and none before. The time of a request is the time that the
loop spent on it: in its handler until the response is there, not while it waits; and on the network, which counts for
the next request. `security/throttling.py` has the rules.

    a request is counted once, when its response is there
    the response leaves at once with its throttle time; then the connection is muted for that time
    an inter-broker request is exempt, unless it is refused because its sender is not a broker
"""

from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, NamedTuple, TypeVar

from leadline.runtime.ports import Time
from leadline.security.client_quotas import ClientQuotas
from leadline.security.throttling import (
    EXEMPT,
    PRODUCE,
    FetchLimits,
    QuotaClient,
    fetch_limits,
    fetch_throttle_ms,
    is_limited,
    produce_throttle_ms,
    record_network_time,
    request_throttle_ms,
)
from leadline.wire.classes import Message

NANOS = 1_000_000_000
T = TypeVar("T")


class RequestMeter:
    __slots__ = (
        "_api_key", "_clock", "_is_counted", "_mute", "_quotas", "_request_bytes", "_running_since_s", "_spent_s",
        "client",
    )  # fmt: skip

    def __init__(
        self,
        client: "ClientMeter",
        api_key: int,
        request_bytes: int,
        started_s: float,
        mute: Callable[[int], None],
    ) -> None:
        self._quotas, self._clock, self.client = client
        self._api_key, self._request_bytes, self._mute = api_key, request_bytes, mute
        self._running_since_s: float | None = started_s  # None: it waits
        self._spent_s = 0.0  # before
        self._is_counted = api_key in EXEMPT

    @property
    def is_limited(self) -> bool:
        """Its client has a quota for bytes that it sends, or for time."""
        return is_limited(self._quotas, self.client, self._clock.now_ms())

    def exempt(self) -> None:
        """It turns out to be the fetch of a follower."""
        self._is_counted = True

    def refused(self) -> None:
        """It is an inter-broker request, and its sender is not a broker."""
        self._is_counted = False

    def pause(self) -> None:
        """Its handler waits for something."""
        self._spent_s, self._running_since_s = self._handler_s(), None

    def step(self, run: Callable[[], T]) -> T:
        """A part of the computation."""
        self._running_since_s = self._clock.monotonic_s()
        try:
            return run()
        finally:
            self.pause()

    # When the response is there

    def fetch_limits(self, requested: FetchLimits) -> FetchLimits:
        return fetch_limits(self._quotas, self.client, requested, self._clock.now_ms())

    def fetch_throttle_ms(self, response_bytes: int) -> int:
        """The throttle time of a consumer. If it is not 0, the response must be empty."""
        self._is_counted = True
        now_ms = self._clock.now_ms()
        return fetch_throttle_ms(self._quotas, self.client, response_bytes, self._handler_ns(), now_ms)

    def finish(self, response: Message | None) -> None:
        """Put the throttle time into the response, and mute the connection. None: there is no response."""
        by_handler: int = getattr(response, "throttle_time_ms", 0)
        throttle_ms = max(by_handler, self._count(is_answered=response is not None))
        if throttle_ms:
            if response is not None and hasattr(response, "throttle_time_ms"):
                response.throttle_time_ms = throttle_ms
            self._mute(throttle_ms)

    def finish_encoded(self) -> int:
        """The same for a response that is encoded already: its throttle time."""
        throttle_ms = self._count(is_answered=True)
        if throttle_ms:
            self._mute(throttle_ms)
        return throttle_ms

    def _count(self, *, is_answered: bool) -> int:
        if self._is_counted:
            return 0
        self._is_counted = True
        quotas, client, handler_ns, now_ms = self._quotas, self.client, self._handler_ns(), self._clock.now_ms()
        if self._api_key == PRODUCE:
            acks = 1 if is_answered else 0
            return produce_throttle_ms(quotas, client, self._request_bytes, handler_ns, acks, now_ms)
        return request_throttle_ms(quotas, client, handler_ns, now_ms)

    def _handler_ns(self) -> int:
        return int(self._handler_s() * NANOS)

    def _handler_s(self) -> float:
        since_s = self._running_since_s
        return self._spent_s if since_s is None else self._spent_s + self._clock.monotonic_s() - since_s


class TimedAnswer(Awaitable[T]):
    """Runs a computation step by step, and reports to a meter how long the steps take."""

    def __init__(self, answer: Awaitable[T], meter: RequestMeter) -> None:
        self._answer, self._meter = answer, meter

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._answer.__await__()
        run: Callable[[], Any] = partial(next, steps)
        while True:
            try:
                waited_for = self._meter.step(run)
            except StopIteration as done:
                result: T = done.value
                return result
            try:
                yield waited_for
                run = partial(next, steps)
            except BaseException as error:  # noqa: BLE001  it is passed to the computation
                run = partial(steps.throw, error)


class ClientMeter(NamedTuple):
    """What measures one client: each of its requests has a meter, and its socket takes time as well."""

    quotas: ClientQuotas
    clock: Time
    client: QuotaClient

    def record_network_time(self, seconds: float) -> None:
        record_network_time(self.quotas, self.client, int(seconds * NANOS), self.clock.now_ms())

"""How long a client is throttled after a request: the times that its responses carry, and its connection is muted for.

Pure: bytes and durations in, milliseconds out.

    Produce     its bytes, and the time of its handler; the longer of both. With acks=0 the bytes alone
    Fetch       the time of its handler, then the bytes of the response; the longer of both. If that is not 0, an empty
                response takes the place of the full one, and its bytes are not counted
    others      the time of the handler
    mutations   those of the token bucket, and the time of the handler; the longer of both

The response leaves at once; then nothing is read from the connection until the time is over. The time for bytes may be
long; that for the time of handlers is one sample of the rate at most.
"""

from typing import NamedTuple

from leadline.security.client_quotas import ClientQuotas, QuotaKind
from leadline.security.rates import INT_MAX

PRODUCE = 0  # its api key
NANOS_TO_PERCENTAGE_PER_SECOND = 100.0 / 1_000_000_000

# Requests among brokers, to which no quota for the time of handlers applies: LeaderAndIsr, StopReplica, UpdateMetadata,
# ControlledShutdown, WriteTxnMarkers, AlterPartition. One that is refused because its sender is no broker is throttled.
EXEMPT = frozenset({4, 5, 6, 7, 27, 56})


class QuotaClient(NamedTuple):
    user: str  # the name of its principal
    client_id: str | None


class FetchLimits(NamedTuple):
    max_bytes: int
    min_bytes: int


def produce_throttle_ms(
    quotas: ClientQuotas, client: QuotaClient, request_bytes: int, handler_ns: int, acks: int, now_ms: int
) -> int:
    """`request_bytes`: header and body, without the size before them."""
    if not quotas.are_enabled:
        return 0
    for_bytes = _throttle_ms(quotas, QuotaKind.PRODUCER_BYTE_RATE, client, request_bytes, now_ms)
    return max(for_bytes, request_throttle_ms(quotas, client, handler_ns, now_ms) if acks else 0)


def fetch_throttle_ms(
    quotas: ClientQuotas, client: QuotaClient, response_bytes: int, handler_ns: int, now_ms: int
) -> int:
    """The throttle time of a consumer. If it is not 0, the response must be empty: its bytes are not counted."""
    for_time = request_throttle_ms(quotas, client, handler_ns, now_ms)
    throttle_ms = max(for_time, _throttle_ms(quotas, QuotaKind.CONSUMER_BYTE_RATE, client, response_bytes, now_ms))
    if throttle_ms:
        _record(quotas, QuotaKind.CONSUMER_BYTE_RATE, client, -response_bytes, now_ms)
    return throttle_ms


def request_throttle_ms(quotas: ClientQuotas, client: QuotaClient, handler_ns: int, now_ms: int) -> int:
    """The throttle time of any request but the exempt ones."""
    if not quotas.are_enabled:
        return 0
    percentage = handler_ns * NANOS_TO_PERCENTAGE_PER_SECOND
    return _throttle_ms(quotas, QuotaKind.REQUEST_PERCENTAGE, client, percentage, now_ms, quotas.sample_ms)


def record_network_time(quotas: ClientQuotas, client: QuotaClient, network_ns: int, now_ms: int) -> None:
    """After the response has left: it counts, and the next request is throttled for it."""
    percentage = network_ns * NANOS_TO_PERCENTAGE_PER_SECOND
    _record(quotas, QuotaKind.REQUEST_PERCENTAGE, client, percentage, now_ms)


def is_limited(quotas: ClientQuotas, client: QuotaClient, now_ms: int) -> bool:
    """Whether a client that produces can be throttled at all."""
    measures = (
        quotas.measure(kind, *client, now_ms) for kind in (QuotaKind.PRODUCER_BYTE_RATE, QuotaKind.REQUEST_PERCENTAGE)
    )
    return any(measure is not None and measure.bound is not None for measure in measures)


def fetch_limits(quotas: ClientQuotas, client: QuotaClient, requested: FetchLimits, now_ms: int) -> FetchLimits:
    """No more than the quota allows in its window, so that a response alone never violates it."""
    measure = quotas.measure(QuotaKind.CONSUMER_BYTE_RATE, *client, now_ms)
    if measure is None or measure.bound is None:
        allowed = INT_MAX
    else:
        allowed = int(min(max(measure.bound * (quotas.samples - 1) * quotas.sample_ms / 1000, 0), INT_MAX))
    max_bytes = min(requested.max_bytes, allowed)
    return FetchLimits(max_bytes, min(requested.min_bytes, max_bytes))


def _throttle_ms(
    quotas: ClientQuotas, kind: QuotaKind, client: QuotaClient, value: float, now_ms: int, at_most_ms: int = INT_MAX
) -> int:
    measure = quotas.measure(kind, *client, now_ms)
    return 0 if measure is None else measure.record_and_throttle_ms(value, now_ms, at_most_ms)


def _record(quotas: ClientQuotas, kind: QuotaKind, client: QuotaClient, value: float, now_ms: int) -> None:
    if (measure := quotas.measure(kind, *client, now_ms)) is not None:
        measure.record(value, now_ms)

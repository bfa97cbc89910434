"""The token bucket of controller mutations: partitions that a client may create or delete.

Pure: values and times in, a decision out. Times are milliseconds of the wall clock.

The bucket fills with as many tokens a second as the quota says, up to those of eleven seconds; it is full at first. A
partition takes one.
    strict, of requests that know the error: a topic is refused while the bucket is overdrawn, and may overdraw it
    permissive, of older requests and of auto-creation: nothing is refused; the client is throttled instead
"""

from leadline.errors import ThrottlingQuotaExceeded
from leadline.security.rates import DEFAULT_SAMPLE_MS, DEFAULT_SAMPLES, INT_MAX, java_round

STRICT_SINCE = {19: 6, 37: 3, 20: 5}  # CreateTopics, CreatePartitions, DeleteTopics: from this version on


class TokenBucket:
    """The tokens of one client, or of the clients that share a quota."""

    __slots__ = ("_burst_s", "_last_ms", "_tokens")

    def __init__(self, samples: int = DEFAULT_SAMPLES, sample_ms: int = DEFAULT_SAMPLE_MS) -> None:
        self._burst_s = samples * (sample_ms / 1000.0)
        self._tokens = 0.0  # as of the beginning of time, which is long enough ago to fill it
        self._last_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        """Below 0: overdrawn."""
        self._tokens = min(self._burst_s * rate, self._tokens + rate * ((now_ms - self._last_ms) / 1000.0))
        self._last_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        self._tokens = min(self._burst_s * rate, self.tokens(rate, now_ms) - count)

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Until it is no longer overdrawn."""
        tokens = self.tokens(rate, now_ms)
        if tokens >= 0:
            return 0
        return min(java_round(-tokens / rate * 1000), INT_MAX) if rate > 0 else INT_MAX

    def is_full(self, rate: float, now_ms: int) -> bool:
        """So that a new one would be the same."""
        return self._tokens + rate * ((now_ms - self._last_ms) / 1000.0) >= self._burst_s * rate


class MutationQuota:
    """The quota of one request. It is made for the request, and keeps its throttle time."""

    def __init__(self, bucket: TokenBucket | None, rate: float | None, *, strict: bool) -> None:
        """Without a bucket or a rate there is no limit."""
        self._bucket, self._rate, self._strict = bucket, rate, strict
        self._throttle_ms = self._at_ms = 0

    @property
    def is_exceeded(self) -> bool:
        """The rest of the request is refused."""
        return self._strict and self._throttle_ms > 0

    def record(self, count: float, now_ms: int) -> None:
        """Before a topic is created, extended or deleted. Raises ThrottlingQuotaExceeded where it must not be."""
        if self._bucket is None or self._rate is None:
            return
        if not self._strict:
            self._bucket.take(count, self._rate, now_ms)
            self._note(self._bucket.throttle_ms(self._rate, now_ms), now_ms)
        elif throttle_ms := self._bucket.throttle_ms(self._rate, now_ms):
            self._note(throttle_ms, now_ms)
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")
        else:
            self._bucket.take(count, self._rate, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Reduced by the time that has passed since."""
        return max(0, self._throttle_ms - (now_ms - self._at_ms))

    def _note(self, throttle_ms: int, now_ms: int) -> None:
        if throttle_ms:
            self._throttle_ms, self._at_ms = throttle_ms, now_ms


def is_strict(api_key: int | None, version: int) -> bool:
    return api_key in STRICT_SINCE and version >= STRICT_SINCE[api_key]

"""What a broker counts of its requests: how many, with which errors, and how long they took. Kafka's RequestMetrics.

The times of a request, as Kafka names them:

    local     the loop worked on it until there was a response, or until it had to wait
    remote    it waited: for followers, for records, for the disk, for members of a group
    total     both. A request that does not wait is counted once, and its local time is its total time
    throttle  the time for which a quota makes its client wait

A fetch is counted as that of a consumer or of a follower. Both together are `Fetch`.
"""

from collections import Counter

from leadline.runtime.latency_histogram import LatencyHistogram
from leadline.wire.classes import Message
from leadline.wire.error_codes import error_codes

FETCH = 1
OF_FOLLOWER = 1 << 16  # in the kind of a fetch

RequestKind = int  # api key << 8 | version; a fetch has also whether a follower sent it


class WaitTimes:
    """The times of requests that waited."""

    def __init__(self) -> None:
        self.local, self.remote, self.total = LatencyHistogram(), LatencyHistogram(), LatencyHistogram()


class RequestTimes(LatencyHistogram):
    """The times of one kind of request. The histogram itself counts the requests that did not wait."""

    __slots__ = ("waits",)

    def __init__(self) -> None:
        super().__init__()
        self.waits: WaitTimes | None = None  # None: none has waited

    @property
    def requests(self) -> int:
        return sum(self.counts) + (0 if self.waits is None else sum(self.waits.local.counts))

    def begin_waits(self) -> WaitTimes:
        """The first one waits."""
        self.waits = WaitTimes()
        return self.waits


class _TimesByKind(dict[RequestKind, RequestTimes]):
    def __missing__(self, kind: RequestKind) -> RequestTimes:
        times = self[kind] = RequestTimes()
        return times


class RequestMetrics:
    def __init__(self) -> None:
        self.times = _TimesByKind()
        self.throttle_times: dict[int, LatencyHistogram] = {}  # by api key; of requests that were throttled
        self.errors: Counter[tuple[int, int]] = Counter()  # by api key and error code

    @property
    def requests(self) -> int:
        """All that were served."""
        return sum(times.requests for times in self.times.values())

    def count_errors(self, api_key: int, response: Message) -> None:
        for code in error_codes(response):
            self.errors[api_key, code] += 1

    def throttled(self, api_key: int, throttle_ms: int) -> None:
        self.throttle_times.setdefault(api_key, LatencyHistogram()).record(throttle_ms / 1000)

"""Requests: Kafka's RequestMetrics, by request, version and error."""

from collections import defaultdict
from collections.abc import Hashable, Iterator

from leadline.api import TABLE
from leadline.api.request_metrics import FETCH, OF_FOLLOWER, RequestMetrics, RequestTimes
from leadline.errors import error_name
from leadline.metrics.families import Collected, FamilySet, HistogramFamilies, labels_text
from leadline.metrics.sources import MeasuredTimes, MetricsSources, histogram_samples
from leadline.runtime.latency_histogram import BUCKETS, Counts, LatencyHistogram, summed

FAMILIES = FamilySet("Requests")
_PREFIX = "kafka_network_requestmetrics"
REQUESTS = FAMILIES.counter(
    f"{_PREFIX}_requests_total",
    "Requests that were served. Fetch is FetchConsumer and FetchFollower together",
    "request",
    "version",
)
ERRORS = FAMILIES.counter(
    f"{_PREFIX}_errors_total", "Error codes in responses, one for each partition or other part", "request", "error"
)
TOTAL = FAMILIES.histogram(f"{_PREFIX}_totaltimems", "Time from a request to its response", "request")
LOCAL = FAMILIES.histogram(f"{_PREFIX}_localtimems", "Time that the loop worked on a request at once", "request")
REMOTE = FAMILIES.histogram(
    f"{_PREFIX}_remotetimems", "Time that a request waited for followers, records, the disk or a group", "request"
)
THROTTLE = FAMILIES.histogram(f"{_PREFIX}_throttletimems", "Time that clients have to wait by a quota", "request")

_BY_FAMILY: tuple[HistogramFamilies, ...] = (TOTAL, LOCAL, REMOTE, THROTTLE)


def collect(sources: MetricsSources) -> Collected:
    metrics = sources.broker.requests.metrics
    yield REQUESTS, _request_counts(metrics)
    yield (
        ERRORS,
        [
            (labels_text(request=TABLE[key].name, error=error_name(code)), count)
            for (key, code), count in metrics.errors.items()
            if key in TABLE
        ],
    )
    measured = measured_times(metrics)
    yield None
    for families, by_request in measured.items():
        rows = [({"request": request}, times) for request, times in by_request.items()]
        yield from histogram_samples(families, rows, sources.recent)
        yield None


def snapshot(metrics: RequestMetrics) -> dict[Hashable, Counts]:
    return {
        times.key: times.snapshot for by_request in measured_times(metrics).values() for times in by_request.values()
    }


def _request_counts(metrics: RequestMetrics) -> list[tuple[str, float]]:
    counts: defaultdict[tuple[str, int], int] = defaultdict(int)
    for kind, times in metrics.times.items():
        for name in _names(kind):
            counts[name, kind & 0xFF] += times.requests
    return [(labels_text(request=name, version=version), count) for (name, version), count in counts.items()]


def _names(kind: int) -> Iterator[str]:
    """As Kafka has them: a fetch counts twice."""
    key = (kind & ~OF_FOLLOWER) >> 8
    if key in TABLE:
        yield TABLE[key].name
        if key == FETCH:
            yield "FetchFollower" if kind & OF_FOLLOWER else "FetchConsumer"


def measured_times(metrics: RequestMetrics) -> dict[HistogramFamilies, dict[str, MeasuredTimes]]:
    kinds: defaultdict[str, list[RequestTimes]] = defaultdict(list)
    for kind, times in metrics.times.items():
        for name in _names(kind):
            kinds[name].append(times)
    measured: dict[HistogramFamilies, dict[str, MeasuredTimes]] = {families: {} for families in _BY_FAMILY}
    throttled = {TABLE[key].name: times for key, times in metrics.throttle_times.items() if key in TABLE}
    for name, all_times in kinds.items():
        waits = [times.waits for times in all_times if times.waits is not None]
        at_once = sum(sum(times.counts) for times in all_times)
        totals, locals_ = [wait.total for wait in waits], [wait.local for wait in waits]
        measured[TOTAL][name] = _summed(TOTAL, name, [*all_times, *totals])
        measured[LOCAL][name] = _summed(LOCAL, name, [*all_times, *locals_])
        measured[REMOTE][name] = _summed(REMOTE, name, [wait.remote for wait in waits], zeros=at_once)
        throttle_times = [throttled[name]] if name in throttled else []
        others = sum(times.requests for times in all_times) - sum(sum(times.counts) for times in throttle_times)
        measured[THROTTLE][name] = _summed(THROTTLE, name, throttle_times, zeros=max(others, 0))
    return measured


def _summed(
    families: HistogramFamilies, name: str, histograms: list[LatencyHistogram], zeros: int = 0
) -> MeasuredTimes:
    counts = summed(histogram.counts for histogram in histograms) if histograms else [0] * BUCKETS
    total_s = sum(histogram.total_s for histogram in histograms)
    return MeasuredTimes((families.quantiles.name, name), counts, total_s, zeros)

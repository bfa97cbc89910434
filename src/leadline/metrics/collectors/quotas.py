"""Quotas: the usage of clients that share one, and their current throttle time."""

from leadline.metrics.families import Collected, Family, FamilySet, labels_text
from leadline.metrics.sources import MetricsSources
from leadline.security.client_quotas import QuotaKind
from leadline.security.rates import INT_MAX

FAMILIES = FamilySet("Quotas")
_LABELS = ("resource", "user", "clientId")
BYTE_RATE = FAMILIES.gauge("kafka_server_quota_byte_rate", "Bytes per second of clients that share a quota", *_LABELS)
REQUEST_TIME = FAMILIES.gauge(
    "kafka_server_quota_request_time", "Time on the loop of clients that share a quota, in percent", *_LABELS
)
THROTTLE_TIME = FAMILIES.gauge(
    "kafka_server_quota_throttle_time", "Milliseconds that they have to wait until they are below it", *_LABELS
)
LIMIT = FAMILIES.gauge("leadline_quota_limit", "The quota itself, where one is set", *_LABELS)

_RESOURCES: dict[QuotaKind, tuple[str, Family]] = {
    QuotaKind.PRODUCER_BYTE_RATE: ("Produce", BYTE_RATE),
    QuotaKind.CONSUMER_BYTE_RATE: ("Fetch", BYTE_RATE),
    QuotaKind.REQUEST_PERCENTAGE: ("Request", REQUEST_TIME),
}


def collect(sources: MetricsSources) -> Collected:
    quotas, now_ms = sources.broker.services.quotas, sources.broker.clock.now_ms()
    rates: dict[Family, list[tuple[str, float]]] = {BYTE_RATE: [], REQUEST_TIME: []}
    throttles: list[tuple[str, float]] = []
    limits: list[tuple[str, float]] = []
    for kind, (resource, family) in _RESOURCES.items():
        for measure in quotas.measures(kind):
            labels = labels_text(resource=resource, user=measure.key.user, clientId=measure.key.client_id)
            rates[family].append((labels, measure.rate.per_second(now_ms)))
            if measure.bound is not None:
                throttles.append((labels, min(measure.rate.throttle_ms(measure.bound, now_ms), INT_MAX)))
                limits.append((labels, measure.bound))
        yield None
    yield from rates.items()
    yield THROTTLE_TIME, throttles
    yield LIMIT, limits

"""One scrape of a broker: what all collectors find, as text, in steps."""

from collections.abc import Callable, Hashable, Iterator

from leadline.broker.broker_lifecycle import BrokerLifecycle
from leadline.metrics.collectors import (
    controller,
    groups,
    logs,
    network,
    partitions,
    process,
    quotas,
    requests,
    topics,
)
from leadline.metrics.exposition import TextForm, exposed
from leadline.metrics.families import Collected, FamilySet
from leadline.metrics.health import reasons_not_ready
from leadline.metrics.sources import MetricsSources
from leadline.runtime.latency_histogram import Counts

Collect = Callable[[MetricsSources], Collected]

COLLECTORS: tuple[Collect, ...] = (
    process.collect,
    logs.collect,
    network.collect,
    requests.collect,
    topics.collect,
    controller.collect,
    groups.collect,
    quotas.collect,
    partitions.collect,
)
WHILE_STARTING: tuple[Collect, ...] = (process.collect, logs.collect_while_starting)

FAMILY_SETS: tuple[FamilySet, ...] = (
    process.FAMILIES,
    requests.FAMILIES,
    topics.FAMILIES,
    partitions.FAMILIES,
    controller.FAMILIES,
    groups.FAMILIES,
    logs.FAMILIES,
    network.FAMILIES,
    quotas.FAMILIES,
)

_WITH_PARTS = (BrokerLifecycle.RUNNING, BrokerLifecycle.PENDING_CONTROLLED_SHUTDOWN)


class BrokerMetrics:
    """A broker, as the HTTP server serves it."""

    def __init__(self, sources: MetricsSources) -> None:
        self.sources = sources

    def scrape(self, form: TextForm) -> Iterator[str]:
        return scrape(self.sources, form)

    def reasons_not_ready(self) -> list[str]:
        return reasons_not_ready(self.sources.broker)

    def end_period(self) -> None:
        end_period(self.sources)


def scrape(sources: MetricsSources, form: TextForm) -> Iterator[str]:
    """The text, portion by portion. A broker that starts or stops has few metrics."""
    collectors = COLLECTORS if sources.broker.state in _WITH_PARTS else WHILE_STARTING
    return exposed((samples for collect in collectors for samples in collect(sources)), form)


def end_period(sources: MetricsSources) -> None:
    """Called every minute: takes a snapshot for recent counts."""
    broker, loop = sources.broker, sources.loop
    if loop is not None and sources.idleness is not None:
        loop.end_period()
        sources.idleness.end_period(broker.clock.monotonic_s(), loop.busy_s)
    if broker.state in _WITH_PARTS:
        counts: dict[Hashable, Counts] = requests.snapshot(broker.requests.metrics)
        counts[logs.FLUSH_KEY] = list(broker.dirs.flush_times.counts)
        sources.recent.end_period(counts)

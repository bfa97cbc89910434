"""Collectors work in steps, however many partitions there are."""

from leadline.metrics.collectors import partitions
from leadline.metrics.sources import metrics_sources
from leadline.runtime.steps import PORTION
from tests.support.in_memory_broker import InMemoryClient, run


def test_partitions_are_looked_at_in_portions() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("many", 5 * PORTION)
        collected = list(partitions.collect(metrics_sources(client.broker)))
        first = next(n for n, samples in enumerate(collected) if samples is not None)
        assert first == 5  # a step for each portion comes before the first family
        sizes = next(iter(samples for samples in collected if samples and samples[0] is partitions.LOG_SIZE))[1]
        assert len(list(sizes)) == 5 * PORTION

    run(test)


def test_a_partition_below_its_minimum_is_counted_for_its_leader() -> None:
    async def test(client: InMemoryClient) -> None:
        await client.create("orders")
        ((tp, hosted),) = client.broker.replicas.hosted.items()
        status = partitions.status_of(tp, hosted)
        assert status.labels == '{topic="orders",partition="0"}'
        assert (status.replicas, status.in_sync, status.under_replicated, status.at_min_isr) == (1, 1, 0, 1)
        leader = hosted.leader
        leader.followers[2] = leader.followers[3] = object()  # type: ignore[assignment]
        hosted.log.config = hosted.log.config.with_values({"min.insync.replicas": "2"})
        status = partitions.status_of(tp, hosted)
        assert (status.replicas, status.under_replicated, status.under_min_isr, status.at_min_isr) == (3, 1, 1, 0)
        leader.followers.clear()

    run(test)

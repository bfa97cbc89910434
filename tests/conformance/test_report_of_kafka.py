"""A report of Apache Kafka, asked of its broker and read from its files, is that of Leadline with the same records."""

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.spark.files import segments
from leadline.spark.report import report_job, report_plan, report_task
from leadline.spark.report.report_plan import ReportPlan
from leadline.spark.report.report_task import ReportOutcome
from leadline.spark.report.topic_report import TopicReport
from tests.conformance.both import Both
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

ORDERS, COMMITTED = 1000, 300
START_MS = 1_700_000_000_000


def fill(server: str, topic: str) -> None:
    """Each record in a batch of its own, so that both have the same bytes."""
    producer = Producer({"bootstrap.servers": server, "linger.ms": 0, "batch.num.messages": 1})
    for n in range(ORDERS):
        value = None if n % 50 == 0 else f"order {n}" * 9
        producer.produce(topic, value, f"shop-{n % 7}", partition=n % 2, timestamp=START_MS + n * 60_000)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": server, "group.id": f"readers-of-{topic}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def is_checkpointed(dirs: list[str], topic: str) -> bool:
    """Whether the files show no uncommitted records."""
    logs = segments.logs_in(dirs, [topic, OFFSETS_TOPIC])
    return all(log.high_watermark in (None, segments.log_end(log)) for log in logs)


def made(work: ReportPlan, server: str) -> TopicReport:
    outcome = ReportOutcome()
    for task in work.tasks:
        outcome.merge(report_task.run_report_task({"bootstrap.servers": server}, work.topics, task))
    assert outcome.errors == []
    (topic,) = report_job.finished_report(work, outcome).topics
    return topic


def facts(report: TopicReport) -> object:
    """All that depends neither on the broker nor on the time."""
    figures = report.figures
    parts = [(n, part.batches, part.records, part.stored, part.tombstones) for n, part in sorted(figures.parts.items())]
    slots = {n: (part.slots.starts.tolist(), part.slots.bytes.tolist()) for n, part in figures.parts.items()}
    lag = [(group_lag.group, dict(group_lag.by_partition)) for group_lag in report.lags]
    return parts, slots, figures.hot.top(10), figures.kept(), figures.codecs, figures.tried, lag


def test_it_is_the_same_for_both_from_brokers_and_from_files(both: Both) -> None:
    topic = both.create("reported", 3, retention_ms=10**12, retention_bytes=10**9)
    for side in both.sides:
        fill(side.bootstrap, topic)
    from_brokers = [
        report_plan.plan_from_brokers({"bootstrap.servers": side.bootstrap}, [topic]) for side in both.sides
    ]
    theirs, ours = (made(work, side.bootstrap) for work, side in zip(from_brokers, both.sides, strict=True))
    assert facts(theirs) == facts(ours)
    assert theirs.figures.records == ORDERS
    for limits in (theirs.limits, ours.limits):
        assert (limits.retention_ms, limits.retention_bytes, limits.cleanup_policy) == (10**12, 10**9, "delete")
        assert (limits.disk_free or 0) > 0
    for side in both.sides:
        until(lambda side=side: is_checkpointed(side.dirs, topic), 60)  # type: ignore[misc]
        assert facts(made(report_plan.plan_from_files(side.dirs, [topic]), side.bootstrap)) == facts(ours)

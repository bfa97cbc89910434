"""Topics of one cluster copied to another: all records once, in their partitions, whatever it is interrupted by.

The tasks run here, one after the other, as Spark would run them.
"""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from leadline.model import TopicPartition
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.range_fetch import FetchOptions, rows
from leadline.spark.client.transaction import Fenced
from leadline.spark.mirror.copy_task import run_copy_task
from leadline.spark.mirror.mirror import Mirror, MirrorSpec, RoundSummary
from leadline.spark.mirror.offset_map import OffsetMap
from leadline.spark.positions import DataLoss
from leadline.spark.ranges import Range
from leadline.spark.topics.options import SubscribedTopics, TopicPattern
from tests.support.broker import RunningBroker, leadline
from tests.support.steps import Died, Steps
from tests.support.topics import create_topic

_fresh = itertools.count()


@dataclass(frozen=True)
class Row:
    key: bytes | None
    value: bytes | None
    headers: object
    timestamp: object


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    home = tmp_path_factory.mktemp("mirror")
    with leadline(home / "source") as source, leadline(home / "target") as target:
        yield source, target


class Both:
    """A topic here, and what becomes of it over there."""

    def __init__(self, brokers: tuple[RunningBroker, RunningBroker], staging: Path) -> None:
        self.source, self.target = brokers
        self.topic, self.staging = f"orders-{next(_fresh)}", staging
        self.clusters: list[ClusterClient] = []
        create_topic(self.source.bootstrap, self.topic, 3, max_message_bytes="500000")

    def produce(self, count: int, *, commit: bool | None = None, codec: str = "lz4", first: int = 0) -> None:
        """`commit`: in a transaction, which is ended so."""
        settings = {"bootstrap.servers": self.source.bootstrap, "compression.type": codec, "linger.ms": 1}
        if commit is not None:
            settings["transactional.id"] = f"producer-{next(_fresh)}"
        producer = Producer(settings)
        if commit is not None:
            producer.init_transactions()
            producer.begin_transaction()
        for n in range(first, first + count):
            producer.produce(self.topic, key=f"k{n % 20}", value=f"v{n}", headers={"n": str(n)})
        producer.flush()
        if commit is not None:
            producer.commit_transaction() if commit else producer.abort_transaction()

    def cluster(self, broker: RunningBroker) -> ClusterClient:
        self.clusters.append(ClusterClient({"bootstrap.servers": broker.bootstrap}))
        return self.clusters[-1]

    def mirror(self, **spec: object) -> Mirror:
        mirror = Mirror(
            MirrorSpec(
                name=self.topic,
                source={"bootstrap.servers": self.source.bootstrap},
                target={"bootstrap.servers": self.target.bootstrap},
                topics=SubscribedTopics((self.topic,)),
                prefix="copy.",
                staging=str(self.staging),
                **spec,  # type: ignore[arg-type]
            ),
            lambda jobs: [run_copy_task(job) for job in jobs],
            self.cluster(self.source),
            self.cluster(self.target),
        )
        mirror.load()
        return mirror

    def rows(self, broker: RunningBroker, topic: str) -> dict[int, dict[int, Row]]:
        """By partition and offset, as readers of committed records see them."""
        by_partition: dict[int, dict[int, Row]] = {}
        with ClusterClient({"bootstrap.servers": broker.bootstrap}) as cluster:
            partitions = cluster.existing_topics([topic])[topic].partitions
            earliest, latest = cluster.earliest(partitions), cluster.latest(partitions, committed=True)
            for tp in partitions:
                one = Range(tp, earliest[tp], latest[tp])
                by_partition[tp.partition] = {
                    row["offset"]: Row(row["key"], row["value"], str(row["headers"]), row["timestamp"])
                    for batch in rows(cluster, one, FetchOptions(committed=True), headers=True)
                    for row in batch.to_pylist()
                }
        return by_partition

    def check(self, offset_map: OffsetMap) -> None:
        """Both sides have the same records in the same order, and the map leads from each to its copy."""
        originals, copies = self.rows(self.source, self.topic), self.rows(self.target, f"copy.{self.topic}")
        for partition, records in originals.items():
            assert list(copies[partition].values()) == list(records.values())
            tp = TopicPartition(f"copy.{self.topic}", partition)
            for offset, copy_offset in zip(records, copies[partition], strict=True):
                assert offset_map.translate(tp, offset) == copy_offset


@pytest.fixture
def both(brokers: tuple[RunningBroker, RunningBroker], tmp_path: Path) -> Iterator[Both]:
    clusters = Both(brokers, tmp_path)
    yield clusters
    for cluster in clusters.clusters:
        cluster.close()


def until_done(mirror: Mirror) -> list[RoundSummary]:
    summaries = [mirror.round()]
    while summaries[-1].lag_offsets:
        summaries.append(mirror.round())
    return summaries


def test_all_kinds_of_records_are_copied_and_the_map_has_their_offsets(both: Both) -> None:
    both.produce(300, codec="none")
    both.produce(200, commit=False, first=1000)
    both.produce(200, commit=True, codec="zstd", first=2000)
    mirror = both.mirror(batch_bytes=2_000)
    summaries = until_done(mirror)
    assert len(summaries) > 2
    assert sum(summary.records for summary in summaries) == 500
    both.check(mirror.map)
    both.produce(100, first=3000)
    later = both.mirror()  # another process, that knows what the first one did
    assert sum(summary.records for summary in until_done(later)) == 100
    both.check(later.map)


def test_topics_over_there_are_made_alike(both: Both) -> None:
    both.produce(10)
    until_done(both.mirror())
    from leadline.spark.mirror.topic_clone import topic_configs

    with ClusterClient({"bootstrap.servers": both.target.bootstrap}) as target:
        assert topic_configs(target, f"copy.{both.topic}") == {"max.message.bytes": "500000"}
        assert len(target.existing_topics([f"copy.{both.topic}"])[f"copy.{both.topic}"].leaders) == 3


def test_interrupted_between_any_two_steps_nothing_is_lost_or_doubled(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    both.produce(30)
    until_done(both.mirror())
    at = Steps(monkeypatch)
    both.produce(30, first=100)
    at.before(0)
    until_done(both.mirror())
    steps, died = at.count, 0
    for step in range(1, steps + 1, 3):
        both.produce(5, first=1000 * step)
        at.before(step)
        try:
            both.mirror().round()
        except Died:
            died += 1
        at.before(0)
    assert died >= steps // 3
    mirror = both.mirror()
    until_done(mirror)
    both.check(mirror.map)


def test_a_second_one_of_its_name_takes_over(both: Both) -> None:
    both.produce(50)
    first, second = both.mirror(), both.mirror()
    run = first.run

    def overtaken(jobs):  # type: ignore[no-untyped-def]
        until_done(second)
        return run(jobs)

    first.run = overtaken
    with pytest.raises(Fenced, match="took over"):
        first.round()
    both.check(second.map)


def test_groups_go_on_over_there_where_they_stopped(both: Both) -> None:
    both.produce(90)
    mirror = both.mirror(groups=re.escape(f"readers of {both.topic}"))
    group, partitions = f"readers of {both.topic}", [TopicPartition(both.topic, n) for n in range(3)]
    ends = mirror.source.latest(partitions, committed=True)
    mirror.source.commit(group, {tp: end // 2 for tp, end in ends.items()})
    assert until_done(mirror)[-1].groups == 1
    copied = mirror.target.committed(group, [TopicPartition(f"copy.{tp.topic}", tp.partition) for tp in partitions])
    assert {tp.partition: note.offset for tp, note in copied.items()} == {
        tp.partition: mirror.map.translate(TopicPartition(f"copy.{both.topic}", tp.partition), end // 2)
        for tp, end in ends.items()
    }
    assert mirror.round().groups == 0


def test_records_deleted_before_they_were_copied_are_reported(both: Both) -> None:
    from confluent_kafka import TopicPartition as Theirs
    from confluent_kafka.admin import AdminClient

    both.produce(60)
    until_done(both.mirror())
    both.produce(60, first=100)
    mirror = both.mirror()
    ends = mirror.source.latest([TopicPartition(both.topic, n) for n in range(3)], committed=True)
    admin = AdminClient({"bootstrap.servers": both.source.bootstrap})
    for future in admin.delete_records([Theirs(*tp, end) for tp, end in ends.items()]).values():
        future.result(120)
    with pytest.raises(
        DataLoss, match=rf"{both.topic}-0: offsets \d+ to {ends[TopicPartition(both.topic, 0)] - 1} are"
    ):
        mirror.round()


def test_a_pattern_takes_in_topics_that_come_later(both: Both) -> None:
    both.produce(20)
    mirror = both.mirror()
    mirror.spec = MirrorSpec(
        name=both.topic,
        source=mirror.spec.source,
        target=mirror.spec.target,
        topics=TopicPattern(f"{both.topic}.*"),
        prefix="copy.",
        staging=str(both.staging),
    )
    until_done(mirror)
    create_topic(both.source.bootstrap, f"{both.topic}-later", 1)
    producer = Producer({"bootstrap.servers": both.source.bootstrap})
    producer.produce(f"{both.topic}-later", value=b"x")
    producer.flush()
    assert sum(summary.records for summary in until_done(mirror)) == 1
    assert [row.value for row in both.rows(both.target, f"copy.{both.topic}-later")[0].values()] == [b"x"]

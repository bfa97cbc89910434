"""A topic as a table: formats, modes, bad records, what transactions and compaction leave behind."""

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import Unreachable
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.positions import DataLoss
from leadline.spark.table.dead_letters import replay
from leadline.spark.table.table import TableError, WriterRefused
from leadline.spark.table.table_format import TABLE_FORMATS
from leadline.spark.table.table_writer import TableSpec
from tests.support.broker import RunningBroker, leadline
from tests.support.following import Feed, Pipeline
from tests.support.topics import create_topic

SETTINGS = {
    "log.segment.bytes": 20_000,
    "log.cleaner.backoff.ms": 50,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.segment.delete.delay.ms": 0,
}
WAIT_S = 120
_fresh = itertools.count()

Made = Callable[..., tuple[Feed, Pipeline]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("table") / "data", **SETTINGS) as running:
        yield running


@pytest.fixture
def made(spark: SparkSession, broker: RunningBroker, tmp_path: Path) -> Made:
    """A topic of its own, and a table for it: `made(format="json", kind="iceberg", cleanup_policy="compact")`."""

    def make(kind: str = "delta", settings: "dict[str, str] | None" = None, **options: object) -> tuple[Feed, Pipeline]:
        topic = f"orders-{next(_fresh)}"
        create_topic(broker.bootstrap, topic, 2, **(settings or {}))
        spec = TableSpec(topic, {}, **options)  # type: ignore[arg-type]
        return Feed(broker, topic), Pipeline(spark, broker, tmp_path / "table", spec, kind)

    return make


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_all_records_are_in_the_table_once_batch_after_batch(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, partition_by="day", batch_bytes=8000, group="table-of-orders")
    feed.more(200)
    first = pipeline.run()
    assert len(first) > 1
    assert first[-1].lag_offsets == 0
    assert first[0].lag_offsets > 0 < first[0].lag_bytes
    feed.more(100)
    pipeline.run()
    assert pipeline.run() == []
    pipeline.check(300)
    with ClusterClient(pipeline.spec.properties) as cluster:
        committed = {
            tp.partition: committed_offset.offset
            for tp, committed_offset in cluster.committed("table-of-orders").items()
        }
    state = pipeline.table.state()
    assert state is not None
    assert committed == state.progress.offsets


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_fields_become_columns_and_what_contradicts_them_dead_letters(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="json", partition_by="hour")
    feed.more(50)
    feed.send(b"no json")
    feed.flush()
    pipeline.run()
    feed.send(b'{"id": "not a number"}')
    feed.send(b'{"id": 1000, "where": {"city": "Bern", "at": [46.9, 7.4]}}')
    feed.send(None)
    feed.flush()
    (summary,) = pipeline.run()
    assert (summary.records, summary.dead) == (3, 1)
    rows = pipeline.rows()
    assert len(rows) == 52
    (new,) = [row for row in rows if row["id"] == 1000]
    assert new["where"] == {"city": "Bern", "at": [46.9, 7.4]}
    causes = sorted(str(letter["cause"]).split(",")[0] for letter in pipeline.dead_letters())
    assert causes[0].startswith("id is string")
    assert causes[1].startswith("no JSON")
    pipeline.check(54)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_a_table_by_key_has_the_last_of_each_and_no_tombstone(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, mode="upsert", batch_bytes=4000)
    feed.more(150)
    pipeline.run()
    feed.send(None, b"key 3")
    feed.send(b"the last", b"key 4")
    feed.flush()
    pipeline.run()
    values = {row["key"]: row["value"] for row in pipeline.rows()}
    assert len(values) == len(pipeline.rows()) == 19
    assert values[b"key 4"] == b"the last"
    assert b"key 3" not in values
    pipeline.check(152)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_the_mode_of_a_table_can_be_switched(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="json", partition_by="day")
    feed.more(60)
    feed.send(None, b"key 7")
    feed.flush()
    pipeline.run()
    assert len(pipeline.rows()) == 61
    pipeline.run(mode="upsert")
    assert len(pipeline.rows()) == 19
    pipeline.check(61)
    feed.more(20)
    pipeline.run(mode="upsert")
    pipeline.check(81)
    feed.more(5)
    pipeline.run(mode="append")
    assert len(pipeline.rows()) == 25


def test_records_of_aborted_transactions_are_no_rows(made: Made) -> None:
    feed, pipeline = made()
    sender = Feed(feed.broker, feed.topic, transactional_id=feed.topic)
    sender.producer.init_transactions(WAIT_S)
    for commits in (True, False, True):
        sender.producer.begin_transaction()
        sender.more(30)
        if commits:
            sender.producer.commit_transaction(WAIT_S)
        else:
            sender.producer.abort_transaction(WAIT_S)
    pipeline.run()
    pipeline.check(60)
    verdicts = pipeline.verdicts()
    assert sum(verdict.aborted for verdict in verdicts) == 30
    assert sum(verdict.control for verdict in verdicts) == 6
    assert len(pipeline.rows()) == 60


def test_a_compacted_topic_has_gaps_that_are_no_loss(made: Made) -> None:
    settings = {"cleanup_policy": "compact", "segment_bytes": "3000", "min_cleanable_dirty_ratio": "0.01"}
    feed, pipeline = made(settings=settings)
    feed.more(100)
    pipeline.run()
    before = feed.broker.output().count(f"compacted {feed.topic}")
    deadline = time.monotonic() + WAIT_S
    while feed.broker.output().count(f"compacted {feed.topic}") < before + 2:
        assert time.monotonic() < deadline, "nothing was compacted"
        feed.more(20)
        time.sleep(0.05)
    pipeline.run()
    verdicts = pipeline.verdicts()
    assert all(verdict.is_good for verdict in verdicts)
    assert sum(verdict.compacted for verdict in verdicts) > 0
    assert sum(verdict.older for verdict in verdicts) > 0


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_dead_letters_that_fit_by_now_become_rows_once(made: Made, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    feed, pipeline = made(format="avro", registry=str(pytest), mode=mode)
    registry = pipeline.path.parent / "schemas"
    registry.mkdir()
    pipeline.spec = replace(pipeline.spec, registry=str(registry))
    for number in (1, 2):
        feed.send(b"\0\0\0\0" + bytes([number]) + bytes([number * 2]), b"key %d" % number)  # id: number, as a varint
    feed.flush()
    (registry / "1.avsc").write_text('{"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}')
    pipeline.run()
    assert [row["id"] for row in pipeline.rows()] == [1]
    assert [letter["cause"] for letter in pipeline.dead_letters()] == [f"there is no 2.avsc in {registry}"]
    more = ', {"name": "note", "type": ["null", "string"], "default": null}'
    fields = '{"name": "id", "type": "long"}'
    (registry / "2.avsc").write_text(f'{{"type": "record", "name": "r", "fields": [{fields}{more}]}}'.replace(more, ""))
    monkeypatch.setattr("leadline.spark.table.registry.MISSING_S", 0)
    dead = pipeline.dead
    with monkeypatch.context() as patch:  # ended between the two commits
        patch.setattr(type(dead), "rewrite", _fail)
        with pytest.raises(KeyboardInterrupt):
            replay(pipeline.table, dead, str(registry))
    done = replay(pipeline.table, pipeline.dead, str(registry))
    assert (done.replayed, done.left) == (1, 0)
    assert sorted(row["id"] for row in pipeline.rows()) == [1, 2]  # type: ignore[type-var]
    assert pipeline.dead_letters() == []
    pipeline.check(2)


def _fail(*_: object) -> None:
    raise KeyboardInterrupt


# What is refused


def test_a_table_of_another_topic_is_refused_and_left_as_it_is(made: Made) -> None:
    feed, pipeline = made()
    feed.more(5)
    pipeline.run()
    before = pipeline.table.state()
    other, _ = made()
    with pytest.raises(TableError, match=f"follows the topic {feed.topic}, not {other.topic}"):
        pipeline.run(topic=other.topic)
    assert pipeline.table.state() == before


def test_a_topic_that_was_created_again_is_another_one(made: Made) -> None:
    feed, pipeline = made()
    feed.more(5)
    pipeline.run()
    admin = AdminClient({"bootstrap.servers": feed.broker.bootstrap})
    admin.delete_topics([feed.topic])[feed.topic].result(WAIT_S)
    with pytest.raises(NoSuchTopic, match=f"there is no topic {feed.topic}"):
        pipeline.run()
    create_topic(feed.broker.bootstrap, feed.topic, 2)
    with pytest.raises(TableError, match="was deleted and created again"):
        pipeline.run()


def test_lost_records_are_reported_with_their_number(made: Made) -> None:
    feed, pipeline = made()
    feed.more(40)
    pipeline.run()
    feed.more(40)
    with ClusterClient(pipeline.spec.properties) as cluster:
        tps = cluster.existing_topics([feed.topic])[feed.topic].partitions
        ends = cluster.latest(tps, committed=True)
    from confluent_kafka import TopicPartition

    admin = AdminClient({"bootstrap.servers": feed.broker.bootstrap})
    positions = [TopicPartition(tp.topic, tp.partition, end - 1) for tp, end in ends.items()]
    for future in admin.delete_records(positions).values():
        future.result(WAIT_S)
    with pytest.raises(DataLoss, match=rf"{feed.topic}.*starts at"):
        pipeline.run()
    pipeline.run(fail_on_data_loss=False)
    assert len(pipeline.rows()) == 42


def test_an_unreachable_broker_is_reported_and_nothing_is_written(made: Made) -> None:
    _, pipeline = made()
    pipeline.spec = replace(
        pipeline.spec, properties={"bootstrap.servers": "localhost:1", "default.api.timeout.ms": "200"}
    )
    with pytest.raises(Unreachable, match="cannot reach localhost:1"):
        pipeline.run()
    assert not pipeline.path.exists()


def test_the_second_of_two_writers_takes_over_and_the_first_is_refused(made: Made) -> None:
    feed, pipeline = made()
    feed.more(20)
    with pipeline.following() as first:
        batch = first.next_batch()
        assert batch is not None
        with pipeline.following() as second:
            with pytest.raises(WriterRefused, match="has another writer now"):
                first.write_batch(batch)
            list(second.batches())
    pipeline.check(20)


# What verification finds


def test_verification_names_what_is_missing_repeated_and_wrong(made: Made) -> None:
    feed, pipeline = made()
    feed.more(50)
    pipeline.run()
    state = pipeline.table.take_over(pipeline.table.state().origin)  # type: ignore[union-attr]
    rows = pipeline.table.columns().read_all()
    at = [(row["partition"], row["offset"]) for row in rows.select(["partition", "offset"]).to_pylist()]
    kept = [n for n, place in enumerate(at) if place != (0, 2)]
    kept.append(at.index((0, 4)))
    changed = rows.take(kept)
    pipeline.table.rewrite(changed.to_reader(), state.progress)
    verdict = next(verdict for verdict in pipeline.verdicts() if verdict.partition == 0)
    assert not verdict.is_good
    assert (verdict.missing_at, verdict.repeated_at) == ((2,), (4,))
    assert (verdict.missing, verdict.repeated) == (1, 1)


def test_verification_sees_a_value_that_was_changed(made: Made) -> None:
    feed, pipeline = made()
    feed.more(20)
    pipeline.run()
    state = pipeline.table.take_over(pipeline.table.state().origin)  # type: ignore[union-attr]
    rows = pipeline.table.columns().read_all()
    values = [b"changed" if n == 0 else value for n, value in enumerate(rows["value"].to_pylist())]
    changed = rows.set_column(rows.column_names.index("value"), "value", [values])
    pipeline.table.rewrite(changed.to_reader(), state.progress)
    assert [verdict.different for verdict in pipeline.verdicts() if not verdict.is_good] == [1]

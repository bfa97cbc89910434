"""A topic as a table: formats, modes, bad records, what transactions and compaction leave behind."""

import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import Unreachable
from leadline.spark.client.failures import NoSuchTopic
from leadline.spark.positions import DataLoss
from leadline.spark.table import merge, table_writer
from leadline.spark.table.dead_letters import DeadLetterReplay, replay
from leadline.spark.table.declared_columns import column_types
from leadline.spark.table.merge import PreparedMerge
from leadline.spark.table.quality import Quality
from leadline.spark.table.table import TableError, WriterRefused
from leadline.spark.table.table_format import TABLE_FORMATS
from leadline.spark.table.table_writer import TableSpec, TableWriter
from leadline.spark.table.write_task import TaskOutput
from tests.support.broker import RunningBroker, leadline
from tests.support.following import Feed, Pipeline
from tests.support.pipeline_faults import own_disks
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
        partitions = cluster.existing_topics([feed.topic])[feed.topic].partitions
        committed = {tp.partition: note.offset for tp, note in cluster.committed("table-of-orders", partitions).items()}
    state = pipeline.table.state()
    assert state is not None
    assert committed == state.progress.offsets


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_fields_become_columns_and_what_contradicts_them_dead_letters(
    made: Made, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, pipeline = made(kind, format="json", partition_by="hour")
    feed.more(50)
    feed.send(b"no json")
    feed.send(b'{"id": 999, "of_one_partition": {"x": 1}, "tags": [], "more": {}}')
    feed.flush()
    rounds, run = 0, TableWriter._run

    def counted(self: TableWriter, *args: Any) -> list[TaskOutput]:
        nonlocal rounds
        rounds += 1
        return run(self, *args)

    monkeypatch.setattr(TableWriter, "_run", counted)
    pipeline.run()
    assert rounds == 1  # the tasks read the records of a new table once
    pipeline.check(52)
    feed.send(b'{"id": "not a number"}')
    feed.send(b'{"id": 1000, "where": {"city": "Bern", "at": [46.9, 7.4]}, "tags": ["a"], "more": {"y": 2}}')
    feed.send(None)
    feed.flush()
    (summary,) = pipeline.run()
    assert (summary.records, summary.dead) == (3, 1)
    rows = pipeline.rows()
    assert len(rows) == 53
    (one,) = [row for row in rows if row["id"] == 999]
    assert (one["of_one_partition"], one["tags"]) == ({"x": 1}, None)  # an empty array is older than its column
    (new,) = [row for row in rows if row["id"] == 1000]
    assert new["where"] == {"city": "Bern", "at": [46.9, 7.4]}
    causes = sorted(str(letter["cause"]).split(",")[0] for letter in pipeline.dead_letters())
    assert causes[0].startswith("id: 'not a number' is not a long")
    assert causes[1].startswith("no JSON")
    pipeline.check(55)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_what_did_not_fit_a_declared_column_becomes_rows_after_it_is_wider(
    made: Made, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = column_types({"id": "int", "price": "decimal(4,2)", "tags": "map<string,int>", "at": "timestamp"})
    feed, pipeline = made(kind, format="json", columns=columns)
    feed.more(20)
    feed.send(b'{"id": 3000000000, "tags": {"a": 1}, "at": "2026-01-31T12:00:00+01:00"}')
    feed.send(b'{"price": 12.5}')
    feed.send(b'{"price": "123.5"}')
    feed.flush()
    wider = column_types({"id": "long", "price": "decimal(9,2)"})
    with monkeypatch.context() as patch:  # ended after the dead letters: their batch is completed with the old types
        table, dead = pipeline.table.uri, type(pipeline.table).append
        patch.setattr(
            type(pipeline.table), "append", lambda self, *args: _fail() if self.uri == table else dead(self, *args)
        )
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    pipeline.run(columns=wider)
    assert sorted(str(letter["cause"]) for letter in pipeline.dead_letters()) == [
        "id: 3000000000 is not an int",
        "price: '123.5' is not a decimal(4,2)",
    ]
    pipeline.check(23)
    assert replay(pipeline.table, pipeline.dead, "") == DeadLetterReplay(2, 0)
    feed.send(b'{"id": 4000000000, "price": 1234.25}')
    feed.flush()
    pipeline.run()
    rows = pipeline.rows()
    (first,) = [row for row in rows if row["id"] == 3_000_000_000]
    assert (first["tags"], str(first["at"])) == ([("a", 1)], "2026-01-31 11:00:00+00:00")
    assert sorted(str(row["price"]) for row in rows if row["price"]) == ["12.50", "123.50", "1234.25"]
    pipeline.check(24)


def test_a_table_in_a_catalog_has_its_dead_letters_beside_it(made: Made, tmp_path: Path) -> None:
    feed, pipeline = made("iceberg", format="json", partition_by="hour")
    pipeline.uri = "prod:sales.`orders raw`"
    place = (tmp_path / "warehouse").as_uri()
    pipeline.options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": place}
    feed.more(20)
    feed.send(b"no json")
    feed.flush()
    (summary,) = pipeline.run()
    assert (summary.records, summary.dead) == (21, 1)
    feed.more(5)
    pipeline.run()
    assert [letter["value"] for letter in pipeline.dead_letters()] == [b"no json"]
    pipeline.check(26)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_a_table_by_key_has_the_last_of_each_and_no_tombstone(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, mode="upsert", batch_bytes=4000)
    feed.more(150)
    interrupted = Path(pipeline.table.data_directory.uri, "_by_key", "of a writer that was killed")
    interrupted.mkdir(parents=True)
    pipeline.run()
    assert list(interrupted.parent.parent.glob("_by_key/*")) == []
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
def test_a_merge_is_prepared_again_if_the_table_is_compacted_meanwhile(
    made: Made, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, pipeline = made(kind, mode="upsert")
    for first in (0, 10):
        for n in range(first, first + 10):
            feed.send(b"old", b"key %d" % n)
        feed.flush()
        pipeline.run()
    compacted: list[int] = []

    def prepare(*args: Any) -> PreparedMerge:
        prepared = merge.prepare(*args)
        if not compacted:
            compacted.append(pipeline.table.compact()["removed"])
        return prepared

    monkeypatch.setattr(table_writer, "prepare", prepare)
    feed.send(b"new", b"key 3")
    feed.flush()
    pipeline.run()
    assert compacted[0] > 1
    values = {row["key"]: row["value"] for row in pipeline.rows()}
    assert values == {b"key %d" % n: b"new" if n == 3 else b"old" for n in range(20)}
    assert len(pipeline.rows()) == 20
    pipeline.check(21)


def change(op: str, before: object, after: object, at: int = 1) -> bytes:
    source = {"ts_ms": at, "lsn": at, "table": "users"}
    return json.dumps({"op": op, "before": before, "after": after, "source": source}).encode()


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_a_table_by_key_of_changes_is_the_table_of_the_database(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="debezium", mode="upsert")
    for n in range(20):
        feed.send(change("r", None, {"id": n, "name": f"user {n}"}), b'{"id": %d}' % n)
    feed.flush()
    pipeline.run()
    feed.send(change("u", {"id": 3}, {"id": 3, "name": "three", "mail": "3@x"}, 7), b'{"id": 3}')
    feed.send(change("d", {"id": 4}, None), b'{"id": 4}')
    feed.send(None, b'{"id": 4}')
    feed.send(change("d", {"id": 5}, None), b'{"id": 5}')
    feed.send(change("c", None, {"id": 5, "name": "again"}, 8), b'{"id": 5}')
    feed.send(b'{"op": "m"}', b'{"id": 6}')
    feed.flush()
    pipeline.run()
    rows = {row["id"]: row for row in pipeline.rows()}
    assert sorted(rows) == [n for n in range(20) if n != 4]  # type: ignore[type-var]
    assert len(pipeline.rows()) == 19
    assert (rows[3]["name"], rows[3]["mail"], rows[3]["cdc_source_position"]) == ("three", "3@x", "7")
    assert (rows[5]["name"], rows[5]["cdc_op"], rows[5]["cdc_source_ms"]) == ("again", "c", 8)
    assert ["its op is 'm'" in str(letter["cause"]) for letter in pipeline.dead_letters()] == [True]
    pipeline.check(26)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_the_order_of_the_database_counts_and_truncates_are_obeyed(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="debezium", mode="upsert")
    for at, n in ((10, 1), (20, 2), (30, 3), (90, 4)):
        feed.send(change("c", None, {"id": n, "name": f"at {at}"}, at), b'{"id": %d}' % n)
    feed.send(change("d", {"id": 3}, None, 40), b'{"id": 3}')
    feed.flush()
    assert sum(summary.late for summary in pipeline.run()) == 0
    feed.send(change("u", None, {"id": 2, "name": "late"}, 15), b'{"id": 2}')
    feed.send(change("u", None, {"id": 3, "name": "late"}, 35), b'{"id": 3}')
    feed.send(change("c", None, {"id": 1, "name": "at 10"}, 10), b'{"id": 1}')
    feed.flush()
    (summary,) = pipeline.run()
    assert (summary.late, summary.repeated) == (2, 1)
    assert {row["id"]: row["name"] for row in pipeline.rows()} == {1: "at 10", 2: "at 20", 4: "at 90"}
    feed.producer.produce(feed.topic, change("t", None, None, 50))
    feed.flush()
    pipeline.run()
    assert {row["id"]: row["name"] for row in pipeline.rows()} == {4: "at 90"}
    assert pipeline.dead_letters() == []
    pipeline.check(9)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_the_history_of_rows_is_that_of_the_database(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="debezium", mode="scd2", partition_by="day")
    feed.send(change("c", None, {"id": 1, "name": "a"}, 10), b'{"id": 1}')
    feed.send(change("c", None, {"id": 2, "name": "b"}, 11), b'{"id": 2}')
    feed.flush()
    pipeline.run()
    feed.send(change("u", None, {"id": 1, "name": "c", "mail": "1@x"}, 30), b'{"id": 1}')
    feed.send(change("d", {"id": 2}, None, 31), b'{"id": 2}')
    feed.send(None, b'{"id": 2}')
    feed.send(change("u", None, {"id": 1, "name": "late"}, 20), b'{"id": 1}')
    feed.send(change("u", None, {"id": 1, "valid_from": "x"}, 40), b'{"id": 1}')
    feed.flush()
    (summary,) = pipeline.run()
    assert (summary.late, summary.repeated, summary.dead) == (1, 0, 1)

    def ms(moment: Any) -> int | None:
        return None if moment is None else round(moment.timestamp() * 1000)

    rows = [
        (row["id"], row["name"], ms(row["valid_from"]), ms(row["valid_to"]), row["is_current"])
        for row in pipeline.rows()
    ]
    assert sorted(rows, key=str) == [
        (1, "a", 10, 20, False),
        (1, "c", 30, None, True),
        (1, "late", 20, 30, False),
        (2, "b", 11, 31, False),
    ]
    pipeline.check(7)
    with pytest.raises(TableError, match="was created with --mode scd2, not upsert"):
        pipeline.run(mode="upsert")


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


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_rows_obey_rules_and_columns_are_masked(made: Made, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rules, masks = ("id: range 1..20", "name: not null"), (("name", "hash"), ("kafka_key", "hash"))
    quality = Quality(rules, masks=masks, key=b"0123456789abcdef")
    feed, pipeline = made(kind, format="json", mode="upsert", quality=quality)
    feed.more(22)
    feed.send(b"no json: record 99")
    feed.flush()
    with monkeypatch.context() as patch:  # ended between the dead letters and the rows
        patch.setattr(table_writer.TableWriter, "_commit_deletes", lambda *_: _fail())
        with pytest.raises(KeyboardInterrupt):
            pipeline.run()
    with pytest.raises(TableError, match=r"began with other rules: .*id: range 1\.\.20"):
        pipeline.run(quality=replace(quality, rules=()))
    pipeline.run()
    causes = sorted(str(letter["cause"]) for letter in pipeline.dead_letters())
    assert [cause.partition(" (")[0] for cause in causes] == ["no JSON", *["the record breaks 'id: range 1..20'"] * 2]
    assert "record" not in str([row["name"] for row in pipeline.rows()])
    assert not any(b"key" in letter["key"] or letter["value"] for letter in pipeline.dead_letters())  # type: ignore[operator]
    pipeline.check(23)
    assert replay(pipeline.table, pipeline.dead, "", quality=replace(quality, rules=())).left == 3
    for other in (Quality(rules), replace(quality, key=b"another key of 16")):
        with pytest.raises(TableError, match="was created with --mask kafka_key=hash@"):
            pipeline.run(quality=other)


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_rows_that_break_rules_are_marked_or_refused(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="json", quality=Quality(("expr: id < 4",), "mark"))
    feed.more(5)
    pipeline.run()
    marks = {row["id"]: row["kafka_broken_rules"] for row in pipeline.rows()}
    assert marks == {1: None, 2: None, 3: None, 4: ["expr: id < 4"], 5: ["expr: id < 4"]}
    pipeline.check(5)
    feed.more(1)
    with pytest.raises(TableError, match=r"breaks the rule 'id: range \.\.5' at offset \d+: id is of type long"):
        pipeline.run(quality=Quality(("id: range ..5",), "refuse"))
    assert len(pipeline.rows()) == 5
    pipeline.run(quality=Quality(("id: range ..5",)))
    (letter,) = pipeline.dead_letters()
    assert letter["value"] == b'{"id": 6, "name": "record 6"}'
    assert replay(pipeline.table, pipeline.dead, "").replayed == 1
    pipeline.spec = replace(pipeline.spec, quality=Quality())
    pipeline.check(6)


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
    DeltaTable(pipeline.path).update({"id": "id + 10"}, predicate="id = 2")
    assert sum(verdict.different for verdict in pipeline.verdicts()) == 1


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


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_files_on_disks_that_only_tasks_see_are_not_committed(
    made: Made, spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    feed, pipeline = made(kind, format="json")
    feed.more(10)
    feed.send(b"no json")
    feed.flush()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with (
        own_disks(spark, tmp_path, scratch),
        pytest.raises(TableError, match="must share the directory of the table; nothing was committed"),
    ):
        pipeline.run()
    assert (pipeline.rows(), pipeline.dead_letters()) == ([], [])
    pipeline.run()
    pipeline.check(11)


def test_a_directory_that_executors_do_not_share_is_refused_before_the_first_task(
    made: Made, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed, pipeline = made()
    feed.more(10)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(spark.sparkContext, "master", "spark://elsewhere:7077")
    with (
        own_disks(spark, tmp_path, scratch),
        pytest.raises(TableError, match=r"is not shared: an executor on .* has another disk there"),
    ):
        pipeline.run()
    assert pipeline.table.state() is None
    pipeline.run()
    pipeline.check(10)
    assert [path for path in pipeline.path.iterdir() if "probe" in path.name] == []


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


@pytest.mark.parametrize("kind", TABLE_FORMATS)
def test_verification_sees_fields_of_documents_that_were_changed(made: Made, kind: str) -> None:
    feed, pipeline = made(kind, format="json", partition_by="day")
    feed.more(20)
    feed.send(b'{"id": 1000, "where": {"city": "Bern", "at": [46.9, 7.4]}}')
    feed.flush()
    pipeline.run()
    pipeline.check(21)
    state = pipeline.table.take_over(pipeline.table.state().origin)  # type: ignore[union-attr]
    rows = pipeline.table.columns().read_all()
    falsified = [number if number % 2 else number + 1 for number in rows["id"].to_pylist()]
    changed = rows.set_column(rows.column_names.index("id"), "id", [falsified])
    pipeline.table.rewrite(changed.to_reader(), state.progress)
    verdicts = pipeline.verdicts()
    assert sum(verdict.different for verdict in verdicts) == 11
    assert sum(len(verdict.different_at) for verdict in verdicts) == 11
    assert not all(verdict.is_good for verdict in verdicts)


def test_an_empty_table_does_not_pass_for_a_full_topic(made: Made) -> None:
    feed, pipeline = made()
    with pipeline.following():
        feed.more(20)
    with pytest.raises(TableError, match=r"is empty, and .* has 20 offsets: nothing to compare"):
        pipeline.verdicts()


def test_verification_sees_a_validity_that_was_changed(made: Made) -> None:
    feed, pipeline = made(format="json", mode="scd2")
    feed.more(30)
    pipeline.run()
    pipeline.check(30)
    DeltaTable(pipeline.path).update({"is_current": "not is_current"}, predicate="id = 7")
    assert sum(verdict.different for verdict in pipeline.verdicts()) == 1


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

"""A report of topics that were filled by hand: from a broker and from its files, its figures are the counted ones."""

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import SparkSession

from leadline.cli.output import OutputFormat
from leadline.cli.pipeline import report as command
from leadline.records.compression import Codec
from leadline.spark.files import segments
from leadline.spark.report import report_job, report_plan
from leadline.spark.report.topic_report import TopicReport
from tests.support import commands
from tests.support.broker import RunningBroker, leadline
from tests.support.topics import create_topic
from tests.support.waiting import until

ORDERS, PARTITIONS, HOUR_MS = 3000, 3, 3_600_000
SETTINGS = {"offsets.topic.num.partitions": 2, "replica.high.watermark.checkpoint.interval.ms": 100}
START_MS = time.time_ns() // 1_000_000 - 100 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Filled:
    broker: RunningBroker
    keys: Counter[bytes]
    partitions: Counter[int]
    payload: int

    def work(self, kind: str, *topics: str) -> report_plan.ReportPlan:
        if kind == "files":
            return report_plan.plan_from_files([str(self.broker.directory)], topics)
        return report_plan.plan_from_brokers({"bootstrap.servers": self.broker.bootstrap}, topics)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with leadline(tmp_path_factory.mktemp("report") / "data", **SETTINGS) as broker:
        create_topic(broker.bootstrap, "orders", PARTITIONS, retention_ms=str(200 * HOUR_MS))
        create_topic(broker.bootstrap, "users", 1, cleanup_policy="compact")
        keys, partitions, payload = _fill(broker)
        _commit(broker, 1000)
        _wait_for_checkpoints(broker)
        yield Filled(broker, keys, partitions, payload)


def _fill(broker: RunningBroker) -> tuple[Counter[bytes], Counter[int], int]:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "compression.type": "zstd", "linger.ms": 20})
    keys: Counter[bytes] = Counter()
    partitions: Counter[int] = Counter()
    payload = 0
    for n in range(ORDERS):
        key, value = b"busy" if n % 2 else b"shop-%d" % (n % 100), json.dumps({"order": n}).encode()
        at = START_MS + n * 100 * HOUR_MS // ORDERS
        producer.produce("orders", value, key, partition=0 if n % 2 else 1, timestamp=at)
        keys[key] += 1
        partitions[0 if n % 2 else 1] += 1
        payload += len(key) + len(value)
    for n in range(50):
        producer.produce("users", None if n >= 40 else b"u", f"user-{n % 20}")
    assert producer.flush(120) == 0
    return keys, partitions, payload


def _wait_for_checkpoints(broker: RunningBroker) -> None:
    """Waits until the files show no uncommitted records."""
    until(
        lambda: all(
            log.high_watermark in (None, segments.log_end(log)) for log in segments.logs_in([str(broker.directory)])
        )
    )


def _commit(broker: RunningBroker, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "billing"})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


@pytest.mark.parametrize("kind", ["brokers", "files"])
def test_the_figures_are_those_that_were_counted(spark: SparkSession, filled: Filled, kind: str) -> None:
    work = filled.work(kind)
    report = report_job.make_report(spark, work, {"bootstrap.servers": filled.broker.bootstrap})
    assert report.errors == []
    assert [topic.name for topic in report.topics] == ["orders", "users"]
    orders, users = report.topics
    _check_orders(orders, filled)
    kept = users.figures.last.kept()
    assert (kept.keys, kept.tombstones, kept.is_exact) == (20, 10, True)


def _check_orders(orders: TopicReport, filled: Filled) -> None:
    figures = orders.figures
    assert {n: part.records for n, part in figures.parts.items()} == {**filled.partitions, 2: 0}
    assert sum(part.payload for part in figures.parts.values()) == filled.payload
    assert {hot_key.key: hot_key.records for hot_key in figures.hot.top(1000)} == dict(filled.keys)
    assert figures.codecs[Codec.ZSTD].ratio > 1  # the client leaves batches as they are where packing does not pay
    assert sum(packed.records for packed in figures.codecs.values()) == ORDERS
    for n, part in figures.parts.items():
        logs = (filled.broker.directory / f"orders-{n}").glob("*.log")
        assert part.stored == sum(log.stat().st_size for log in logs)
    slots = figures.parts[0].slots
    assert slots.starts[0] <= START_MS + HOUR_MS
    assert slots.ends.max() == filled.partitions[0]
    (lag,) = orders.lags
    assert (lag.group, lag.by_partition) == ("billing", {0: (1000, filled.partitions[0])})
    assert lag.behind[-1] == filled.partitions[0] - 1000
    assert orders.forecast is not None
    assert orders.forecast.disk_full_ms is None


def test_brokers_give_the_limits_that_files_lack(filled: Filled) -> None:
    limits = filled.work("brokers").limits
    assert limits["orders"].retention_ms == 200 * HOUR_MS
    assert limits["users"].cleanup_policy == "compact"
    assert filled.work("files").limits["orders"].retention_ms is None
    assert (limits["orders"].disk_free or 0) > 0


def test_a_report_of_one_topic_has_that_topic_alone(filled: Filled) -> None:
    for kind in ("brokers", "files"):
        assert filled.work(kind, "users").topics == {"users"}
    with pytest.raises(report_plan.NothingToReport, match=r"no topic user in .*there are .*users"):
        filled.work("files", "user")


def test_damage_is_named_and_the_rest_reported(spark: SparkSession, filled: Filled, tmp_path: Path) -> None:
    for name in ("orders-0", "orders-1"):
        (tmp_path / name).mkdir()
        for log in (filled.broker.directory / name).glob("*.log"):
            data = bytearray(log.read_bytes())
            if name == "orders-0":
                data[len(data) // 2] ^= 1
            (tmp_path / name / log.name).write_bytes(data)
    (tmp_path / "meta.properties").touch()
    report = report_job.make_report(spark, report_plan.plan_from_files([str(tmp_path)], ()), {})
    assert [error.partition(":")[0] for error in report.errors] == ["orders-0"]
    assert report.topics[0].figures.parts[1].records == filled.partitions[1]


def test_the_command_writes_the_page_and_says_what_is_remarkable(
    spark: SparkSession, filled: Filled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.html"
    options = argparse.Namespace(
        dir=[str(filled.broker.directory)], out=out, topics=["orders"], output=OutputFormat.TEXT
    )
    assert command.write(options, spark, filled.work("files", "orders"), time.monotonic()) == 0
    output = capsys.readouterr().out
    assert "orders: group billing is 500 records behind" in output
    assert f"{out}: 3,000 records in 1 topic" in output
    assert "busy" in out.read_text()
    assert list(tmp_path.iterdir()) == [out]
    options.output = OutputFormat.JSON
    assert command.write(options, spark, filled.work("files", "orders"), time.monotonic()) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["topics"], printed["records"], printed["file"]) == (["orders"], 3000, str(out))
    assert "group billing is 500 records behind and does not catch up" in {
        remark["text"] for remark in printed["remarks"]
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "there is no topic nowhere at "),
        (["--dir", "/nonexistent"], "/nonexistent: no such directory"),
        (["--out", "/nonexistent/report.html"], "--out /nonexistent/report.html: cannot write a file there"),
    ],
)
def test_what_cannot_be_reported_is_one_line_before_spark_starts(
    filled: Filled, arguments: list[str], message: str
) -> None:
    out, error = commands.leadline(filled.broker, "pipeline", "report", *arguments, code=1)
    assert out == ""
    assert error.startswith(f"leadline: {message}")
    assert error.count("\n") == 1

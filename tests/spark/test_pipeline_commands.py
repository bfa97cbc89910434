"""The commands `leadline pipeline table`, `verify` and `replay`, as a person types them."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from leadline.cli import main
from leadline.cli.pipeline import replay, table, verify
from tests.support.broker import RunningBroker, leadline
from tests.support.following import Feed
from tests.support.lasting_session import Lasting
from tests.support.topics import create_topic

CommandResult = tuple[int, str, str]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with leadline(tmp_path_factory.mktemp("commands") / "data") as running:
        create_topic(running.bootstrap, "orders", 2)
        create_topic(running.bootstrap, "again", 2)
        yield running


@pytest.fixture
def typed(
    spark: SparkSession,
    broker: RunningBroker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., CommandResult]:
    for module in (table, verify, replay):
        monkeypatch.setattr(module, "start_spark", lambda *_: Lasting(spark))

    def type_in(*arguments: object, server: str | None = broker.bootstrap) -> CommandResult:
        place = ["--bootstrap-server", server] if server else []
        code = main(["pipeline", *map(str, arguments), *place])
        return code, *capsys.readouterr()

    return type_in


def test_a_table_is_made_verified_kept_and_replayed(
    typed: Callable[..., CommandResult], broker: RunningBroker, tmp_path: Path
) -> None:
    feed, table = Feed(broker, "orders"), tmp_path / "orders"
    feed.more(30)
    code, _, err = typed("table", "orders", table, "--once", "--batch-bytes", "1000")
    assert code == 0, err
    assert re.search(rf"orders to {table}: 30 records \([\d.]+ KB\) in \d+ commits, in ", err)

    code, out, _ = typed("verify", table)
    assert code == 0
    assert f"{table} has each record of orders once (30 records in 2 partitions" in out
    code, out, _ = typed("verify", table, "--output", "json")
    proof = json.loads(out)
    assert proof["good"]
    assert sum(part["rows"] for part in proof["partitions"]) == 30
    assert all(part["topic_checksum"] == part["table_checksum"] for part in proof["partitions"])

    code, _, err = typed("replay", table, "again")
    assert code == 0
    assert f"{table} to again: 30 records" in err

    code, out, _ = typed("table", "compact", table, server=None)
    assert re.fullmatch(rf"{table}: \d+ files became 1\n", out)
    code, out, _ = typed("table", "vacuum", table, "--older-than", "0s", server=None)
    assert re.fullmatch(rf"{table}: \d+ files deleted\n", out)
    assert typed("verify", table)[0] == 0


def test_what_differs_is_named_and_the_exit_status_is_1(
    typed: Callable[..., CommandResult], broker: RunningBroker, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    table = tmp_path / "orders"
    Feed(broker, "orders").more(10)
    typed("table", "orders", table, "--once")
    DeltaTable(table).delete("partition = 0 and offset = 1")
    code, out, _ = typed("verify", table)
    assert code == 1
    assert "partition 0: missing at offset 1" in out
    assert f"{table} does not equal orders: 1 partition with differences" in out


def test_a_table_with_masks_is_verified_with_them_alone(
    typed: Callable[..., CommandResult], broker: RunningBroker, tmp_path: Path
) -> None:
    table, key = tmp_path / "orders", tmp_path / "key"
    key.write_text("a key that is long enough\n")
    masks = ("--mask", "name=hash", "--mask-key-file", key)
    Feed(broker, "orders").more(10)
    code, _, err = typed("table", "orders", table, "--once", "--format", "json", *masks, "--rule", "id: range 5..")
    assert code == 0
    assert "dead letters in" in err
    assert typed("verify", table, *masks, "--rule", "id: range 5..")[0] == 0
    code, _, err = typed("verify", table)
    assert code == 1
    assert "was created with --mask name=hash@" in err
    code, out, _ = typed("table", "replay-dead-letters", table, *masks, server=None)
    assert "0 dead letters became rows" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("table", "order", "T", "--once"), "there is no topic order at"),
        (("table", "orders", "T", "--format", "avro"), "--format avro needs --registry"),
        (("table", "orders", "T", "--rule", "price"), "the rule 'price' is not one of 'PATH: not null'"),
        (("table", "orders", "T", "--mask", "email=hash"), "needs a key of 16 bytes or more: --mask-key-file"),
        (("table", "compact", "T"), "there is no delta table at T"),
        (("verify", "T"), "there is no delta table at T"),
        (("replay", "T", "again"), "there is no delta table at T"),
        (("replay", "T", "again", "--rate", "0"), "--rate 0.0: expected a number above 0"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    typed: Callable[..., CommandResult],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = typed(*arguments, **({"server": None} if "compact" in arguments else {}))
    assert code == 1
    assert message in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_unreachable_broker_is_reported_in_one_line(typed: Callable[..., CommandResult], tmp_path: Path) -> None:
    code, _, err = typed("table", "orders", tmp_path / "t", "--timeout", "0.3", server="localhost:1")
    assert (code, len(err.splitlines())) == (1, 1)
    assert "cannot reach localhost:1" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "job", [(), ("run",), ("table",), ("table", "compact"), ("table", "vacuum"), ("verify",), ("replay",)]
)
def test_the_help_of_a_job_has_its_usage_and_examples(job: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["pipeline", *job, "--help"])
    out = capsys.readouterr().out
    assert out.startswith(f"usage: leadline pipeline {' '.join(job)}".rstrip())
    assert not job or f"  leadline pipeline {' '.join(job)} " in out

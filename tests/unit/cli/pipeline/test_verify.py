"""The result of `leadline pipeline verify`, for a person and as JSON."""

import json

import pyarrow as pa
import pytest

from leadline.cli.pipeline.verify import _print_table, report, summary
from leadline.spark.table.table import TableOrigin, TableProgress, TableState
from leadline.spark.table.verification import Verdict

STATE = TableState(
    TableOrigin("orders", "id", "raw", "append", "none", "read_committed"), TableProgress(3, {0: 10}), pa.schema([])
)
GOOD = Verdict(0, 0, 10, records=10, rows=9, dead=1, topic_checksum=0xAB, table_checksum=0xAB)
BAD = Verdict(1, 0, 9, records=9, rows=7, missing=2, missing_at=(4,), topic_checksum=1, table_checksum=2)


def test_a_table_is_complete_only_if_all_partitions_agree() -> None:
    assert summary("/t", STATE, [GOOD], 1.5) == "/t has each record of orders once (10 records in 1 partition, 1.5 s)"
    assert summary("/t", STATE, [GOOD, BAD], 1.5) == (
        "/t does not equal orders: 1 partition with differences (19 records in 2 partitions, 1.5 s)"
    )


def test_wrong_offsets_and_both_checksums_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    _print_table("/t", STATE, [GOOD, BAD], 1.5)
    heads, good, bad, missing, _ = capsys.readouterr().out.splitlines()
    assert heads.split()[:4] == ["PARTITION", "OFFSETS", "RECORDS", "ROWS"]
    assert good.split()[-1] == f"{0xAB:016x}"
    assert bad.endswith(f"{1:016x} != {2:016x}")
    assert missing == "partition 1: missing at offset 4, ..."


def test_json_has_the_result_of_each_partition_and_of_all() -> None:
    printed = json.loads(json.dumps(report("/t", STATE, [GOOD, BAD])))
    assert (printed["good"], [partition["good"] for partition in printed["partitions"]]) == (False, [True, False])
    assert (printed["batch"], printed["offsets"], printed["origin"]["topic"]) == (3, {"0": 10}, "orders")
    assert report("/t", STATE, [GOOD])["good"] is True

"""The options of `leadline pipeline table`, and its texts."""

import argparse
from pathlib import Path

import pytest

from leadline.cli.pipeline.table import TableTotals, add_to, local_directory, spec_of
from leadline.spark.table.table_writer import BatchSummary


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    return parser.parse_args(["table", "orders", *arguments])


@pytest.mark.parametrize(
    ("arguments", "group"),
    [
        (("/data/sales/",), "table-sales"),
        (("prod:shop.sales", "--table-format", "iceberg"), "table-shop.sales"),
        (("/data/sales", "--group", "mine"), "mine"),
        (("/data/sales", "--group", ""), ""),
    ],
)
def test_the_group_has_the_name_of_the_table_unless_it_is_set(arguments: tuple[str, ...], group: str) -> None:
    assert spec_of(options(*arguments)).group == group


def test_the_spec_reads_committed_records_and_fails_on_data_loss_by_default() -> None:
    spec = spec_of(options("/data"))
    assert (spec.committed, spec.fail_on_data_loss) == (True, True)
    spec = spec_of(options("/data", "--isolation", "read_uncommitted", "--allow-data-loss"))
    assert (spec.committed, spec.fail_on_data_loss) == (False, False)


@pytest.mark.parametrize(
    ("arguments", "directory"),
    [
        (("data/orders",), Path("data/orders")),
        (("s3://bucket/orders",), None),
        (("prod:shop.orders", "--table-format", "iceberg"), None),
        (("data/orders", "--table-format", "iceberg"), Path("data/orders")),
    ],
)
def test_only_a_table_on_this_machine_has_a_directory_to_lock(
    arguments: tuple[str, ...], directory: Path | None
) -> None:
    assert local_directory(options(*arguments)) == directory


def test_totals_add_up_and_name_the_table_of_dead_letters() -> None:
    totals = TableTotals()
    batch = BatchSummary(
        batch=7, records=100, size=2000, dead=1, files=1, lag_offsets=0, lag_bytes=0, newest_ms=-1, seconds=1
    )
    totals.add(batch)
    assert totals.summary(options("/data/"), 2) == (
        "orders to /data/: 100 records (2.0 KB) in 1 commit, in 2.0 s, 1 dead letter in /data_dead_letters"
    )
    totals.add(batch)
    assert totals.line(batch, 2) == "batch 7: 200 records (4.0 KB), 100/s; no lag"

"""The texts of `leadline pipeline table`."""

from dataclasses import replace

from leadline.cli.pipeline.table import TableTotals
from leadline.spark.table.table_writer import BatchSummary
from tests.unit.cli.pipeline.test_table_options import options


def test_totals_add_up_and_name_the_table_of_dead_letters() -> None:
    totals = TableTotals()
    batch = BatchSummary(
        batch=7, records=100, size=2000, dead=1, files=1, lag_offsets=0, lag_bytes=0, newest_ms=-1, seconds=1
    )
    totals.add(batch)
    assert totals.summary(options("/data/"), 2) == (
        "orders to /data/: 100 records (2.0 KB) in 1 commit, in 2.0 s, 1 dead letter in /data_dead_letters"
    )
    totals.add(replace(batch, late=2, repeated=3))
    assert totals.summary(options("/data/"), 2).endswith(" in /data_dead_letters, 2 late, 3 repeated")
    assert totals.line(batch, 2) == "batch 7: 200 records (4.0 KB), 100/s; no lag"

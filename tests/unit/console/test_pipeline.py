"""What the console says of a table's writer and lag."""

from pathlib import Path

from leadline.console.page import TableLocation
from leadline.console.views.pipeline import TableView, writer_of
from leadline.spark.table.writer_lock import WriterLock


def test_the_writer_of_a_table_is_the_process_that_holds_its_lock(tmp_path: Path) -> None:
    assert writer_of(str(tmp_path)) == ""
    with WriterLock(tmp_path, "a table"):
        assert writer_of(str(tmp_path)).startswith("process ")
    assert writer_of(str(tmp_path)) == ""


def test_a_table_lags_by_what_its_partitions_lack() -> None:
    view = TableView(TableLocation("delta", "/data"), positions=((0, 5, 9), (1, 7, None), (2, 3, 3)))
    assert view.lag == 4

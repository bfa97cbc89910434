"""What the jobs on Spark tell a person."""

import time

import pytest

from leadline.cli.client import Failure
from leadline.cli.pipeline_job import ProgressLine, count_text, explained, lag_text
from leadline.spark.table.tables import TableError


def test_lag_is_told_in_offsets_bytes_and_time() -> None:
    minute_ago = time.time_ns() // 1_000_000 - 61_000
    assert lag_text(1200, 3_400_000, minute_ago) == "1,200 offsets behind, 3.4 MB, 1 min 1 s"
    assert lag_text(0, 0, minute_ago) == "nothing behind"


def test_one_is_no_plural() -> None:
    assert [count_text(n, "record") for n in (0, 1, 1000)] == ["0 records", "1 record", "1,000 records"]


def test_an_error_of_a_job_is_one_line() -> None:
    with pytest.raises(Failure, match=r"^two lines$"), explained():
        raise TableError("two\n  lines")


@pytest.mark.parametrize(
    ("module", "extra"), [("pyspark.sql", "spark"), ("fastavro", "avro"), ("pyiceberg", "iceberg")]
)
def test_a_library_that_is_missing_is_told_with_the_way_to_get_it(module: str, extra: str) -> None:
    with pytest.raises(Failure, match=rf"pip install 'leadline\[{extra}\]'"), explained():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def test_where_nobody_looks_a_line_comes_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with ProgressLine() as line:
        for at in (101.0, 105.0, 111.0, 112.0, 122.0):
            now[0] = at
            line.show(f"at {at:.0f}")
    assert capsys.readouterr().err.splitlines() == ["at 111", "at 122"]

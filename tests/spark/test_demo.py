"""The demo, up to the point where its table is whole again; what follows in it has tests of its own."""

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable

from leadline.admin.errors import Failure
from leadline.cli import main
from leadline.cli.demo.command import MARK, Demo, clear_directory
from leadline.cli.demo.orders import BROKEN

RATE = 500


def running() -> Iterator[str]:
    """The commands of processes below this one."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has ended, and perhaps nobody has taken note of it yet
            yield " ".join(process.cmdline())


def test_a_table_that_was_cut_off_ends_up_with_each_order_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as ends:
        demo = Demo(tmp_path, RATE, ends)
        demo.start_broker()
        tills = demo.write_orders()
        demo.crash(demo.stream())
        demo.resume(tills)
        demo.query_table()
    numbers = DeltaTable(demo.table).to_pyarrow_table(columns=["order"])["order"].to_pylist()
    broken = tills.written // BROKEN
    assert sorted(numbers) == [n for n in range(1, tills.written + 1) if n % BROKEN]
    assert DeltaTable(f"{demo.table}_dead_letters").to_pyarrow_table().num_rows == broken
    output = capsys.readouterr().out
    assert f"{tills.written:,} orders in total, all acknowledged" in output
    assert [line for line in output.splitlines() if line.startswith("6. ")] == ["6. Query the table"]
    assert [command for command in running() if str(tmp_path) in command] == []


def test_another_demo_takes_the_place_of_the_last_one(tmp_path: Path) -> None:
    folder = clear_directory(tmp_path / "demo")
    (folder / "report.html").touch()
    assert [path.name for path in clear_directory(folder).iterdir()] == [MARK]


def test_what_no_demo_made_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(Failure, match="was not made by a demo"):
        clear_directory(tmp_path)
    assert main(["demo", "--dir", str(tmp_path)]) == 1
    assert (
        capsys.readouterr().err
        == f"leadline: {tmp_path} already exists and was not made by a demo: choose another directory with --dir\n"
    )
    assert (tmp_path / "mine").exists()

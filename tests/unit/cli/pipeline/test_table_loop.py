"""The loop of `leadline pipeline table`: its pauses, its end, and outages of the cluster."""

import argparse
import json
from collections.abc import Sequence

import pytest

from leadline.cli.output import OutputFormat
from leadline.cli.pipeline import table
from leadline.cli.pipeline.outages import OutageReport
from leadline.spark.client.connection import AccessRefused, Unreachable
from leadline.spark.jobs.job_schedule import StepFailure
from leadline.spark.table.table_writer import BatchSummary

Step = BatchSummary | Exception | None


class ScriptedWriter:
    """Yields these batches and errors; then somebody presses Ctrl-C."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)

    def write_next(self) -> BatchSummary | None:
        if not self.steps:
            raise KeyboardInterrupt
        step = self.steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step


def batch(lag_offsets: int = 0) -> BatchSummary:
    return BatchSummary(0, 10, 100, 0, 1, lag_offsets, 0, -1, 0.1)


def pauses(monkeypatch: pytest.MonkeyPatch, steps: Sequence[Step], *, once: bool = False) -> tuple[int, list[float]]:
    """The exit code, and the pauses between the steps, if a step takes five seconds."""
    slept, now = list[float](), iter(range(0, 10_000, 5))
    monkeypatch.setattr("time.monotonic", lambda: float(next(now)))
    monkeypatch.setattr("time.sleep", slept.append)
    options = argparse.Namespace(
        once=once,
        interval=30_000,
        topic="orders",
        table="t",
        table_format="delta",
        table_option=[],
        output=OutputFormat.JSON,
    )
    code = table._follow(options, ScriptedWriter(steps))  # type: ignore[arg-type]
    return code, slept


def test_commits_keep_the_interval_while_records_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    code, slept = pauses(monkeypatch, [batch(), batch(), None])
    assert (code, len(slept)) == (0, 3)
    assert all(0 < pause < 30 for pause in slept)


def test_the_totals_of_a_run_are_json_on_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses(monkeypatch, [batch(500), batch()], once=True)
    printed = json.loads(capsys.readouterr().out)
    assert (printed["topic"], printed["table"], printed["commits"]) == ("orders", "t", 2)


def test_a_table_that_is_behind_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pauses(monkeypatch, [batch(500), batch(200)])[1] == [0, 0]


def test_once_ends_when_the_table_has_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    code, slept = pauses(monkeypatch, [batch(500), batch(), batch()], once=True)
    assert (code, slept) == (0, [0])


def test_an_outage_of_the_cluster_is_waited_for_and_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = Unreachable("cannot reach localhost:9092: Connection refused")
    code, slept = pauses(monkeypatch, [away, away, away, batch(1)])
    assert (code, slept) == (0, [1, 2, 4, 0])
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == "leadline: cannot reach localhost:9092: Connection refused. Trying again until it is over"
    assert second.startswith("leadline: the cluster answers again, after ")


@pytest.mark.parametrize(("error", "once"), [(AccessRefused("no"), False), (Unreachable("away"), True)])
def test_other_errors_end_the_job_and_so_does_an_outage_with_once(
    monkeypatch: pytest.MonkeyPatch, error: Exception, once: bool
) -> None:
    with pytest.raises(type(error)):
        pauses(monkeypatch, [error, batch()], once=once)


def test_pauses_between_tries_are_bounded() -> None:
    report = OutageReport(lambda: 0.0)
    assert [report.failed(Unreachable("away")) for _ in range(9)][-1] == StepFailure.OUTAGE.value[1]

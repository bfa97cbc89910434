"""How measurements are counted and summed up."""

import argparse
import json

import pytest

from leadline.cli.output import OutputFormat
from leadline.cli.perf import Latencies, Measurement, payloads


def test_percentiles_are_right_to_within_a_hundredth() -> None:
    taken = Latencies()
    for ms in range(1, 1001):
        taken.add(ms / 1000)
    for percent in (50, 95, 99, 99.9, 100):
        assert taken.percentile_ms(percent) == pytest.approx(percent * 10, rel=0.01)


def test_without_measurements_there_are_no_percentiles() -> None:
    assert Latencies().percentile_ms(50) is None
    assert str(Latencies()) == ""


@pytest.mark.parametrize(
    ("records", "seconds", "done", "goes_on"),
    [(10, None, 9, True), (10, None, 10, False), (None, 1e9, 10, True), (None, 0.0, 0, False), (10, 1e9, 10, False)],
)
def test_a_run_is_bounded_by_records_or_seconds(
    records: int | None, seconds: float | None, done: int, goes_on: bool
) -> None:
    assert Measurement(records, seconds).continues(done) is goes_on


def test_the_last_burst_is_as_small_as_what_is_left() -> None:
    assert Measurement(250, None).next_burst(200, 100) == 50
    assert Measurement(None, 1.0).next_burst(200, 100) == 100


@pytest.mark.parametrize("as_json", [True, False])
def test_the_summary_shows_rates_and_latencies(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    taken = Latencies()
    taken.add(0.002)
    run = Measurement(None, None, started=100.0, ended=102.0, count=1000, size=4_000_000, latencies={"latency": taken})
    run.print_summary(argparse.Namespace(output=OutputFormat.JSONL if as_json else OutputFormat.TEXT))
    shown = capsys.readouterr().out
    if as_json:
        summary = json.loads(shown)
        assert (summary["records_per_second"], summary["megabytes_per_second"]) == (500.0, 2.0)
        assert summary["latency_ms"]["p99.9"] == pytest.approx(2, rel=0.01)
    else:
        assert "1,000 (4.0 MB) in 2.0 s" in shown
        assert "500 records/s, 2.00 MB/s" in shown
        assert "p50 2.00 ms" in shown


def test_payloads_have_their_size_and_are_the_same_each_time() -> None:
    assert {len(value) for value in payloads(100)} == {100}
    assert payloads(100) == payloads(100)
    assert payloads(0)[0] == b""

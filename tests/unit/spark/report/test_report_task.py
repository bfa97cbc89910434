"""A task of a report: its figures, and the errors that it lists."""

from pathlib import Path

import pytest

from leadline.records.batch import walk
from leadline.spark.files.segments import logs_in
from leadline.spark.ranges import Range
from leadline.spark.report.report_plan import ReportRange
from leadline.spark.report.report_task import ReportOutcome, run_report_task
from tests.support.logs import TP, batch
from tests.support.replica_files import Replicas

PROPERTIES = {"bootstrap.servers": ""}  # files need no broker
TOPICS = frozenset({TP.topic})


@pytest.fixture
def pieces(tmp_path: Path) -> tuple[ReportRange, ReportRange]:
    """Two ranges of twenty records each."""
    replicas = Replicas(tmp_path, count=1, settings={})
    replicas.append(*(batch(5) for _ in range(8)))
    (log,) = logs_in(replicas.paths)
    return ReportRange(Range(TP, 0, 20), log), ReportRange(Range(TP, 20, 40), log)


def damage(piece: ReportRange, offset: int) -> None:
    """Changes a byte of the batch that starts at the offset."""
    assert piece.log is not None
    path = Path(piece.log.segments[0].path)
    data = bytearray(path.read_bytes())
    (at,) = (position for position, header in walk(data) if header.base_offset == offset)
    data[at + 70] ^= 0xFF
    path.write_bytes(data)


def test_tasks_count_each_record_once(pieces: tuple[ReportRange, ReportRange]) -> None:
    outcomes = [run_report_task(PROPERTIES, TOPICS, (piece,)) for piece in pieces]
    assert [outcome.topics[TP.topic].records for outcome in outcomes] == [20, 20]
    merged = ReportOutcome().merge(outcomes[0]).merge(outcomes[1])
    assert (merged.topics[TP.topic].records, merged.topics[TP.topic].batches) == (40, 8)
    assert merged.errors == []


def test_a_range_that_cannot_be_read_is_listed_and_the_others_count(pieces: tuple[ReportRange, ReportRange]) -> None:
    damage(pieces[0], 0)
    outcome = run_report_task(PROPERTIES, TOPICS, pieces)
    (error,) = outcome.errors
    assert error.startswith("orders-0: ")
    assert "CRC" in error
    assert outcome.topics[TP.topic].records == 20


def test_a_topic_that_is_not_reported_has_no_figures(pieces: tuple[ReportRange, ReportRange]) -> None:
    outcome = run_report_task(PROPERTIES, frozenset({"users"}), pieces)
    assert (outcome.topics, outcome.errors) == ({}, [])

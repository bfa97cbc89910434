"""Topics of a report, measured from records that are made up."""

import numpy as np

from leadline.records.build import BatchFields, build
from leadline.records.record import Record
from leadline.spark.report.figures import RangeMeasure, TopicFigures
from leadline.spark.report.forecast import TopicLimits, forecast
from leadline.spark.report.lag import Lag
from leadline.spark.report.topic_report import TopicReport
from leadline.spark.report.traffic import DAY_MS
from tests.support.logs import START_MS

EVEN: list[bytes | None] = [b"%d" % n for n in range(400)]


def records(count: int, keys: list[bytes | None], size: int = 100, days: int = 30) -> list[Record]:
    step = days * DAY_MS // count
    values = np.random.default_rng(1).integers(0, 256, (count, size), np.uint8)
    return [Record(n, START_MS + n * step, keys[n % len(keys)], bytes(values[n])) for n in range(count)]


def topic(
    name: str,
    partitions: list[list[Record]],
    limits: TopicLimits | None = None,
    lags: list[Lag] | None = None,
    batch: int = 50,
) -> TopicReport:
    figures = TopicFigures()
    for partition, mine in enumerate(partitions):
        measuring = RangeMeasure(partition, 0, 1 << 40)
        figures.part(partition)
        for n in range(0, len(mine), batch):
            some = mine[n : n + batch]
            measuring.add(bytes(build(some, BatchFields(base_offset=some[0].offset))))
        figures.merge(measuring.figures)
    limits = limits or TopicLimits()
    return TopicReport(name, figures, limits, forecast(figures.parts, limits), lags or [])

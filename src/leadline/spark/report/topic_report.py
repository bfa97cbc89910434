"""The results of a report.

Pure: values.
"""

from dataclasses import dataclass

from leadline.spark.report.figures import TopicFigures
from leadline.spark.report.forecast import Forecast, TopicLimits
from leadline.spark.report.lag import Lag


@dataclass(frozen=True, slots=True)
class TopicReport:
    name: str
    figures: TopicFigures
    limits: TopicLimits
    forecast: Forecast | None
    lags: list[Lag]


@dataclass(frozen=True, slots=True)
class Report:
    where: str
    topics: list[TopicReport]  # the largest first
    errors: list[str]  # of records that could not be read

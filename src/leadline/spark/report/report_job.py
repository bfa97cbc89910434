"""The job `report`: Spark measures topics in one pass over their batches (figures.py, lag.py, forecast.py).

Tasks read from brokers, or from the files of log directories, where the fullest replica of each partition counts. They
return figures, never records; Spark merges the figures of all tasks. The topic of committed offsets is read as well: it
gives the lag of each group.
    a record that cannot be read is missing in the figures, and the report lists the error
"""

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import SparkSession

from leadline.spark.report.figures import TopicFigures
from leadline.spark.report.forecast import TopicLimits, forecast
from leadline.spark.report.lag import CommitHistory, histories
from leadline.spark.report.report_plan import NothingToReport, ReportPlan, Task
from leadline.spark.report.report_task import ReportOutcome, run_report_task
from leadline.spark.report.topic_report import Report, TopicReport


def make_report(spark: SparkSession, work: ReportPlan, properties: Mapping[str, str]) -> Report:
    """Runs the tasks. NothingToReport if there is no record anywhere."""
    outcome = ReportOutcome()
    if work.tasks:
        tasks = spark.sparkContext.parallelize(work.tasks, len(work.tasks))
        do: Callable[[Task], ReportOutcome] = partial(run_report_task, dict(properties), work.topics)
        outcome = tasks.map(do).treeReduce(ReportOutcome.merge)
    return finished_report(work, outcome)


def finished_report(work: ReportPlan, outcome: ReportOutcome) -> Report:
    for tp in work.partitions:
        outcome.topics.setdefault(tp.topic, TopicFigures()).part(tp.partition)
    topics = [_of_topic(name, figures, work, outcome.commits) for name, figures in outcome.topics.items()]
    if not any(topic.figures.records for topic in topics) and not outcome.errors:
        raise NothingToReport(f"there is no record in any topic of {work.where}")
    return Report(work.where, sorted(topics, key=lambda topic: (-topic.figures.stored, topic.name)), outcome.errors)


def _of_topic(name: str, figures: TopicFigures, work: ReportPlan, commits: CommitHistory) -> TopicReport:
    width = max((part.slots.width_ms for part in figures.parts.values()), default=0)
    for part in figures.parts.values():
        part.slots.widen(width)
    limits = work.limits.get(name, TopicLimits())
    slots = {partition: part.slots for partition, part in figures.parts.items()}
    return TopicReport(name, figures, limits, forecast(figures.parts, limits), histories(commits, name, slots))

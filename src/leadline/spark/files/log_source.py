"""The format `leadline-log`: the files of log directories as DataFrames, without a broker.

    spark.read.format("leadline-log").option("view", "batches").load("/var/lib/leadline")

    option                  means
    path, paths             log directories, or folders of partitions (the argument of `load`; paths: a JSON list)
    view                    records (default), batches, indexes, checkpoints, producers, offsets, transactions
    topic                   only these, separated by commas
    until                   records: high-watermark (default) or log-end
    kafka.isolation.level   records: read_uncommitted (default) or read_committed
    includeHeaders          records: also the column `headers`
    minPartitions           the least number of tasks, if there is enough to read

`offsets` and `transactions` are the internal topics of coordinators, decoded: all committed records, in order.
The directories must be visible to all executors under the same paths.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from leadline.config.settings import nearest
from leadline.spark.files import segments
from leadline.spark.files.log_split import LogSplit, in_columns
from leadline.spark.files.log_views import CHECKPOINTS, RECORDS_WITH_HEADERS, VIEWS, SplitBy, checkpoints_of
from leadline.spark.files.segments import LogFiles, SegmentFile
from leadline.spark.ranges import SPLIT_BYTES, Range, plan
from leadline.spark.topics.source_options import BadOption, SourceOptions

NAMES = "path paths view topic until includeHeaders minPartitions".split()
UNTIL = {"high-watermark": False, "log-end": True}
ISOLATION = {"read_uncommitted": False, "read_committed": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    paths: tuple[str, ...]
    view: str
    topics: tuple[str, ...] = ()
    to_log_end: bool = False
    committed: bool = False
    headers: bool = False
    min_partitions: int = 1

    @property
    def schema(self) -> pa.Schema:
        return RECORDS_WITH_HEADERS if self.view == "records" and self.headers else VIEWS[self.view].schema


def log_options(options: Mapping[str, str]) -> LogOptions:
    source = SourceOptions(options, NAMES, ["isolation.level"])
    view = (source.text("view") or "records").strip()
    if view not in VIEWS:
        raise BadOption(f"view={view}: there are {', '.join(VIEWS)}{nearest(view, VIEWS)}")
    topics = VIEWS[view].topic or source.text("topic") or ""
    return LogOptions(
        paths=_paths(source),
        view=view,
        topics=tuple(name.strip() for name in topics.split(",") if name.strip()),
        to_log_end=_choice("until", source.text("until") or "high-watermark", UNTIL),
        committed=_choice("kafka.isolation.level", source.client.get("isolation.level", "read_uncommitted"), ISOLATION),
        headers=source.flag("includeHeaders", default=False),
        min_partitions=source.count("minPartitions") or 1,
    )


def _choice(name: str, text: str, choices: Mapping[str, bool]) -> bool:
    if text.strip() not in choices:
        raise BadOption(f"{name}={text}: expected {' or '.join(choices)}")
    return choices[text.strip()]


def _paths(source: SourceOptions) -> tuple[str, ...]:
    single, several = source.text("path"), source.text("paths")
    try:
        listed = [] if several is None else json.loads(several)
    except ValueError:
        listed = None
    if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
        raise BadOption(f'paths={several}: expected a JSON list, as ["/data/1", "/data/2"]')
    paths = [path.removeprefix("file://").removeprefix("file:") for path in [*([single] if single else []), *listed]]
    if not paths:
        raise BadOption("path is missing: a log directory, or the folder of a partition")
    return tuple(paths)


class LeadlineLogSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "leadline-log"

    def schema(self) -> StructType:
        return from_arrow_schema(log_options(dict(self.options)).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return LogReader(log_options(dict(self.options)))


@dataclass
class LogTask(InputPartition):
    parts: tuple[LogSplit, ...] = ()
    log_dirs: tuple[str, ...] = ()  # the task reads the checkpoints of these directories, too


class LogReader(DataSourceReader):
    def __init__(self, options: LogOptions) -> None:
        self.options = options

    def partitions(self) -> Sequence[InputPartition]:
        return tasks(self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, LogTask):
            return  # Spark makes one of its own where nothing is planned
        for log_dir in partition.log_dirs:
            yield from in_columns(checkpoints_of(log_dir), CHECKPOINTS)
        for part in partition.parts:
            yield from VIEWS[self.options.view].read(part)


# The tasks


def tasks(options: LogOptions) -> list[InputPartition]:
    logs, by = segments.logs_in(options.paths, options.topics), VIEWS[options.view].by
    if by is SplitBy.FILES:
        return list(_file_tasks(logs, options.min_partitions))
    if by is SplitBy.OFFSETS:
        return list(_record_tasks(logs, options))
    log_dirs = {log.log_dir for log in logs} if options.view == "checkpoints" else ()
    return [LogTask(tuple(map(LogSplit, logs)), tuple(sorted(log_dirs)))]


def _record_tasks(logs: Iterable[LogFiles], options: LogOptions) -> Iterator[InputPartition]:
    """Tasks by offsets. Each log directory is planned on its own, because several may hold the same topics."""
    committed = options.committed or options.view != "records"
    by_dir: dict[str, list[LogFiles]] = defaultdict(list)
    for log in logs:
        by_dir[log.log_dir].append(log)
    for of_dir in by_dir.values():
        ranges, sizes, by_tp = [], {}, {log.tp: log for log in of_dir}
        for log in of_dir:
            until = segments.readable_until(log, committed=committed, to_log_end=options.to_log_end)
            ranges.append(Range(log.tp, log.log_start, until))
            sizes[log.tp] = log.size / max(until - log.log_start, 1)
        least = -(-options.min_partitions // len(by_dir))
        for task in plan(ranges, sizes, min_tasks=least):
            parts = [
                LogSplit(by_tp[range_.tp], (), range_.first, range_.until, committed, options.headers)
                for range_ in task
            ]
            yield LogTask(tuple(parts))


def _file_tasks(logs: Iterable[LogFiles], least: int) -> Iterator[InputPartition]:
    """Tasks by files. A large file has its own task; small files of one or several logs share a task."""
    files = [(log, segment) for log in logs for segment in log.segments]
    limit = min(SPLIT_BYTES, sum(segment.size for _, segment in files) // least)
    task: dict[str, list[tuple[LogFiles, SegmentFile]]] = defaultdict(list)
    filled = 0
    for log, segment in files:
        if task and filled + segment.size > limit:
            yield _file_task(task.values())
            task.clear()
            filled = 0
        task[log.directory].append((log, segment))
        filled += segment.size
    if task:
        yield _file_task(task.values())


def _file_task(by_log: Iterable[list[tuple[LogFiles, SegmentFile]]]) -> LogTask:
    return LogTask(tuple(LogSplit(some[0][0], tuple(segment for _, segment in some)) for some in by_log))

"""The offset map of a mirror: which target offset a source offset became.

A run is a sequence of records with consecutive offsets in both clusters: (source, target, count). Between two runs, one
cluster has offsets that the other lacks: of records that compaction removed, of markers, of other producers' records.
    runs of a partition are in order in both clusters
    all records before an offset of one cluster lie before its translation in the other

Format of a record of the topic that holds them: key {"topic": ..., "partition": ...}, value {"runs": [[s, t, n], ...]}.

Pure: values in, values out.
"""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from leadline.model import Offset, TopicPartition

RUNS_PER_RECORD = 5000


class OffsetRun(NamedTuple):
    source: Offset
    target: Offset
    length: int


class OffsetMap:
    def __init__(self) -> None:
        self._runs: dict[TopicPartition, list[OffsetRun]] = defaultdict(list)

    def add(self, tp: TopicPartition, run: OffsetRun) -> None:
        """Appends a run; one that continues the last run extends it."""
        runs = self._runs[tp]
        last = runs[-1] if runs else None
        if last is not None and (last.source + last.length, last.target + last.length) == (run.source, run.target):
            runs[-1] = last._replace(length=last.length + run.length)
        elif last is None or run.source >= last.source + last.length:
            runs.append(run)

    def translate(self, tp: TopicPartition, source: Offset) -> Offset | None:
        """The target offset at which a reader of everything before `source` resumes; None if nothing was copied."""
        runs = self._runs.get(tp)
        if not runs:
            return None
        n = bisect_right(runs, source, key=lambda run: run.source) - 1
        if n < 0:
            return runs[0].target
        return runs[n].target + min(source - runs[n].source, runs[n].length)

    def runs(self) -> Mapping[TopicPartition, list[OffsetRun]]:
        return self._runs

    def to_records(self) -> Iterator[tuple[str, str]]:
        for tp, runs in sorted(self._runs.items()):
            key = json.dumps({"topic": tp.topic, "partition": tp.partition})
            for n in range(0, len(runs), RUNS_PER_RECORD):
                yield key, json.dumps({"runs": runs[n : n + RUNS_PER_RECORD]})

    def take(self, key: str | bytes, value: str | bytes) -> None:
        """Adds a record that `to_records` wrote."""
        where = json.loads(key)
        self.take_runs(TopicPartition(where["topic"], where["partition"]), json.loads(value)["runs"])

    def take_runs(self, tp: TopicPartition, runs: Iterable[Iterable[int]]) -> None:
        for run in runs:
            self.add(tp, OffsetRun(*run))

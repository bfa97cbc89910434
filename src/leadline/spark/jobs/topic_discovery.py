"""The jobs of a cluster's topics, and what changes when topics appear and disappear.

An entry names topics, or has a pattern. A topic that is named has a job from the start, whether it exists or not: it
fails until the topic is there. A topic whose name matches a pattern has a job as long as it exists.

Pure: names in, jobs out.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")


@dataclass(frozen=True, slots=True)
class TopicEntry(Generic[J]):
    topics: tuple[str, ...]
    pattern: str | None  # of whole names
    job_of: Callable[[str], J]  # by the name of a topic

    def matching(self, existing: Collection[str]) -> list[str]:
        if self.pattern is None:
            return list(self.topics)
        pattern = re.compile(self.pattern)
        return sorted(name for name in existing if pattern.fullmatch(name))


@dataclass(frozen=True, slots=True)
class JobChanges(Generic[J]):
    added: list[J]
    removed: list[str]  # names of jobs
    conflicts: list[str]  # why a topic gets no job


def job_changes(
    entries: Sequence[TopicEntry[J]],
    existing: Collection[str],
    current: Mapping[str, str],
    name_of: Callable[[J], str],
) -> JobChanges[J]:
    """`existing`: topics that are not internal. `current`: the topic of each job, by the job's name."""
    expected: dict[str, tuple[str, J]] = {}
    conflicts = []
    for entry in entries:
        for topic in entry.matching(existing):
            job = entry.job_of(topic)
            other, _ = expected.setdefault(name_of(job), (topic, job))
            if other != topic:
                conflicts.append(f"{topic} gets no table: {name_of(job)} is the table of {other}")
    return JobChanges(
        [job for name, (_, job) in expected.items() if name not in current],
        [name for name in current if name not in expected],
        conflicts,
    )

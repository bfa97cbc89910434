"""The job `audit`: checks the files of replicas, and compares the replicas of each partition.

A task reads a range of offsets of one partition, from all its replicas. Ranges end where segments end. Every task whose
range a segment overlaps reads it; the task in whose range it starts reports it. A compacted partition is one task,
because its records can only be compared as a whole.
"""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from leadline.errors import CorruptFile
from leadline.log import names
from leadline.model import Offset, TopicPartition, format_id
from leadline.spark.audit import checks, comparison, file_scan
from leadline.spark.audit.checks import FileContent, Finding, FindingKind
from leadline.spark.audit.comparison import ReplicaContent, ReplicaRecords
from leadline.spark.files import segments
from leadline.spark.files.segments import EVERYTHING, LogFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UNIT_BYTES = 256 << 20  # of all replicas together; a larger segment is a task of its own
MOST_FINDINGS, MOST_KEPT = 1000, 10_000  # of a task: reported singly, and kept until duplicates are removed
AGAIN_S = 0.5  # before the second read of files of a running broker
ROUNDS = 4  # tasks for each core, between two reports of progress


@dataclass(frozen=True, slots=True)
class AuditTask:
    logs: tuple[LogFiles, ...]  # replicas of one partition
    first: Offset
    until: Offset  # exclusive
    checksums: bool


@dataclass(slots=True)
class AuditResult:
    findings: list[Finding] = field(default_factory=list)
    unreported: int = 0  # findings beyond the limit
    files: int = 0
    bytes: int = 0
    batches: int = 0
    seconds: float = 0.0  # of one core

    def report(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if len(self.findings) < MOST_KEPT:
                self.findings.append(finding)
            else:
                self.unreported += 1

    def add(self, other: "AuditResult") -> None:
        self.findings += other.findings
        self.unreported += other.unreported
        self.files += other.files
        self.bytes += other.bytes
        self.batches += other.batches
        self.seconds += other.seconds


# The tasks


def units(logs: Sequence[LogFiles], *, checksums: bool, unit_bytes: int = UNIT_BYTES) -> Iterator[AuditTask]:
    """The tasks for all partitions. Logs with the same name and the same topic id, if they have one, are replicas."""
    by_partition: dict[tuple[TopicPartition, str], list[LogFiles]] = defaultdict(list)
    for log in logs:
        by_partition[log.tp, str(log.topic_id or "")].append(log)
    for _, replicas in sorted(by_partition.items()):
        cuts = [0, *_cuts(replicas, unit_bytes), EVERYTHING]
        yield from (AuditTask(tuple(replicas), first, until, checksums) for first, until in pairwise(cuts))


def _cuts(replicas: Sequence[LogFiles], unit_bytes: int) -> Iterator[Offset]:
    """The offsets between two tasks: base offsets of segments, in the replica with the most segments."""
    if any(log.cleaned_until is not None for log in replicas):
        return
    filled = 0
    for segment in max(replicas, key=lambda log: len(log.segments)).segments:
        if filled > 0 and filled + segment.size * len(replicas) > unit_bytes:
            yield segment.base_offset
            filled = 0
        filled += segment.size * len(replicas)


def logs_of(paths: Sequence[str], topics: Sequence[str] = ()) -> tuple[list[LogFiles], list[Finding]]:
    """The logs, and the findings about checkpoints and topic ids. NoLogs if a path holds none."""
    damaged: list[CorruptFile] = []
    logs = segments.logs_in(paths, topics, damaged.append)
    findings = [Finding(FindingKind.FILE, None, error.path, error.position, error.reason) for error in damaged]
    return logs, findings + list(_other_topics(logs))


def _other_topics(logs: Sequence[LogFiles]) -> Iterator[Finding]:
    """Partitions of different topics with the same name: one topic was deleted and created again."""
    first_logs: dict[str, LogFiles] = {}
    for log in logs:
        first = first_logs.setdefault(log.tp.topic, log)
        if log.topic_id is not None and first.topic_id is not None and log.topic_id != first.topic_id:
            ids = f"{format_id(log.topic_id)}, but in {first.directory} it is {format_id(first.topic_id)}"
            path = os.path.join(log.directory, names.PARTITION_METADATA_FILE)
            yield Finding(FindingKind.TOPIC, log.tp, path, 0, f"the topic's id is {ids}")


# One task


def audit_unit(unit: AuditTask) -> AuditResult:
    """Reads the files of a running broker twice if there are findings: files change while they are read.

    Only findings of both reads count.
    """
    started = time.perf_counter()
    result = _audited(unit)
    if result.findings and not all(map(_is_stopped, unit.logs)):
        time.sleep(AGAIN_S)
        second_result = _audited(replace(unit, logs=tuple(map(segments.listed_again, unit.logs))))
        places = {finding.place for finding in result.findings}
        second_result.findings = [finding for finding in second_result.findings if finding.place in places]
        result = second_result
    result.unreported += max(len(result.findings) - MOST_FINDINGS, 0)
    del result.findings[MOST_FINDINGS:]
    result.seconds = time.perf_counter() - started
    return result


def _is_stopped(log: LogFiles) -> bool:
    return os.path.exists(os.path.join(log.log_dir, names.CLEAN_SHUTDOWN_FILE))


def _audited(unit: AuditTask) -> AuditResult:
    result = AuditResult()
    replicas = [(log, replica) for log in unit.logs if (replica := _replica(unit, log, result)) is not None]
    replicas.sort(key=lambda pair: (pair[1].batches.epoch.max(initial=-1), pair[1].batches.end or 0), reverse=True)
    until = min(comparison.committed_until([replica for _, replica in replicas]), unit.until)
    cleaned = max((replica.cleaned_until for _, replica in replicas), default=0)
    result.report(comparison.compare([replica for _, replica in replicas], max(unit.first, cleaned), until))
    if cleaned:
        result.report(_compare_compacted(replicas, until))
    by_place = {finding.place: finding for finding in reversed(result.findings)}
    result.findings = sorted(by_place.values(), key=lambda finding: (finding.path, finding.position))
    return result


def _replica(unit: AuditTask, log: LogFiles, result: AuditResult) -> ReplicaContent | None:
    """None if there are no files, or if some were removed during the read."""
    contents: list[FileContent] = []
    own_contents: list[FileContent] = []
    for segment, above in segments.segments_of(log, unit.first, unit.until):
        is_own = segment.base_offset >= unit.first
        try:
            content, findings = file_scan.examine(log, segment, above, checksums=unit.checksums and is_own)
        except FileNotFoundError:
            return None
        except OSError as error:
            text = f"it cannot be read: {error.strerror}"
            result.report([Finding(FindingKind.FILE, log.tp, error.filename or segment.path, 0, text)])
            return None
        contents.append(content)
        if is_own:
            own_contents.append(content)
            result.report(findings)
            result.files += 1
            result.bytes += segment.size
            result.batches += len(content.batches)
    result.report(file_scan.epochs(log, own_contents))
    if unit.until == EVERYTHING:
        result.report(file_scan.snapshots(log))
        result.report(checks.short(contents[-1], log.high_watermark) if contents else ())
    if not contents:
        return None
    return ReplicaContent(log.tp, tuple(contents), log.log_start, log.high_watermark, log.cleaned_until or 0)


def _compare_compacted(replicas: Sequence[tuple[LogFiles, ReplicaContent]], until: Offset) -> Iterator[Finding]:
    """Compares each replica with each other one: two replicas may hold a record that a third one lacks."""
    records_by_replica: list[tuple[ReplicaContent, ReplicaRecords]] = []
    for log, replica in replicas:
        try:
            records_by_replica.append((replica, file_scan.records(log, until)))
        except CorruptFile as error:
            yield Finding(FindingKind.FRAME, log.tp, error.path, error.position, error.reason)
        except FileNotFoundError:
            continue  # compaction replaced the file during the read
    for replica_a, replica_b in permutations(records_by_replica, 2):
        yield from comparison.compare_compacted(*replica_a, *replica_b, until)


# All tasks


def audit_all(spark: "SparkSession", work: Sequence[AuditTask]) -> Iterator[AuditResult]:
    """The results of the tasks, a round at a time. A round has ROUNDS tasks for each core."""
    context = spark.sparkContext
    at_once = max(context.defaultParallelism * ROUNDS, 1)
    for start in range(0, len(work), at_once):
        tasks = work[start : start + at_once]
        yield from context.parallelize(tasks, len(tasks)).map(audit_unit).collect()

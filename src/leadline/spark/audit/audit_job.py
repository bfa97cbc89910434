"""The job `audit`: the replicas of topics, held against each other and against what must hold of each, by their files.

A unit of work is a range of offsets of one partition, with the files of all its replicas; ranges end where segments do.
A file is reported by the unit in which it starts, and read by all units that it reaches into. What was compacted is
one unit, as its records can only be judged together.
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

UNIT_BYTES = 256 << 20  # of all replicas together; a larger segment is a unit of its own
MOST_FINDINGS, MOST_KEPT = 1000, 10_000  # of a unit: reported one by one, and kept until duplicates are removed
AGAIN_S = 0.5  # until what was found beside a running broker is looked for once more
ROUNDS = 4  # of units for each core, between two reports


@dataclass(frozen=True, slots=True)
class AuditTask:
    logs: tuple[LogFiles, ...]  # replicas of one partition
    first: Offset
    until: Offset  # exclusive
    checksums: bool


@dataclass(slots=True)
class AuditResult:
    findings: list[Finding] = field(default_factory=list)
    unreported: int = 0  # findings that were too many
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


# What there is to do


def units(logs: Sequence[LogFiles], *, checksums: bool, unit_bytes: int = UNIT_BYTES) -> Iterator[AuditTask]:
    """Replicas are what has the same name and the same topic id, as far as it is known."""
    by_partition: dict[tuple[TopicPartition, str], list[LogFiles]] = defaultdict(list)
    for log in logs:
        by_partition[log.tp, str(log.topic_id or "")].append(log)
    for _, replicas in sorted(by_partition.items()):
        cuts = [0, *_cuts(replicas, unit_bytes), EVERYTHING]
        yield from (AuditTask(tuple(replicas), first, until, checksums) for first, until in pairwise(cuts))


def _cuts(replicas: Sequence[LogFiles], unit_bytes: int) -> Iterator[Offset]:
    """Where one unit ends and the next begins: at segments of the replica that has the most."""
    if any(log.cleaned_until is not None for log in replicas):
        return
    filled = 0
    for segment in max(replicas, key=lambda log: len(log.segments)).segments:
        if filled > 0 and filled + segment.size * len(replicas) > unit_bytes:
            yield segment.base_offset
            filled = 0
        filled += segment.size * len(replicas)


def logs_of(paths: Sequence[str], topics: Sequence[str] = ()) -> tuple[list[LogFiles], list[Finding]]:
    """What is there, and what is wrong with it before any log was opened. NoLogs."""
    damaged: list[CorruptFile] = []
    logs = segments.logs_in(paths, topics, damaged.append)
    findings = [Finding(FindingKind.FILE, None, error.path, error.position, error.reason) for error in damaged]
    return logs, findings + list(_other_topics(logs))


def _other_topics(logs: Sequence[LogFiles]) -> Iterator[Finding]:
    """Partitions of the same name that are of different topics: one was deleted and made anew."""
    first_logs: dict[str, LogFiles] = {}
    for log in logs:
        first = first_logs.setdefault(log.tp.topic, log)
        if log.topic_id is not None and first.topic_id is not None and log.topic_id != first.topic_id:
            ids = f"{format_id(log.topic_id)}, but in {first.directory} it is {format_id(first.topic_id)}"
            path = os.path.join(log.directory, names.PARTITION_METADATA_FILE)
            yield Finding(FindingKind.TOPIC, log.tp, path, 0, f"the topic's id is {ids}")


# One unit


def audit_unit(unit: AuditTask) -> AuditResult:
    """Beside a broker that runs, files change while they are read: there, what is found must be found twice."""
    started = time.perf_counter()
    result = _audited(unit)
    if result.findings and not all(map(_is_stopped, unit.logs)):
        time.sleep(AGAIN_S)
        again = _audited(replace(unit, logs=tuple(map(segments.listed_again, unit.logs))))
        places = {finding.place for finding in result.findings}
        again.findings = [finding for finding in again.findings if finding.place in places]
        result = again
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
    """None if there are no files, or some were removed while they were read: then nothing can be said of it."""
    reads: list[FileContent] = []
    own: list[FileContent] = []
    for segment, above in segments.segments_of(log, unit.first, unit.until):
        is_own = segment.base_offset >= unit.first
        try:
            read, findings = file_scan.examine(log, segment, above, checksums=unit.checksums and is_own)
        except FileNotFoundError:
            return None
        except OSError as error:
            text = f"it cannot be read: {error.strerror}"
            result.report([Finding(FindingKind.FILE, log.tp, error.filename or segment.path, 0, text)])
            return None
        reads.append(read)
        if is_own:
            own.append(read)
            result.report(findings)
            result.files += 1
            result.bytes += segment.size
            result.batches += len(read.batches)
    result.report(file_scan.epochs(log, own))
    if unit.until == EVERYTHING:
        result.report(file_scan.snapshots(log))
        result.report(checks.short(reads[-1], log.high_watermark) if reads else ())
    if not reads:
        return None
    return ReplicaContent(log.tp, tuple(reads), log.log_start, log.high_watermark, log.cleaned_until or 0)


def _compare_compacted(replicas: Sequence[tuple[LogFiles, ReplicaContent]], until: Offset) -> Iterator[Finding]:
    """Each with each: what one of them dropped, two others may still have."""
    read: list[tuple[ReplicaContent, ReplicaRecords]] = []
    for log, replica in replicas:
        try:
            read.append((replica, file_scan.records(log, until)))
        except CorruptFile as error:
            yield Finding(FindingKind.FRAME, log.tp, error.path, error.position, error.reason)
        except FileNotFoundError:
            continue  # compacted once more meanwhile
    for replica_a, replica_b in permutations(read, 2):
        yield from comparison.compare_compacted(*replica_a, *replica_b, until)


# All of them


def audit_all(spark: "SparkSession", work: Sequence[AuditTask]) -> Iterator[AuditResult]:
    """Results as they come, a round of units at a time: as many as there are cores, some times over."""
    context = spark.sparkContext
    at_once = max(context.defaultParallelism * ROUNDS, 1)
    for begin in range(0, len(work), at_once):
        some = work[begin : begin + at_once]
        yield from context.parallelize(some, len(some)).map(audit_unit).collect()

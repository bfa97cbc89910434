"""Log directories: whether they are online, flushes, recovery and compaction."""

from leadline.log.log_dirs import LogDirs
from leadline.metrics.families import Collected, FamilySet, labels_text, one
from leadline.metrics.sources import MeasuredTimes, MetricsSources, histogram_samples

FAMILIES = FamilySet("Log directories")
OFFLINE_DIRECTORIES = FAMILIES.gauge(
    "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that cannot be used"
)
DIRECTORY_OFFLINE = FAMILIES.gauge(
    "kafka_log_logmanager_logdirectoryoffline", "1: the log directory cannot be used", "logDirectory"
)
LOGS_TO_RECOVER = FAMILIES.gauge(
    "kafka_log_logmanager_remaininglogstorecover", "Logs that are still to be loaded during the start"
)
DISK_TOTAL = FAMILIES.gauge(
    "leadline_log_directory_total_bytes", "Size of the file system of a log directory", "logDirectory"
)
DISK_USABLE = FAMILIES.gauge(
    "leadline_log_directory_usable_bytes", "Free space for this broker in a log directory", "logDirectory"
)
FLUSHES = FAMILIES.histogram("kafka_log_logflushstats_logflushrateandtimems", "Time of a flush of a log")
_CLEANER, _MANAGER = "kafka_log_logcleaner", "kafka_log_logcleanermanager"
RECOPIED = FAMILIES.gauge(
    f"{_CLEANER}_cleaner_recopy_percent", "Bytes that the last compaction wrote, in percent of those that it read"
)
CLEAN_TIME = FAMILIES.gauge(f"{_CLEANER}_max_clean_time_secs", "Seconds that the last compaction took")
MAX_DIRTY = FAMILIES.gauge(
    f"{_MANAGER}_max_dirty_percent", "The largest part of a compacted log that is not compacted yet, in percent"
)
SINCE_LAST_RUN = FAMILIES.gauge(
    f"{_MANAGER}_time_since_last_run_ms", "Milliseconds since logs were last checked for compaction"
)
UNCLEANABLE = FAMILIES.gauge(
    f"{_MANAGER}_uncleanable_partitions_count", "Partitions that cannot be compacted", "logDirectory"
)
UNCLEANABLE_BYTES = FAMILIES.gauge(
    f"{_MANAGER}_uncleanable_bytes", "Bytes of the partitions that cannot be compacted", "logDirectory"
)
FLUSH_KEY = "flushes"


def collect_while_starting(sources: MetricsSources) -> Collected:
    """What there is before the logs are loaded."""
    dirs = sources.broker.dirs
    yield one(OFFLINE_DIRECTORIES, len(dirs.offline))
    states = [(path, 0) for path in dirs.dirs] + [(path, 1) for path in dirs.offline]
    yield DIRECTORY_OFFLINE, [(labels_text(logDirectory=path), state) for path, state in states]
    yield one(LOGS_TO_RECOVER, dirs.recovery.logs - dirs.recovery.logs_done)


def collect(sources: MetricsSources) -> Collected:
    yield from collect_while_starting(sources)
    broker = sources.broker
    yield from _disks(broker.dirs)
    flushes = MeasuredTimes.of(FLUSH_KEY, broker.dirs.flush_times)
    yield from histogram_samples(FLUSHES, [({}, flushes)], sources.recent)
    cleaner = broker.log_tasks.cleaner
    statistics = cleaner.statistics
    last = statistics.last_pass or {}
    read = last.get("bytes_read", 0)
    yield one(RECOPIED, 100 * last.get("bytes_written", 0) / read if read else 0)
    yield one(CLEAN_TIME, last.get("seconds", 0))
    yield one(MAX_DIRTY, 100 * statistics.max_dirty_ratio)
    if statistics.last_run_ms is not None:
        yield one(SINCE_LAST_RUN, max(broker.clock.now_ms() - statistics.last_run_ms, 0))
    uncleanable = [broker.dirs.logs[tp] for tp in cleaner.uncleanable if tp in broker.dirs.logs]
    by_path = {path: [log for log in uncleanable if log.parent == path] for path in broker.dirs.dirs}
    yield UNCLEANABLE, [(labels_text(logDirectory=path), len(logs)) for path, logs in by_path.items()]
    yield (
        UNCLEANABLE_BYTES,
        [(labels_text(logDirectory=path), sum(log.size for log in logs)) for path, logs in by_path.items()],
    )


def _disks(dirs: LogDirs) -> Collected:
    spaces = []
    for path in dirs.dirs:
        try:
            spaces.append((labels_text(logDirectory=path), dirs.files.disk_space(path)))
        except OSError:
            continue  # the next write fails, and takes it offline
    yield DISK_TOTAL, [(labels, space.total_bytes) for labels, space in spaces]
    yield DISK_USABLE, [(labels, space.usable_bytes) for labels, space in spaces]

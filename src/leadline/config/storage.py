"""The settings of a broker for all its logs together.

Pure: text in, values out.
"""

import sys
from dataclasses import dataclass

from leadline.config.checks import ValueCheck, at_least, between
from leadline.config.settings import Importance, Mode, Settings, setting
from leadline.config.values import DAY_MS, LONG_MAX, ConfigType, csv

BOOLEAN, DOUBLE, INT, LONG, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.DOUBLE,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.STRING,
)
HIGH, LOW = Importance.HIGH, Importance.LOW
CLUSTER_WIDE = Mode.CLUSTER_WIDE


def stricter(check: ValueCheck) -> ValueCheck:
    """A check that Kafka lacks: with such a value Kafka does not start, or the setting has no effect."""
    return ValueCheck(check.is_valid, check.requirement, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageConfig(Settings):
    """The broker's settings for all its logs together."""

    log_dirs: tuple[str, ...] = setting(
        ("leadline-data",),
        STRING,
        "the log directories; not set: that of log.dir",
        importance=HIGH,
        declared=None,
        into=csv,
    )
    num_recovery_threads_per_data_dir: int = setting(
        1, INT, "threads that recover the logs of one directory", at_least(1), importance=HIGH, mode=CLUSTER_WIDE
    )
    log_initial_task_delay_ms: int = setting(
        30_000, LONG, "delay before the first periodic task", at_least(0), importance=LOW, internal=True
    )
    log_retention_check_interval_ms: int = setting(
        300_000, LONG, "interval between checks for expired segments", at_least(1)
    )
    log_flush_scheduler_interval_ms: int = setting(
        LONG_MAX, LONG, "interval between checks for logs that need a flush", stricter(at_least(1)), importance=HIGH
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000, INT, "interval between checkpoints of the recovery points", at_least(0), importance=HIGH
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        60_000, INT, "interval between checkpoints of the log start offsets", at_least(0), importance=HIGH
    )
    producer_id_expiration_ms: int = setting(
        DAY_MS, INT, "how long an idle producer is remembered", at_least(1), importance=LOW, mode=CLUSTER_WIDE
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000, INT, "interval between checks for idle producers", at_least(1), importance=LOW, internal=True
    )
    log_cleaner_enable: bool = setting(True, BOOLEAN, "whether logs are compacted")
    log_cleaner_threads: int = setting(
        1, INT, "logs compacted at the same time, each in a process of its own", at_least(0), mode=CLUSTER_WIDE
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        sys.float_info.max,
        DOUBLE,
        "bytes per second that all cleaners together may read and write",
        stricter(at_least(1)),
        mode=CLUSTER_WIDE,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        128 * 1024 * 1024,
        LONG,
        "memory for the keys of one pass, all cleaners together",
        stricter(at_least(1)),
        mode=CLUSTER_WIDE,
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        0.9, DOUBLE, "maximum load of the buffer for keys", stricter(between(0, 1)), mode=CLUSTER_WIDE
    )
    log_cleaner_io_buffer_size: int = setting(
        512 * 1024, INT, "bytes read and written at a time", at_least(0), mode=CLUSTER_WIDE
    )
    log_cleaner_backoff_ms: int = setting(
        15_000, LONG, "how long a cleaner sleeps when no log needs compaction", at_least(0), mode=CLUSTER_WIDE
    )

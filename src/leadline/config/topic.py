"""The settings of a topic, and the broker's settings with their defaults.

Pure: text in, values out.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

from leadline.config.checks import (
    at_least,
    between,
    each_of,
    gzip_level,
    one_of,
    throttled_replicas,
    version,
)
from leadline.config.settings import Importance, SettingRow, Settings, Support, from_broker, setting
from leadline.config.values import DAY_MS, LONG_MAX, ConfigType, InvalidSetting

BOOLEAN, DOUBLE, INT, LIST, LONG, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.DOUBLE,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.LONG,
    ConfigType.STRING,
)
HIGH, LOW = Importance.HIGH, Importance.LOW


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig(Settings):
    """The settings of a topic that are obeyed, most of them by its logs."""

    cleanup_policy: tuple[str, ...] = setting(
        ("delete",),
        LIST,
        "delete old segments, compact them by key, or both",
        each_of("compact", "delete"),
        from_broker=from_broker("log.cleanup.policy"),
    )
    compression_type: str = setting(
        "producer",
        STRING,
        "codec of stored batches; producer: the codec of the producer",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        from_broker=from_broker("compression.type", importance=HIGH),
    )
    compression_gzip_level: int = setting(
        -1, INT, "gzip's level", gzip_level, from_broker=from_broker("compression.gzip.level")
    )
    compression_lz4_level: int = setting(
        9, INT, "lz4's level", between(1, 17), from_broker=from_broker("compression.lz4.level")
    )
    compression_zstd_level: int = setting(
        3, INT, "zstd's level", between(-131072, 22), from_broker=from_broker("compression.zstd.level")
    )
    delete_retention_ms: int = setting(
        DAY_MS,
        LONG,
        "how long a tombstone stays after it was compacted",
        at_least(0),
        from_broker=from_broker("log.cleaner.delete.retention.ms"),
    )
    file_delete_delay_ms: int = setting(
        60_000,
        LONG,
        "how long a deleted file waits before it is removed",
        at_least(0),
        from_broker=from_broker("log.segment.delete.delay.ms", importance=HIGH),
    )
    flush_messages: int = setting(
        LONG_MAX,
        LONG,
        "how many records may be unflushed",
        at_least(1),
        from_broker=from_broker("log.flush.interval.messages", importance=HIGH),
    )
    flush_ms: int = setting(
        LONG_MAX,
        LONG,
        "how long a record may be unflushed",
        at_least(0),
        from_broker=from_broker("log.flush.interval.ms", "log.flush.scheduler.interval.ms", importance=HIGH),
    )
    follower_replication_throttled_replicas: str = setting(
        "",
        LIST,
        "replicas that fetch no faster than their broker's throttle: partition:broker, or * for all",
        throttled_replicas,
        declared=(),
        into=",".join,
    )
    index_interval_bytes: int = setting(
        4096,
        INT,
        "bytes of log between two index entries",
        at_least(0),
        from_broker=from_broker("log.index.interval.bytes"),
    )
    leader_replication_throttled_replicas: str = setting(
        "",
        LIST,
        "replicas to which the leader sends no faster than its throttle: partition:broker, or * for all",
        throttled_replicas,
        declared=(),
        into=",".join,
    )
    max_compaction_lag_ms: int = setting(
        LONG_MAX,
        LONG,
        "how long a record may stay uncompacted",
        at_least(1),
        from_broker=from_broker("log.cleaner.max.compaction.lag.ms"),
    )
    max_message_bytes: int = setting(
        1_048_588,
        INT,
        "the largest batch, after compression",
        at_least(0),
        from_broker=from_broker("message.max.bytes", importance=HIGH),
    )
    message_downconversion_enable: bool = setting(
        True,
        BOOLEAN,
        "whether records are converted for consumers from before Kafka 0.11, which are refused otherwise",
        importance=LOW,
        from_broker=from_broker("log.message.downconversion.enable", importance=LOW),
    )
    message_timestamp_after_max_ms: int = setting(
        LONG_MAX,
        LONG,
        "how far a record's time may be ahead of the broker's",
        at_least(0),
        from_broker=from_broker("log.message.timestamp.after.max.ms"),
    )
    message_timestamp_before_max_ms: int = setting(
        LONG_MAX,
        LONG,
        "how far a record's time may be behind the broker's",
        at_least(0),
        from_broker=from_broker("log.message.timestamp.before.max.ms"),
    )
    message_timestamp_difference_max_ms: int = setting(
        LONG_MAX,
        LONG,
        "how far a record's time may differ from the broker's, if the two newer limits are not set",
        at_least(0),
        from_broker=from_broker("log.message.timestamp.difference.max.ms"),
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        STRING,
        "whether a record has the time of its creation or of its append",
        one_of("CreateTime", "LogAppendTime"),
        from_broker=from_broker("log.message.timestamp.type"),
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        DOUBLE,
        "the share of a log that must be dirty before it is compacted",
        between(0, 1),
        from_broker=from_broker("log.cleaner.min.cleanable.ratio"),
    )
    min_compaction_lag_ms: int = setting(
        0,
        LONG,
        "how long a record stays uncompacted at least",
        at_least(0),
        from_broker=from_broker("log.cleaner.min.compaction.lag.ms"),
    )
    min_insync_replicas: int = setting(
        1,
        INT,
        "replicas that must store a record before acks=all is acknowledged",
        at_least(1),
        from_broker=from_broker("min.insync.replicas", importance=HIGH),
    )
    preallocate: bool = setting(
        False,
        BOOLEAN,
        "reserve a segment's whole size when it is created",
        from_broker=from_broker("log.preallocate"),
    )
    retention_bytes: int = setting(
        -1,
        LONG,
        "maximum size of a partition; -1: no limit",
        from_broker=from_broker("log.retention.bytes", importance=HIGH),
    )
    retention_ms: int = setting(
        7 * DAY_MS,
        LONG,
        "how long records are kept; -1: for ever",
        at_least(-1),
        from_broker=from_broker("log.retention.ms", "log.retention.minutes", "log.retention.hours", importance=HIGH),
    )
    segment_bytes: int = setting(
        1 << 30, INT, "the largest segment", at_least(14), from_broker=from_broker("log.segment.bytes", importance=HIGH)
    )
    segment_index_bytes: int = setting(
        10 * 1024 * 1024,
        INT,
        "the largest index of a segment",
        at_least(4),
        from_broker=from_broker("log.index.size.max.bytes"),
    )
    segment_jitter_ms: int = setting(
        0,
        LONG,
        "maximum random part subtracted from segment.ms, so that segments do not roll at the same time",
        at_least(0),
        from_broker=from_broker("log.roll.jitter.ms", "log.roll.jitter.hours", importance=HIGH),
    )
    segment_ms: int = setting(
        7 * DAY_MS,
        LONG,
        "the longest time one segment is written to",
        at_least(1),
        from_broker=from_broker("log.roll.ms", "log.roll.hours", importance=HIGH),
    )
    unclean_leader_election_enable: bool = setting(
        False,
        BOOLEAN,
        "whether a replica that lacks acknowledged records may lead",
        from_broker=from_broker("unclean.leader.election.enable", importance=HIGH),
    )

    @classmethod
    def unsupported_rows(cls) -> Iterable[SettingRow]:
        return _not_obeyed()

    @classmethod
    def server_rows(cls) -> dict[str, SettingRow]:
        """The rows under the names of a server.properties, where they are the defaults of all topics."""
        named = [(row.from_broker.names[0], row) for row in cls.table().values() if row.from_broker]
        return {name: row._replace(name=name) for name, row in named}

    def with_values(self, values: Mapping[str, str], rows: Mapping[str, SettingRow] | None = None) -> Self:
        config = Settings.with_values(self, values, rows)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidSetting(
                f"min.compaction.lag.ms={config.min_compaction_lag_ms}: must not exceed "
                f"max.compaction.lag.ms={config.max_compaction_lag_ms}"
            )
        difference = config.message_timestamp_difference_max_ms  # the older setting holds if a newer one is not set
        before, after = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
        return replace(
            config,
            message_timestamp_before_max_ms=difference if before == LONG_MAX else before,
            message_timestamp_after_max_ms=difference if after == LONG_MAX else after,
        )

    def with_readable(self, values: Mapping[str, str]) -> tuple[Self, list[InvalidSetting]]:
        """Like `with_values`, without invalid values: returns their errors. Other brokers may have accepted them."""
        try:
            return self.with_values(values), []
        except InvalidSetting:
            config, valid, errors = self, dict[str, str](), list[InvalidSetting]()
        for name, text in values.items():
            try:
                config = self.with_values({**valid, name: text})
                valid[name] = text
            except InvalidSetting as error:
                errors.append(error)
        return config, errors

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


def _not_obeyed() -> Iterator[SettingRow]:
    yield SettingRow(
        name="local.retention.bytes",
        kind=ConfigType.LONG,
        default=-2,
        meaning="of a topic with remote storage: the size that stays on local disks; -2: as retention.bytes",
        check=at_least(-2),
        support=Support.ACCEPTED,
        why="there is no remote storage",
        from_broker=from_broker("log.local.retention.bytes"),
    )
    yield SettingRow(
        name="local.retention.ms",
        kind=ConfigType.LONG,
        default=-2,
        meaning="of a topic with remote storage: how long records stay on local disks; -2: as retention.ms",
        check=at_least(-2),
        support=Support.ACCEPTED,
        why="there is no remote storage",
        from_broker=from_broker("log.local.retention.ms"),
    )
    yield SettingRow(
        name="message.format.version",
        kind=ConfigType.STRING,
        default="3.0-IV1",
        meaning="the release whose record format is written",
        check=version,
        support=Support.ACCEPTED,
        why="all records have the format of 0.11 and later, in Kafka 3 as well",
        from_broker=from_broker("log.message.format.version"),
    )
    yield SettingRow(
        name="remote.storage.enable",
        kind=ConfigType.BOOLEAN,
        default=False,
        meaning="whether old segments are moved to remote storage",
        support=Support.REFUSED,
        why="there is no remote storage; keep old records with retention.ms and retention.bytes",
    )

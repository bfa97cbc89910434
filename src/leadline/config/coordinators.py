"""The settings of the two coordinators: of groups with their offsets, and of transactions.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least, checked_late, each_of
from leadline.config.settings import Importance, Mode, Settings, setting
from leadline.config.values import DAY_MS, INT_MAX, ConfigType

BOOLEAN, INT, LIST, LONG, SHORT = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LIST, ConfigType.LONG, ConfigType.SHORT
HIGH, LOW = Importance.HIGH, Importance.LOW


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class CoordinatorConfig(Settings):
    """Settings of the group coordinator and the transaction coordinator."""

    __slots__ = ()

    group_min_session_timeout_ms: int = setting(6000, INT, "the shortest session time-out that a member may request")
    group_max_session_timeout_ms: int = setting(
        1_800_000, INT, "the longest session time-out that a member may request"
    )
    group_initial_rebalance_delay_ms: int = setting(
        3000, INT, "how long an empty group waits for more members before its first assignment"
    )
    group_max_size: int = setting(INT_MAX, INT, "maximum members of a group", at_least(1))
    group_coordinator_rebalance_protocols: tuple[str, ...] = setting(
        ("classic",),
        LIST,
        "rebalance protocols that groups may use",
        each_of("consumer", "classic", "unknown"),
        supported_values=("classic",),
        why="as in Kafka without KRaft, groups use only the classic protocol",
    )

    offset_metadata_max_bytes: int = setting(4096, INT, "maximum size of a commit's metadata", importance=HIGH)
    offsets_load_buffer_size: int = setting(
        5_242_880, INT, "bytes read at a time when offsets are loaded", at_least(1), importance=HIGH
    )
    offsets_topic_replication_factor: int = setting(
        3, SHORT, "replicas of the topic that keeps the offsets", at_least(1), importance=HIGH
    )
    offsets_topic_num_partitions: int = setting(50, INT, "partitions of the same topic", at_least(1), importance=HIGH)
    offsets_topic_segment_bytes: int = setting(
        104_857_600, INT, "maximum size of its segments", at_least(1), importance=HIGH
    )
    offsets_topic_compression_codec: int = setting(
        0, INT, "its codec: none, gzip, snappy, lz4, zstd, counted from 0", checked_late(0, 4), importance=HIGH
    )
    offsets_retention_minutes: int = setting(
        10_080, INT, "how long an offset is kept after its group is empty", at_least(1), importance=HIGH
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, LONG, "interval between checks for expired offsets", at_least(1), importance=HIGH
    )
    offsets_commit_timeout_ms: int = setting(
        5000, INT, "how long a commit waits for its replicas", at_least(1), importance=HIGH
    )

    transactional_id_expiration_ms: int = setting(
        7 * DAY_MS, INT, "how long an idle transactional id is remembered", at_least(1), importance=HIGH
    )
    transaction_max_timeout_ms: int = setting(
        900_000, INT, "the longest transaction time-out that a producer may request", at_least(1), importance=HIGH
    )
    transaction_state_log_min_isr: int = setting(
        2, INT, "replicas that must store a change of a transaction's state", at_least(1), importance=HIGH
    )
    transaction_state_log_load_buffer_size: int = setting(
        5_242_880, INT, "bytes read at a time when transactions are loaded", at_least(1), importance=HIGH
    )
    transaction_state_log_replication_factor: int = setting(
        3, SHORT, "replicas of the topic that keeps the transactions", at_least(1), importance=HIGH
    )
    transaction_state_log_num_partitions: int = setting(
        50, INT, "partitions of the same topic", at_least(1), importance=HIGH
    )
    transaction_state_log_segment_bytes: int = setting(
        104_857_600, INT, "maximum size of its segments", at_least(1), importance=HIGH
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000, INT, "interval between checks for transactions that timed out", at_least(1), importance=LOW
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000, INT, "interval between checks for expired transactional ids", at_least(1), importance=LOW
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        BOOLEAN,
        "whether the broker verifies with the coordinator that a partition is part of a transaction",
        importance=LOW,
        mode=Mode.CLUSTER_WIDE,
    )

"""The settings of replication between brokers.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least, version
from leadline.config.settings import Importance, Settings, setting
from leadline.config.values import ConfigType

INT, LONG, STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
HIGH = Importance.HIGH
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"
LEAST_PROTOCOL = "3.7-IV4"  # brokers that speak it serve all that this broker sends them


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ReplicationConfig(Settings):
    """Settings of followers' fetches and of the in-sync replicas."""

    __slots__ = ()

    replica_lag_time_max_ms: int = setting(
        30_000, LONG, "how long a follower may stay behind before it leaves the in-sync replicas", importance=HIGH
    )
    replica_socket_timeout_ms: int = setting(30_000, INT, "how long a follower waits for its leader", importance=HIGH)
    replica_fetch_max_bytes: int = setting(1_048_576, INT, "bytes that a follower requests per partition", at_least(0))
    replica_fetch_response_max_bytes: int = setting(
        10_485_760, INT, "bytes that a follower requests per fetch", at_least(0)
    )
    replica_fetch_wait_max_ms: int = setting(
        500, INT, "how long a leader may delay the response to a follower's fetch", importance=HIGH
    )
    replica_fetch_min_bytes: int = setting(
        1, INT, "bytes that a leader waits for before it answers a follower", importance=HIGH
    )
    replica_fetch_backoff_ms: int = setting(1000, INT, "how long a follower waits after an error", at_least(0))
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        5000, LONG, "interval between checkpoints of the high watermarks", importance=HIGH
    )
    replica_selector_class: str | None = setting(
        None,
        STRING,
        "how the replica to read from is chosen",
        supported_values=("", LEADER_ONLY, RACK_AWARE),
        why=f"the choices are {LEADER_ONLY} and {RACK_AWARE}",
    )
    inter_broker_protocol_version: str = setting(
        "3.8-IV0",
        STRING,
        "the oldest release whose protocol the brokers of a cluster may need; those before 3.7 are refused",
        version,
    )

"""The settings that make a broker a member of a cluster: its id, the topics it creates, its quotas.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least
from leadline.config.settings import Importance, Settings, setting
from leadline.config.values import ConfigType

BOOLEAN, INT, LONG, STRING = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING
HIGH, LOW = Importance.HIGH, Importance.LOW


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ClusterConfig(Settings):
    """The broker's identity, and its part in the cluster."""

    __slots__ = ()

    broker_id: int = setting(-1, INT, "this broker's id; -1: generate one and keep it", importance=HIGH)
    node_id: int = setting(-1, INT, "another name of broker.id", importance=HIGH)
    broker_id_generation_enable: bool = setting(True, BOOLEAN, "whether a broker without an id gets a generated one")
    reserved_broker_max_id: int = setting(1000, INT, "the highest id that is not generated", at_least(0))
    broker_rack: str | None = setting(None, STRING, "rack of the broker; replicas are spread over racks")

    num_partitions: int = setting(1, INT, "partitions of a topic that is created without a number", at_least(1))
    default_replication_factor: int = setting(1, INT, "replicas of a topic that is created without a number")
    auto_create_topics_enable: bool = setting(
        True, BOOLEAN, "whether a topic is created when a client first requests it", importance=HIGH
    )
    delete_topic_enable: bool = setting(True, BOOLEAN, "whether topics can be deleted", importance=HIGH)

    auto_leader_rebalance_enable: bool = setting(
        True, BOOLEAN, "whether the controller returns leadership to preferred replicas", importance=HIGH
    )
    leader_imbalance_per_broker_percentage: int = setting(
        10,
        INT,
        "share of a broker's partitions led by other brokers above which leadership is returned",
        importance=HIGH,
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300, LONG, "interval between checks of leadership", at_least(1), importance=HIGH
    )
    controller_socket_timeout_ms: int = setting(30_000, INT, "how long the controller waits for a broker's answer")
    controlled_shutdown_enable: bool = setting(
        True, BOOLEAN, "whether other brokers take over leadership before the broker stops"
    )
    controlled_shutdown_max_retries: int = setting(3, INT, "attempts to transfer leadership")
    controlled_shutdown_retry_backoff_ms: int = setting(5000, LONG, "interval between these attempts")

    quota_window_num: int = setting(
        11, INT, "number of windows that measure the rates of clients", at_least(1), importance=LOW
    )
    quota_window_size_seconds: int = setting(1, INT, "length of a window", at_least(1), importance=LOW)
    controller_quota_window_num: int = setting(
        11, INT, "number of windows that measure the rate of changes to topics", at_least(1), importance=LOW
    )
    controller_quota_window_size_seconds: int = setting(1, INT, "length of a window", at_least(1), importance=LOW)
    replication_quota_window_num: int = setting(
        11, INT, "number of windows that measure the rate of replication", at_least(1), importance=LOW
    )
    replication_quota_window_size_seconds: int = setting(1, INT, "length of a window", at_least(1), importance=LOW)
    alter_log_dirs_replication_quota_window_num: int = setting(
        11, INT, "number of windows that measure the rate of moves between log directories", at_least(1), importance=LOW
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = setting(
        1, INT, "length of a window", at_least(1), importance=LOW
    )

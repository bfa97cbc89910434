"""Partitions on this broker: logs, replicas, followers, and what the broker counts of all of them together."""

from collections.abc import Callable
from typing import NamedTuple

from leadline.metrics.families import Collected, Family, FamilySet, one
from leadline.metrics.sources import MetricsSources
from leadline.model import Offset, TopicPartition
from leadline.replication.follower import FetchState
from leadline.replication.hosted_partition import HostedPartition
from leadline.runtime.steps import portions

FAMILIES = FamilySet("Partitions and replication")
_LABELS = ("topic", "partition")


def _of_partition(name: str, help: str) -> Family:
    return FAMILIES.gauge(name, help, *_LABELS)


LOG_SIZE = _of_partition("kafka_log_log_size", "Bytes of a log, without its indexes")
LOG_START = _of_partition("kafka_log_log_logstartoffset", "First offset of a log")
LOG_END = _of_partition("kafka_log_log_logendoffset", "Offset that the next record of a log gets")
LOG_SEGMENTS = _of_partition("kafka_log_log_numlogsegments", "Segments of a log")
UNDER_REPLICATED = _of_partition(
    "kafka_cluster_partition_underreplicated", "1: this broker leads it, and a replica is not in sync"
)
IN_SYNC = _of_partition("kafka_cluster_partition_insyncreplicascount", "Replicas in sync, as its leader knows; else 0")
REPLICAS = _of_partition("kafka_cluster_partition_replicascount", "Replicas, as its leader knows; else 0")
UNDER_MIN_ISR = _of_partition(
    "kafka_cluster_partition_underminisr", "1: this broker leads it, and fewer are in sync than min.insync.replicas"
)
AT_MIN_ISR = _of_partition(
    "kafka_cluster_partition_atminisr", "1: this broker leads it, and as many are in sync as min.insync.replicas"
)
STABLE_LAG = _of_partition(
    "kafka_cluster_partition_laststableoffsetlag",
    "Records between last stable offset and high watermark; else 0",
)
CURRENT_OFFSET = _of_partition(
    "kafka_topic_partition_current_offset", "High watermark of a partition that this broker leads"
)
OLDEST_OFFSET = _of_partition(
    "kafka_topic_partition_oldest_offset", "Log start offset of a partition that this broker leads"
)
UNDER_REPLICATED_PARTITION = _of_partition(
    "kafka_topic_partition_under_replicated_partition", "The same as underreplicated, as kafka_exporter names it"
)
FOLLOWER_LAG = FAMILIES.gauge(
    "kafka_server_fetcherlagmetrics_consumerlag",
    "Records up to the leader's high watermark that this follower does not have",
    "clientId",
    *_LABELS,
)
MAX_LAG = FAMILIES.gauge(
    "kafka_server_replicafetchermanager_maxlag", "The largest of these lags of all followed partitions", "clientId"
)
FAILED_PARTITIONS = FAMILIES.gauge(
    "kafka_server_replicafetchermanager_failedpartitionscount",
    "Followed partitions that are no longer fetched, because something is wrong with them",
    "clientId",
)
_MANAGER = "kafka_server_replicamanager"
LEADERS = FAMILIES.gauge(f"{_MANAGER}_leadercount", "Partitions that this broker leads")
PARTITIONS = FAMILIES.gauge(f"{_MANAGER}_partitioncount", "Partitions on this broker")
OFFLINE = FAMILIES.gauge(f"{_MANAGER}_offlinereplicacount", "Partitions on this broker whose files cannot be used")
ALL_UNDER_REPLICATED = FAMILIES.gauge(
    f"{_MANAGER}_underreplicatedpartitions", "Partitions that this broker leads with a replica that is not in sync"
)
ALL_UNDER_MIN_ISR = FAMILIES.gauge(
    f"{_MANAGER}_underminisrpartitioncount", "Partitions that this broker leads below min.insync.replicas"
)
ALL_AT_MIN_ISR = FAMILIES.gauge(
    f"{_MANAGER}_atminisrpartitioncount", "Partitions that this broker leads at min.insync.replicas"
)
PRODUCER_IDS = FAMILIES.gauge(f"{_MANAGER}_produceridcount", "Producers that logs on this broker remember")
ISR_EXPANDS = FAMILIES.counter(f"{_MANAGER}_isrexpands_total", "Replicas that came in sync, of partitions led here")
ISR_SHRINKS = FAMILIES.counter(f"{_MANAGER}_isrshrinks_total", "Replicas that fell out of sync")
FAILED_ISR_UPDATES = FAMILIES.counter(
    f"{_MANAGER}_failedisrupdates_total", "Changes of in-sync replicas that the controller did not agree to"
)
DELAYED_PRODUCES = FAMILIES.gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Partitions with produce requests that wait for followers or for the disk",
    "delayedOperation",
)


class PartitionStatus(NamedTuple):
    labels: str
    size: int
    log_start: Offset
    log_end: Offset
    segments: int
    high_watermark: Offset
    stable_lag: int
    producer_ids: int
    is_awaited: bool  # by produce requests
    is_led: bool
    replicas: int = 0
    in_sync: int = 0
    under_replicated: int = 0  # 1: it is
    under_min_isr: int = 0
    at_min_isr: int = 0
    follower_lag: int | None = None  # None: it is not followed, or its leader has not answered
    is_failed: bool = False


def status_of(tp: TopicPartition, hosted: HostedPartition) -> PartitionStatus:
    log, leader, follower = hosted.log, hosted.leader_state, hosted.follower_state
    status = PartitionStatus(
        f'{{topic="{tp.topic}",partition="{tp.partition}"}}',  # no character of a topic has to be escaped
        log.size, log.log_start, log.log_end, len(log.segments), log.high_watermark,
        log.high_watermark - log.last_stable_offset, len(log.producer_state.by_id),
        bool(hosted.acknowledgements or hosted.flushes), leader is not None,
    )  # fmt: skip
    if leader is not None:
        replicas, in_sync = len(leader.followers) + 1, len(leader.isr)
        needed = min(log.config.min_insync_replicas, replicas)
        return status._replace(
            replicas=replicas,
            in_sync=in_sync,
            under_replicated=int(in_sync < replicas),
            under_min_isr=int(in_sync < needed),
            at_min_isr=int(in_sync == needed),
        )
    if follower is not None:
        high_watermark = follower.leader_high_watermark
        lag = max(high_watermark - log.log_end, 0) if high_watermark >= 0 else None
        return status._replace(follower_lag=lag, is_failed=follower.state is FetchState.FAILED)
    return status


_OF_ALL: dict[Family, Callable[[PartitionStatus], int]] = {
    LOG_SIZE: lambda status: status.size,
    LOG_START: lambda status: status.log_start,
    LOG_END: lambda status: status.log_end,
    LOG_SEGMENTS: lambda status: status.segments,
    UNDER_REPLICATED: lambda status: status.under_replicated,
    IN_SYNC: lambda status: status.in_sync,
    REPLICAS: lambda status: status.replicas,
    UNDER_MIN_ISR: lambda status: status.under_min_isr,
    AT_MIN_ISR: lambda status: status.at_min_isr,
    STABLE_LAG: lambda status: status.stable_lag if status.is_led else 0,
}
_OF_LED: dict[Family, Callable[[PartitionStatus], int]] = {
    CURRENT_OFFSET: lambda status: status.high_watermark,
    OLDEST_OFFSET: lambda status: status.log_start,
    UNDER_REPLICATED_PARTITION: lambda status: status.under_replicated,
}
_REPLICA = "Replica"  # the client id of Kafka's fetchers


def collect(sources: MetricsSources) -> Collected:
    replicas, dirs = sources.broker.replicas, sources.broker.dirs
    statuses: list[PartitionStatus] = []
    for portion in portions(list(replicas.hosted.items())):
        statuses += [status_of(tp, hosted) for tp, hosted in portion if not hosted.log.offline]
        yield None
    for family, value in _OF_ALL.items():
        yield family, ((status.labels, value(status)) for status in statuses)
    led = [status for status in statuses if status.is_led]
    for family, value in _OF_LED.items():
        yield family, ((status.labels, value(status)) for status in led)
    yield (
        FOLLOWER_LAG,
        (
            (f'{{clientId="{_REPLICA}",{status.labels[1:]}', status.follower_lag)
            for status in statuses
            if status.follower_lag is not None
        ),
    )
    yield one(MAX_LAG, max((status.follower_lag or 0 for status in statuses), default=0), clientId=_REPLICA)
    yield one(FAILED_PARTITIONS, sum(status.is_failed for status in statuses), clientId=_REPLICA)
    yield one(LEADERS, len(led))
    yield one(PARTITIONS, len(statuses))
    never_hosted = [offline for offline in dirs.offline_logs() if offline.tp not in replicas.hosted]
    yield one(OFFLINE, len(never_hosted) + len(replicas.hosted) - len(statuses))
    yield one(ALL_UNDER_REPLICATED, sum(status.under_replicated for status in led))
    yield one(ALL_UNDER_MIN_ISR, sum(status.under_min_isr for status in led))
    yield one(ALL_AT_MIN_ISR, sum(status.at_min_isr for status in led))
    yield None
    yield one(PRODUCER_IDS, sum(status.producer_ids for status in statuses))
    yield one(ISR_EXPANDS, replicas.context.isr_expands)
    yield one(ISR_SHRINKS, replicas.context.isr_shrinks)
    yield one(FAILED_ISR_UPDATES, replicas.context.failed_isr_updates)
    yield one(DELAYED_PRODUCES, sum(status.is_awaited for status in statuses), delayedOperation="Produce")

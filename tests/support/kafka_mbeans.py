"""The metrics of Apache Kafka 3.8 that Leadline has, as Kafka registers them with JMX, and their names in Prometheus.

The JMX exporter makes these names by its rules for Kafka (`kafka-2_0_0.yml`).

A row is the domain and the type, then names, with the further keys of a metric in parentheses. A name with an asterisk
is a histogram: it has percentiles and a count. Quotas have no names: their attributes are listed.
"""

import re
from typing import NamedTuple

_ROWS = """
kafka.server KafkaServer: BrokerState linux-disk-read-bytes linux-disk-write-bytes
kafka.network RequestMetrics: RequestsPerSec(request,version) ErrorsPerSec(request,error) *TotalTimeMs(request)
kafka.network RequestMetrics: *LocalTimeMs(request) *RemoteTimeMs(request) *ThrottleTimeMs(request)
kafka.server BrokerTopicMetrics: MessagesInPerSec(topic) BytesInPerSec(topic) BytesOutPerSec(topic)
kafka.server BrokerTopicMetrics: BytesRejectedPerSec(topic) TotalProduceRequestsPerSec(topic)
kafka.server BrokerTopicMetrics: TotalFetchRequestsPerSec(topic) FailedProduceRequestsPerSec(topic)
kafka.server BrokerTopicMetrics: FailedFetchRequestsPerSec(topic) ProduceMessageConversionsPerSec(topic)
kafka.server BrokerTopicMetrics: InvalidMessageCrcRecordsPerSec(topic)
kafka.server BrokerTopicMetrics: ReplicationBytesInPerSec ReplicationBytesOutPerSec
kafka.log Log: Size(topic,partition) LogStartOffset(topic,partition) LogEndOffset(topic,partition)
kafka.log Log: NumLogSegments(topic,partition)
kafka.cluster Partition: UnderReplicated(topic,partition) InSyncReplicasCount(topic,partition)
kafka.cluster Partition: ReplicasCount(topic,partition) UnderMinIsr(topic,partition) AtMinIsr(topic,partition)
kafka.cluster Partition: LastStableOffsetLag(topic,partition)
kafka.server FetcherLagMetrics: ConsumerLag(clientId,topic,partition)
kafka.server ReplicaFetcherManager: MaxLag(clientId) FailedPartitionsCount(clientId)
kafka.server ReplicaManager: LeaderCount PartitionCount OfflineReplicaCount UnderReplicatedPartitions
kafka.server ReplicaManager: UnderMinIsrPartitionCount AtMinIsrPartitionCount ProducerIdCount
kafka.server ReplicaManager: IsrExpandsPerSec IsrShrinksPerSec FailedIsrUpdatesPerSec
kafka.server DelayedOperationPurgatory: PurgatorySize(delayedOperation)
kafka.controller KafkaController: ActiveControllerCount OfflinePartitionsCount PreferredReplicaImbalanceCount
kafka.controller KafkaController: GlobalTopicCount GlobalPartitionCount ActiveBrokerCount FencedBrokerCount
kafka.controller KafkaController: TopicsToDeleteCount TopicsIneligibleToDeleteCount
kafka.controller ControllerStats: *LeaderElectionRateAndTimeMs UncleanLeaderElectionsPerSec
kafka.controller ControllerEventManager: EventQueueSize
kafka.controller ControllerChannelManager: QueueSize(broker-id) TotalQueueSize
kafka.coordinator.group GroupMetadataManager: NumGroups NumOffsets NumGroupsEmpty NumGroupsPreparingRebalance
kafka.coordinator.group GroupMetadataManager: NumGroupsCompletingRebalance NumGroupsStable NumGroupsDead
kafka.log LogManager: OfflineLogDirectoryCount LogDirectoryOffline(logDirectory) remainingLogsToRecover(dir)
kafka.log LogFlushStats: *LogFlushRateAndTimeMs
kafka.log LogCleaner: cleaner-recopy-percent max-clean-time-secs
kafka.log LogCleanerManager: max-dirty-percent time-since-last-run-ms uncleanable-partitions-count(logDirectory)
kafka.log LogCleanerManager: uncleanable-bytes(logDirectory)
kafka.network SocketServer: NetworkProcessorAvgIdlePercent ExpiredConnectionsKilledCount
kafka.network Processor: IdlePercent(networkProcessor)
kafka.network RequestChannel: RequestQueueSize
kafka.server FetchSessionCache: NumIncrementalFetchSessions NumIncrementalFetchPartitionsCached
kafka.server FetchSessionCache: IncrementalFetchSessionEvictionsPerSec
kafka.server SessionExpireListener: ZooKeeperSyncConnectsPerSec ZooKeeperDisconnectsPerSec ZooKeeperExpiresPerSec
"""
QUOTA_ATTRIBUTES = ("byte-rate", "request-time", "throttle-time")  # of kafka.server:type=...,user=...,client-id=...


class ExportedMetric(NamedTuple):
    name: str
    labels: tuple[str, ...]


def exported() -> list[ExportedMetric]:
    """What the JMX exporter makes of these metrics."""
    metrics = [
        ExportedMetric(_sanitized(f"kafka_server_quota_{attribute}"), ("resource", "user", "clientId"))
        for attribute in QUOTA_ATTRIBUTES
    ]
    for row in _ROWS.strip().splitlines():
        place, _, names = row.partition(": ")
        domain, _, kind = place.partition(" ")
        for histogram, name, keys in re.findall(r"(\*?)([\w-]+)(?:\(([^)]*)\))?", names):
            labels = tuple(re.sub(r"\W", "_", key) for key in keys.split(",") if key)
            stem = f"{domain}_{kind}_{name.removesuffix('PerSec')}"
            if histogram:
                metrics.append(ExportedMetric(_sanitized(stem), (*labels, "quantile")))
                metrics.append(ExportedMetric(_sanitized(f"{stem}_count"), labels))
            else:
                end = "_total" if name.endswith("PerSec") else ""
                metrics.append(ExportedMetric(_sanitized(f"{stem}{end}"), labels))
    return metrics


def _sanitized(name: str) -> str:
    """lowercaseOutputName, and an underscore for what Prometheus does not allow."""
    return re.sub(r"\W", "_", name).lower()

"""The throttles of a reassignment: a rate of each broker, and the throttled replicas of each topic."""

from collections.abc import Iterable, Sequence

from leadline.admin.kafka_python.partitions import list_reassignments
from leadline.admin.reassign.plan import ReplicaMove, involved, throttled_replicas
from leadline.admin.session import ClusterSession
from leadline.admin.settings import alter_configs
from leadline.model import TopicPartition

BROKER_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
TOPIC_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_throttles(cluster: ClusterSession, changes: Sequence[ReplicaMove], rate: int) -> None:
    """Throttle these moves and those that are under way. `rate`: bytes per second of each broker."""
    from confluent_kafka.admin._config import AlterConfigOpType

    connection, admin = cluster.connection, cluster.admin
    alive = connection.metadata(admin).brokers
    for broker in involved(changes):
        if broker in alive:
            limits = [(name, str(rate), AlterConfigOpType.SET) for name in BROKER_RATES]
            alter_configs(connection, admin, "broker", str(broker), limits)
    for topic, throttled in throttled_replicas(list_reassignments(cluster.client), changes).items():
        lists = [
            (name, ",".join(replicas), AlterConfigOpType.SET)
            for name, replicas in zip(TOPIC_LISTS, throttled, strict=True)
        ]
        alter_configs(connection, admin, "topic", topic, lists)


def remove_throttles(cluster: ClusterSession, plan: Iterable[TopicPartition]) -> None:
    """Remove the throttles of the plan's topics, and of all brokers. Topics that are still moving keep theirs."""
    from confluent_kafka.admin._config import AlterConfigOpType

    connection, admin = cluster.connection, cluster.admin
    metadata, moving = connection.metadata(admin), {tp.topic for tp in list_reassignments(cluster.client)}
    topics = sorted({tp.topic for tp in plan if tp.topic in metadata.topics} - moving)
    resources = [("topic", topic, TOPIC_LISTS) for topic in topics]
    if not moving:
        resources += [("broker", str(broker), BROKER_RATES) for broker in sorted(metadata.brokers)]
    for kind, name, settings in resources:
        alter_configs(
            connection, admin, kind, name, [(setting, None, AlterConfigOpType.DELETE) for setting in settings]
        )

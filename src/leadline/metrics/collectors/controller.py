"""The controller: which broker it is, and its decisions. Only the active one counts partitions."""

from leadline.controller.state import ControllerState, PartitionState
from leadline.metrics.families import Collected, FamilySet, labels_text, one
from leadline.metrics.sources import MetricsSources
from leadline.runtime.steps import portions

FAMILIES = FamilySet("Controller")
_PREFIX = "kafka_controller_kafkacontroller"
ACTIVE = FAMILIES.gauge(f"{_PREFIX}_activecontrollercount", "1: this broker is the controller. One of a cluster is")
OFFLINE = FAMILIES.gauge(f"{_PREFIX}_offlinepartitionscount", "Partitions of the cluster without a leader")
IMBALANCED = FAMILIES.gauge(
    f"{_PREFIX}_preferredreplicaimbalancecount",
    "Partitions that another broker leads than the preferred one",
)
TOPICS = FAMILIES.gauge(f"{_PREFIX}_globaltopiccount", "Topics of the cluster")
PARTITIONS = FAMILIES.gauge(f"{_PREFIX}_globalpartitioncount", "Partitions of the cluster")
BROKERS = FAMILIES.gauge(f"{_PREFIX}_activebrokercount", "Brokers that the controller reaches")
FENCED = FAMILIES.gauge(f"{_PREFIX}_fencedbrokercount", "Brokers that are registered, and that it does not reach")
TOPICS_TO_DELETE = FAMILIES.gauge(f"{_PREFIX}_topicstodeletecount", "Topics that are being deleted")
TOPICS_INELIGIBLE = FAMILIES.gauge(
    f"{_PREFIX}_topicsineligibletodeletecount", "Of them, topics whose deletion has to wait"
)
REASSIGNING = FAMILIES.gauge(
    "leadline_controller_reassigning_partitions", "Partitions of the cluster that are being reassigned"
)
ELECTIONS = FAMILIES.counter(
    "kafka_controller_controllerstats_leaderelectionrateandtimems_count",
    "Elections of leaders for partitions that had one before",
)
UNCLEAN_ELECTIONS = FAMILIES.counter(
    "kafka_controller_controllerstats_uncleanleaderelections_total",
    "Elections of leaders that were not in sync: records may be lost",
)
EVENTS = FAMILIES.gauge("kafka_controller_controllereventmanager_eventqueuesize", "Events that wait to be decided")
QUEUE_SIZE = FAMILIES.gauge(
    "kafka_controller_controllerchannelmanager_queuesize", "Requests that wait to be sent to a broker", "broker_id"
)
TOTAL_QUEUE_SIZE = FAMILIES.gauge(
    "kafka_controller_controllerchannelmanager_totalqueuesize", "Requests that wait to be sent to any broker"
)


def collect(sources: MetricsSources) -> Collected:
    controller = sources.broker.controller
    state = None if controller.decisions is None else controller.decisions.state
    yield one(ACTIVE, int(state is not None))
    yield from _cluster(ControllerState(controller.me, 0) if state is None else state)
    yield one(ELECTIONS, controller.elections.all)
    yield one(UNCLEAN_ELECTIONS, controller.elections.unclean)
    yield one(EVENTS, controller.event_queue_size)
    sizes = controller.queue_sizes()
    yield QUEUE_SIZE, [(labels_text(broker_id=broker), size) for broker, size in sizes.items()]
    yield one(TOTAL_QUEUE_SIZE, sum(sizes.values()))


def _cluster(state: ControllerState) -> Collected:
    """The figures of the cluster. A broker that is not the controller has 0, as in Kafka."""
    offline = imbalanced = count = 0
    for portion in portions([topic for topic in state.topics.values() if topic.name not in state.deleting], 20):
        for topic in portion:
            for partition in topic.partitions.values():
                count += 1
                offline += partition.state is not PartitionState.ONLINE
                decision, replicas = partition.decision, partition.assigned.replicas
                imbalanced += decision is not None and bool(replicas) and decision.leader != replicas[0]
            if len(topic.partitions) > 100:
                yield None
        yield None
    yield one(OFFLINE, offline)
    yield one(IMBALANCED, imbalanced)
    yield one(TOPICS, len(state.topics))
    yield one(PARTITIONS, count)
    yield one(BROKERS, len(state.brokers))
    yield one(FENCED, len(state.gone))
    yield one(TOPICS_TO_DELETE, len(state.deleting))
    yield one(TOPICS_INELIGIBLE, len(state.undeletable))
    yield one(REASSIGNING, len(state.reassigning))

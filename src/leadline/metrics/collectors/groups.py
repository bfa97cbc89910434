"""Groups and transactional ids whose coordinator is this broker, and the lag of groups.

The lag of a partition is known here if a replica of it is here. For others, the high watermark is a metric of its
leader: see the recording rule in `ops/prometheus/rules.yml`.
"""

from collections import Counter, defaultdict

from leadline.coordinator.group_state import GroupState
from leadline.metrics.families import Collected, FamilySet, Sample, labels_text, one
from leadline.metrics.sources import MetricsSources
from leadline.runtime.steps import portions

FAMILIES = FamilySet("Groups and transactions")
_MANAGER = "kafka_coordinator_group_groupmetadatamanager"
GROUPS = FAMILIES.gauge(f"{_MANAGER}_numgroups", "Groups whose coordinator is this broker")
OFFSETS = FAMILIES.gauge(f"{_MANAGER}_numoffsets", "Committed offsets of these groups")
BY_STATE = {
    state: FAMILIES.gauge(f"{_MANAGER}_numgroups{state.value.lower()}", f"Groups in the state {state.value}")
    for state in GroupState
}
MEMBERS = FAMILIES.gauge("kafka_consumergroup_members", "Members of a group", "consumergroup")
CURRENT_OFFSET = FAMILIES.gauge(
    "kafka_consumergroup_current_offset", "Offset that a group has committed", "consumergroup", "topic", "partition"
)
LAG = FAMILIES.gauge(
    "kafka_consumergroup_lag",
    "Records from the committed offset to the high watermark, if this broker has a replica",
    "consumergroup",
    "topic",
    "partition",
)
LAG_SUM = FAMILIES.gauge(
    "kafka_consumergroup_lag_sum", "The sum of these lags over the partitions of a topic", "consumergroup", "topic"
)
TRANSACTIONAL_IDS = FAMILIES.gauge(
    "leadline_transaction_coordinator_transactional_ids",
    "Transactional ids whose coordinator is this broker, by state",
    "state",
)


def collect(sources: MetricsSources) -> Collected:
    broker = sources.broker
    groups = list(broker.groups.all())
    states = Counter(group.state for group in groups)
    yield one(GROUPS, len(groups))
    for state, family in BY_STATE.items():
        yield one(family, states[state])
    yield MEMBERS, [(labels_text(consumergroup=group.id), len(group.members)) for group in groups]
    current: list[Sample] = []
    lags: list[Sample] = []
    sums: defaultdict[tuple[str, str], int] = defaultdict(int)
    for group in groups:
        for portion in portions(list(group.offsets.committed.items())):
            for tp, committed in portion:
                labels = labels_text(consumergroup=group.id, topic=tp.topic, partition=tp.partition)
                current.append((labels, committed.offset))
                if (hosted := broker.replicas.hosted.get(tp)) is not None:
                    lag = max(hosted.log.high_watermark - committed.offset, 0)
                    lags.append((labels, lag))
                    sums[group.id, tp.topic] += lag
            yield None
    yield one(OFFSETS, len(current))
    yield CURRENT_OFFSET, current
    yield LAG, lags
    yield LAG_SUM, [(labels_text(consumergroup=id, topic=topic), lag) for (id, topic), lag in sums.items()]
    counts: Counter[str] = Counter()
    for ids in portions(list(broker.transactions.all())):
        counts.update(transactional_id.metadata.state.label for transactional_id in ids)
        yield None
    yield TRANSACTIONAL_IDS, [(labels_text(state=state), count) for state, count in counts.items()]

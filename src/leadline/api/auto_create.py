"""The broker creates a topic at its first use: a topic that a client names, or one of the two coordinators."""

from typing import NamedTuple

from leadline.api.context import Context
from leadline.cluster.metadata_cache import CachedTopic
from leadline.controller.topics import check_name
from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.coordinator.transaction_shard import TRANSACTIONS_TOPIC


class NewTopic(NamedTuple):
    """The partitions, replicas and settings that a topic is created with."""

    partitions: int
    factor: int
    config: dict[str, str]


async def auto_create(name: str, ctx: Context) -> CachedTopic:
    """Raises TopicAlreadyExists, InvalidTopic, InvalidReplicationFactor."""
    metadata = ctx.services.metadata
    check_name(name, metadata.topics)
    new_topic, cluster = _new_topic(name, ctx), ctx.services.cluster
    assignment = cluster.spread(metadata.racks, new_topic.partitions, new_topic.factor)
    ctx.mutation_quota(None).record(
        len(assignment), ctx.services.clock.now_ms()
    )  # it counts, but throttles no client yet
    return await cluster.create_topic(name, assignment, new_topic.config)


def _new_topic(name: str, ctx: Context) -> NewTopic:
    config = ctx.services.config
    if name == OFFSETS_TOPIC:
        settings = {
            "cleanup.policy": "compact",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
            "compression.type": "producer",
        }
        factor = _within_reach(config.offsets_topic_replication_factor, ctx)
        return NewTopic(config.offsets_topic_num_partitions, factor, settings)
    if name == TRANSACTIONS_TOPIC:
        settings = {
            "unclean.leader.election.enable": "false",
            "compression.type": "uncompressed",
            "cleanup.policy": "compact",
            "min.insync.replicas": str(_within_reach(config.transaction_state_log_min_isr, ctx)),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        }
        factor = _within_reach(config.transaction_state_log_replication_factor, ctx)
        return NewTopic(config.transaction_state_log_num_partitions, factor, settings)
    return NewTopic(config.num_partitions, config.default_replication_factor, {})


def _within_reach(replicas: int, ctx: Context) -> int:
    """A single node cannot have more than one replica."""
    return 1 if ctx.services.is_alone else replicas

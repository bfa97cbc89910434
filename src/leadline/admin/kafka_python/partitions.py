"""Requests about leaders, replicas, reassignments and log directories of partitions."""
# mypy: disable-error-code="import-untyped"

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from leadline.admin.explanation import Explanation
from leadline.admin.kafka_python.admin import KafkaPythonAdmin, error_text
from leadline.admin.reassign.plan import OngoingReassignment
from leadline.model import BrokerId, LeaderEpoch, Offset, TopicPartition


class LogDirReplica(NamedTuple):
    """A replica in a log directory."""

    path: str
    size_bytes: int
    lag: int  # records that it lacks, according to its broker
    is_future: bool  # it is being moved to this directory


class ElectionResult(NamedTuple):
    elected: list[TopicPartition]
    not_needed: list[TopicPartition]
    failed: dict[TopicPartition, str]  # the reasons


EXPLANATION = "leadline.replication."


def elect_leaders(admin: KafkaPythonAdmin, partitions: Collection[TopicPartition], *, unclean: bool) -> ElectionResult:
    """Elect preferred leaders; `unclean`: elect any live replica of partitions without a leader.

    The call of confluent-kafka fails before it sends a request (2.16: SystemError).
    """
    from kafka.errors import ElectionNotNeededError, NoError, NotControllerError, for_code

    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)

    def ask() -> ElectionResult:
        try:
            answer = admin.client.elect_leaders(int(unclean), by_topic, raise_errors=False)
        except RuntimeError as error:  # two brokers in turn were not the controller
            raise NotControllerError(str(error)) from None
        result = ElectionResult([], [], {})
        for topic in answer.replica_election_results:
            for part in topic.partition_result:
                tp, error_type = TopicPartition(topic.topic, part.partition_id), for_code(part.error_code)
                if error_type is NoError:
                    result.elected.append(tp)
                elif error_type is ElectionNotNeededError:
                    result.not_needed.append(tp)
                else:
                    result.failed[tp] = f"{part.error_message or error_type.description} ({error_type.message})"
        return result

    return admin.request_controller("elections", ask)


def broker_racks(admin: KafkaPythonAdmin) -> dict[BrokerId, str | None]:
    """The live brokers, each with its rack."""
    cluster = admin.request("the cluster", admin.client.describe_cluster)
    return {broker["broker_id"]: broker["rack"] for broker in cluster["brokers"]}


def list_reassignments(admin: KafkaPythonAdmin) -> dict[TopicPartition, OngoingReassignment]:
    """All partitions that are being moved to other brokers."""
    answers = admin.request_controller("reassignments", admin.client.list_partition_reassignments)
    return {
        TopicPartition(tp.topic, tp.partition): OngoingReassignment(
            reassignment["replicas"], reassignment["adding_replicas"], reassignment["removing_replicas"]
        )
        for tp, reassignment in sorted(answers.items())
    }


def alter_reassignments(
    admin: KafkaPythonAdmin, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
) -> list[str]:
    """Move partitions to other brokers; None: cancel a move. Returns the errors, one line per partition."""
    from kafka import TopicPartition as Theirs

    theirs = {Theirs(*tp): None if replicas is None else list(replicas) for tp, replicas in targets.items()}
    answers = admin.request_controller("reassignments", lambda: admin.client.alter_partition_reassignments(theirs))
    return [
        f"{tp.topic}-{tp.partition}: {error_text(error())}"
        for tp, error in sorted(answers.items())
        if error is not None
    ]


def describe_log_dirs(
    admin: KafkaPythonAdmin, brokers: Collection[BrokerId]
) -> dict[BrokerId, dict[TopicPartition, list[LogDirReplica]]]:
    """The replicas in the log directories of brokers, without failed directories and silent brokers."""
    answers = admin.request_each(
        "log directories", lambda broker: admin.client.describe_log_dirs(brokers=[broker]), brokers
    )
    replicas: dict[BrokerId, dict[TopicPartition, list[LogDirReplica]]] = {}
    for answer in (answer for answer_of_one in answers.values() for answer in answer_of_one):
        held = replicas.setdefault(answer["broker"], {})
        for log_dir in answer["log_dirs"]:
            for topic in log_dir["topics"]:
                for part in topic["partitions"]:
                    tp = TopicPartition(topic["name"], part["partition_index"])
                    held.setdefault(tp, []).append(
                        LogDirReplica(
                            log_dir["log_dir"], part["partition_size"], part["offset_lag"], part["is_future_key"]
                        )
                    )
    return replicas


def partition_explanations(
    admin: KafkaPythonAdmin, held: Mapping[BrokerId, Collection[TopicPartition]]
) -> dict[BrokerId, dict[TopicPartition, Explanation]]:
    """The reports of Leadline's brokers on their partitions. Other brokers report nothing."""
    from kafka.admin import ConfigResource, ConfigResourceType

    names = {broker: {f"{EXPLANATION}{tp}": tp for tp in partitions} for broker, partitions in held.items()}

    def ask(broker: BrokerId) -> dict[TopicPartition, Explanation]:
        resources = [ConfigResource(ConfigResourceType.BROKER, str(broker), list(names[broker]))]
        entries = admin.client.describe_configs(resources, config_filter="all")["broker"][str(broker)]
        return {tp: json.loads(entries[name]["value"]) for name, tp in names[broker].items() if name in entries}

    brokers = [broker for broker in held if broker in admin.connection.brokers]
    return admin.request_each("the report", ask, brokers)


def leader_epochs(admin: KafkaPythonAdmin, topic: str) -> dict[TopicPartition, LeaderEpoch]:
    """The leader epoch of each partition of a topic, from any broker."""
    (description,) = admin.request(f"topic {topic}", lambda: admin.client.describe_topics([topic]))
    return {TopicPartition(topic, part["partition_index"]): part["leader_epoch"] for part in description["partitions"]}


def epoch_starts(
    admin: KafkaPythonAdmin, tp: TopicPartition, leader: BrokerId, epoch: LeaderEpoch, log_start: Offset
) -> list[tuple[LeaderEpoch, Offset]]:
    """The leader epochs in the leader's log, the oldest first, each with its first offset.

    No request returns them all. OffsetForLeaderEpoch returns the end of an epoch, or of the last one before it. One
    request per epoch, from the newest down, finds all.
    """
    from kafka.protocol.consumer import OffsetForLeaderEpochRequest

    topic_type = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    manager, ends = admin.client._manager, []
    while epoch >= 0:
        partition = topic_type.OffsetForLeaderPartition(
            partition=tp.partition, current_leader_epoch=-1, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[topic_type(topic=tp.topic, partitions=[partition])]
        )
        answer = admin.request(str(tp), partial(manager.run, manager.send, request, leader), leader)
        response = answer.topics[0].partitions[0]
        if response.error_code or response.leader_epoch < 0:
            break
        ends.append((response.leader_epoch, response.end_offset))
        epoch = response.leader_epoch - 1
    starts = [*(end for _, end in ends[1:]), log_start]
    return [(epoch_started, start) for (epoch_started, _), start in zip(ends, starts, strict=False)][::-1]

"""The file of a reassignment plan, in the format of kafka-reassign-partitions.sh:

    {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}]}

Pure: text in, assignments out.
"""

import json
from collections.abc import Mapping, Sequence

from leadline.model import BrokerId, TopicPartition

Assignment = Mapping[TopicPartition, Sequence[BrokerId]]

ANY_DIRECTORY = "any"


class PlanError(ValueError):
    """A plan is invalid. The message is one line."""


def parse_plan(text: str) -> dict[TopicPartition, list[BrokerId]]:
    """The assignment in a file. Raises PlanError."""
    plan: dict[TopicPartition, list[BrokerId]] = {}
    for entry in entries(text, "partitions"):
        tp, replicas = partition_in(entry), entry.get("replicas")
        if not isinstance(replicas, list) or not replicas or not all(isinstance(broker, int) for broker in replicas):
            raise PlanError(f"{tp}: expected a list of brokers as replicas, not {json.dumps(replicas)}")
        if len(set(replicas)) < len(replicas):
            raise PlanError(f"{tp}: {json.dumps(replicas)} names a broker twice")
        log_dirs = entry.get("log_dirs") or [ANY_DIRECTORY]
        if not isinstance(log_dirs, list) or any(directory != ANY_DIRECTORY for directory in log_dirs):
            raise PlanError(f'{tp}: log_dirs other than "any" move replicas within a broker, which is not supported')
        if tp in plan:
            raise PlanError(f"{tp} is named twice")
        plan[tp] = replicas
    return plan


def entries(text: str, member: str) -> list[dict[str, object]]:
    """The objects in a list that is a member of a JSON object, at least one."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise PlanError(f"not JSON: {error}") from None
    objects = content.get(member) if isinstance(content, dict) else None
    if not isinstance(objects, list) or not objects or not all(isinstance(entry, dict) for entry in objects):
        raise PlanError(f'expected {{"{member}": [{{"topic": ..., "partition": ...}}, ...]}}')
    return objects


def partition_in(entry: Mapping[str, object]) -> TopicPartition:
    topic, partition = entry.get("topic"), entry.get("partition")
    if not isinstance(topic, str) or not isinstance(partition, int):
        raise PlanError(f"expected a topic and a partition, not {json.dumps(entry)}")
    return TopicPartition(topic, partition)


def plan_text(assignment: Assignment) -> str:
    """As Kafka's tool writes it, but with one partition per line."""
    lines = [
        json.dumps(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(replicas),
                "log_dirs": [ANY_DIRECTORY] * len(replicas),
            }
        )
        for tp, replicas in sorted(assignment.items())
    ]
    return '{"version": 1, "partitions": [\n' + ",\n".join(lines) + "\n]}\n"

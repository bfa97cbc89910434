"""What a topic may be called, and where its partitions go.

Pure: names and numbers in, an assignment or a refusal out.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from leadline.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
)
from leadline.model import BrokerId

MAX_NAME = 249  # with a partition number and a suffix it still is a file name
MAX_AT_ONCE = 10_000  # partitions made by one request, as in Kafka without ZooKeeper
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

Assignment = tuple[tuple[BrokerId, ...], ...]  # the replicas of each partition, the preferred leader first


def check_name(name: str, existing: Collection[str] = ()) -> None:
    wrong = None
    if not name:
        wrong = "it is empty"
    elif name in (".", ".."):
        wrong = f"it cannot be {name!r}"
    elif len(name) > MAX_NAME:
        wrong = f"it has {len(name)} characters, and {MAX_NAME} is the limit"
    elif not _LEGAL.fullmatch(name):
        wrong = f"{name!r} has other characters than ASCII letters, digits, '.', '_' and '-'"
    if wrong is not None:
        raise InvalidTopic(f"Topic name is invalid: {wrong}")
    if name in existing:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    collides = name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == collides:
            raise InvalidTopic(f"Topic '{name}' collides with existing topics: {other}")


def assign(brokers: Sequence[BrokerId], partitions: int, factor: int, first: int = 0, start: int = 0) -> Assignment:
    """Spread partitions over brokers: leaders round-robin from `start` on, replicas shifted more with each round."""
    if partitions <= 0:
        raise InvalidPartitions("Number of partitions must be larger than 0.")
    if partitions > MAX_AT_ONCE:
        raise PolicyViolation(f"{partitions} partitions are too many for one request: {MAX_AT_ONCE} is the limit")
    if factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    count = len(brokers)
    if factor > count:
        raise InvalidReplicationFactor(f"Replication factor: {factor} larger than available brokers: {count}.")
    found = []
    for partition in range(first, first + partitions):
        leader = (partition + start) % count
        shift = 1 + (partition // count) % max(count - 1, 1)
        others = [(leader + 1 + (shift + n) % max(count - 1, 1)) % count for n in range(factor - 1)]
        found.append(tuple(brokers[n] for n in (leader, *others)))
    return tuple(found)


def given_assignment(replicas: Mapping[int, Sequence[BrokerId]], brokers: Collection[BrokerId]) -> Assignment:
    """An assignment that a person chose, checked."""
    if sorted(replicas) != list(range(len(replicas))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    found = tuple(tuple(replicas[partition]) for partition in range(len(replicas)))
    for partition, chosen in enumerate(found):
        if not chosen:
            raise InvalidReplicaAssignment(f"partition {partition} has no replicas")
        if len(set(chosen)) != len(chosen):
            raise InvalidReplicaAssignment(f"Duplicate replica assignment found: {partition} -> {list(chosen)}")
        if unknown := [broker for broker in chosen if broker not in brokers]:
            raise InvalidReplicaAssignment(f"partition {partition}: there is no broker {unknown[0]}")
        if len(chosen) != len(found[0]):
            raise InvalidReplicaAssignment("All partitions should have the same number of replicas.")
    return found

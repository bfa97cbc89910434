"""The names of topics, and the assignment of partitions to brokers.

Pure: names and numbers in, an assignment or an error out.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, zip_longest

from leadline.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownServerError,
)
from leadline.model import BrokerId

MAX_NAME = 249  # characters: with a partition number and a suffix the name still fits a file name
MAX_AT_ONCE = 10_000  # partitions that one request creates, as in Kafka without ZooKeeper
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

Assignment = tuple[tuple[BrokerId, ...], ...]  # the replicas of each partition, the preferred leader first


def check_name(name: str, existing: Collection[str] = ()) -> None:
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason is not None:
        raise InvalidTopic(f"Topic name is invalid: {reason}")
    if name in existing:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    collides = name.replace(".", "_")
    for other in existing:
        if other.replace(".", "_") == collides:
            raise InvalidTopic(f"Topic '{name}' collides with existing topics: {other}")


def assign(
    racks: Mapping[BrokerId, str | None],
    partitions: int,
    factor: int,
    *,
    first: int = 0,
    start: int = 0,
    shift: int = 0,
) -> Assignment:
    """Assigns leaders round-robin, beginning at `start`. The other replicas are shifted more with each round.

    With racks, the brokers of different racks alternate, and no rack gets a second replica before each has one.
    """
    if partitions <= 0:
        raise InvalidPartitions("Number of partitions must be larger than 0.")
    if partitions > MAX_AT_ONCE:
        raise PolicyViolation(f"{partitions} partitions are too many for one request: {MAX_AT_ONCE} is the limit")
    if factor <= 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0.")
    if factor > len(racks):
        raise InvalidReplicationFactor(f"Replication factor: {factor} larger than available brokers: {len(racks)}.")
    rack_of = {broker: rack for broker, rack in racks.items() if rack is not None}
    if rack_of and len(rack_of) < len(racks):
        raise UnknownServerError("Not all brokers have rack information for replica rack aware assignment.")
    brokers = _alternating(rack_of) if rack_of else sorted(racks)
    step = len(set(rack_of.values())) if rack_of else 1
    assignment = []
    for partition in range(first, first + partitions):
        rounds = partition // len(brokers) - (max(first, 1) - 1) // len(brokers)
        leader = (partition + start) % len(brokers)
        turn = _turn(brokers, leader, (shift + rounds) * step)
        assignment.append(_replicas(brokers[leader], turn, factor, rack_of))
    return tuple(assignment)


def _alternating(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """The first broker of each rack, then the second of each, and so on."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    rows = zip_longest(*(by_rack[rack] for rack in sorted(by_rack)))
    return [broker for row in rows for broker in row if broker is not None]


def _turn(brokers: Sequence[BrokerId], leader: int, shift: int) -> Iterator[BrokerId]:
    """The other brokers, repeatedly, beginning after the leader and a shift."""
    others = len(brokers) - 1
    for n in count():
        if others:
            yield brokers[(leader + 1 + (shift + n) % others) % len(brokers)]


def _replicas(
    leader: BrokerId, turn: Iterator[BrokerId], factor: int, racks: Mapping[BrokerId, str]
) -> tuple[BrokerId, ...]:
    chosen, used, number_of_racks = [leader], {racks.get(leader)}, len(set(racks.values()))
    while len(chosen) < factor:
        broker = next(turn)
        is_new_rack = not racks or racks[broker] not in used or len(used) == number_of_racks
        if is_new_rack and broker not in chosen:
            chosen.append(broker)
            used.add(racks.get(broker))
    return tuple(chosen)


def scala_buffer(items: Iterable[object]) -> str:
    """A list in a message of Kafka's."""
    return f"ArrayBuffer({', '.join(map(str, items))})"


def added_assignment(first: int, replicas: Sequence[Sequence[BrokerId]], brokers: Collection[BrokerId]) -> Assignment:
    """Checks the replicas of new partitions, from the number `first` on."""
    for partition, chosen in enumerate(replicas, first):
        if not chosen:
            raise InvalidReplicaAssignment(f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(chosen)) != len(chosen):
            raise InvalidReplicaAssignment(
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, chosen))} "
                f"for partition id {partition}."
            )
    if unknown := sorted({broker for chosen in replicas for broker in chosen} - set(brokers)):
        raise InvalidReplicaAssignment(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    return manual_assignment(dict(enumerate(replicas)), brokers)


def manual_assignment(replicas: Mapping[int, Sequence[BrokerId]], brokers: Collection[BrokerId] | None) -> Assignment:
    """Checks an assignment from a request. `brokers`: those that exist; None: any id, it may be registered later."""
    if sorted(replicas) != list(range(len(replicas))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    assignment = tuple(tuple(replicas[partition]) for partition in range(len(replicas)))
    for partition, chosen in enumerate(assignment):
        if not chosen:
            raise InvalidReplicaAssignment(f"partition {partition} has no replicas")
        if len(set(chosen)) != len(chosen):
            shown = ", ".join(f"{number} -> {scala_buffer(ids)}" for number, ids in enumerate(assignment))
            raise InvalidReplicaAssignment(f"Duplicate replica assignment found: HashMap({shown})")
        if unknown := [broker for broker in chosen if brokers is not None and broker not in brokers]:
            raise InvalidReplicaAssignment(f"partition {partition}: broker {unknown[0]} does not exist")
        if len(chosen) != len(assignment[0]):
            raise InvalidReplicaAssignment("All partitions should have the same number of replicas.")
    return assignment

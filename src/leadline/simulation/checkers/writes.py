"""Records that producers sent, beside those that are stored.

Pure: no file, no clock.
"""

from collections.abc import Iterator

from leadline.model import Offset, TopicPartition
from leadline.simulation.client_history import Attempt, ClientHistory, Delivery

CHANGES_OF_THE_TREE = (
    "CreateTopics", "DeleteTopics", "CreatePartitions", "IncrementalAlterConfigs", "AlterPartitionReassignments",
)  # fmt: skip

Stored = dict[TopicPartition, dict[Offset, bytes]]  # values by offset


def lost_writes(history: ClientHistory, stored: Stored) -> Iterator[str]:
    for attempt in history.attempts:
        if attempt.offset is None or attempt.delivery is Delivery.AT_MOST_ONCE:
            continue
        if attempt.offset < history.deleted_before.get(attempt.tp, 0):
            continue
        value = stored[attempt.tp].get(attempt.offset)
        if value != attempt.value:
            yield f"lost write: {attempt.tp} @ {attempt.offset} is {value!r}, acknowledged was {attempt.value!r}"


def doubled_writes(history: ClientHistory, stored: Stored) -> Iterator[str]:
    repeatable = {a.value for a in history.attempts if a.delivery is not Delivery.EXACTLY_ONCE}
    for tp, values in stored.items():
        offsets: dict[bytes, Offset] = {}
        for offset, value in values.items():
            if value in offsets and value not in repeatable:
                yield f"doubled write: {tp} has {value!r} at {offsets[value]} and at {offset}"
            offsets[value] = offset


def unordered_writes(history: ClientHistory, stored: Stored) -> Iterator[str]:
    """Writes of one producer in one partition that are out of order, as stored or as acknowledged."""
    attempts = _exactly_once(history)
    for tp, values in stored.items():
        last: dict[str, int] = {}
        for offset in sorted(values):
            attempt = attempts.get(values[offset])
            if attempt is not None:
                if attempt.number <= last.get(attempt.producer, -1):
                    yield (
                        f"unordered write: {tp} @ {offset} has {attempt.value!r} after number {last[attempt.producer]}"
                    )
                last[attempt.producer] = attempt.number
    ends: dict[tuple[str, TopicPartition], Offset] = {}
    for attempt in attempts.values():
        if attempt.offset is not None:
            if attempt.offset <= ends.get((attempt.producer, attempt.tp), -1):
                yield f"unordered send: {attempt.value!r} got {attempt.offset} in {attempt.tp}, after a later offset"
            ends[attempt.producer, attempt.tp] = attempt.offset


def unsent_writes(history: ClientHistory, stored: Stored) -> Iterator[str]:
    """Values that no client sent to that partition."""
    sent = {(attempt.tp, attempt.value) for attempt in history.attempts}
    for tp, values in stored.items():
        for offset, value in values.items():
            if (tp, value) not in sent:
                yield f"unsent write: {tp} @ {offset} has {value!r}, which no client sent there"


def internal_errors(history: ClientHistory) -> Iterator[str]:
    """An administrator gets this error, as in Kafka, while the controller does not reach ZooKeeper."""
    for name, count in history.errors.items():
        if name.endswith("UnknownServerError") and not name.startswith(CHANGES_OF_THE_TREE):
            yield f"internal error: {count} answers were {name}"


def _exactly_once(history: ClientHistory) -> dict[bytes, Attempt]:
    return {a.value: a for a in history.attempts if a.delivery is Delivery.EXACTLY_ONCE}

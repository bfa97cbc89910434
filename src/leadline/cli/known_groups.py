"""The groups of a cluster, as their coordinators know them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from leadline.cli.client import Connection, Failure, Json, text_of
from leadline.config import nearest
from leadline.model import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Node
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._group import ConsumerGroupDescription, ConsumerGroupListing, MemberDescription

STATES = {
    "Stable": "STABLE",
    "PreparingRebalance": "PREPARING_REBALANCING",
    "CompletingRebalance": "COMPLETING_REBALANCING",
    "Empty": "EMPTY",
    "Dead": "DEAD",
}  # Kafka's word and librdkafka's
NAMED = 5  # members that a refusal names


def listings(connection: Connection, admin: "AdminClient", states: Sequence[str] = ()) -> "list[ConsumerGroupListing]":
    from confluent_kafka import ConsumerGroupState

    wanted = {ConsumerGroupState[STATES[state]] for state in states}
    asked = (
        admin.list_consumer_groups(states=wanted, request_timeout=connection.timeout_s)
        if wanted
        else admin.list_consumer_groups(request_timeout=connection.timeout_s)
    )
    answer = connection.wait(asked)
    for error in answer.errors or ():
        raise error
    return sorted(answer.valid or (), key=lambda each: each.group_id)


def described(
    connection: Connection, admin: "AdminClient", groups: Sequence[str]
) -> "dict[str, ConsumerGroupDescription]":
    asked = admin.describe_consumer_groups(list(groups), request_timeout=connection.timeout_s) if groups else {}
    return {name: connection.wait(future) for name, future in asked.items()}


def await_coordinator(connection: Connection, group: str) -> None:
    """Until a group has one, which the first group of a cluster waits for.

    librdkafka's admin client does not: it asks once, and a time-out may even end the process (its issue 4605).
    Its consumers do.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Theirs

    consumer = connection.consumer({"group.id": group, "enable.auto.commit": "false"})
    try:
        consumer.committed([Theirs("leadline", 0)], timeout=connection.timeout_s)  # any one, it need not exist
    except KafkaException as error:
        raise Failure(f"group {group} finds no coordinator: {text_of(error.args[0])}") from None
    finally:
        consumer.close()


def check_known(connection: Connection, names: Iterable[str], known: Sequence[str]) -> None:
    """A Failure for the first one that is not known, unless it is its coordinator that is missing."""
    for name in names:
        if name not in known:
            await_coordinator(connection, name)
            raise Failure(f"there is no group {name}{nearest(name, known)}")


def refuse_active(group: "ConsumerGroupDescription", what: str) -> None:
    if group.members:
        named = [f"{member.client_id} on {member.host} ({member.member_id})" for member in group.members[:NAMED]]
        more = f" and {len(group.members) - NAMED} more" if len(group.members) > NAMED else ""
        raise Failure(
            f"group {group.group_id} is active, and cannot be {what} before its members stop: {', '.join(named)}{more}"
        )


def assignment(member: "MemberDescription") -> list[TopicPartition]:
    return [TopicPartition(tp.topic, tp.partition) for tp in member.assignment.topic_partitions]


def state_text(group: "ConsumerGroupDescription | ConsumerGroupListing") -> str:
    return next((name for name, theirs in STATES.items() if theirs == group.state.name), "Unknown")


def node_text(node: "Node | None") -> str:
    return f"{node.host}:{node.port} ({node.id})" if node is not None else "none"


def node_json(node: "Node | None") -> Json:
    return {"id": node.id, "host": node.host, "port": node.port} if node is not None else None

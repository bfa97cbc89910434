"""The groups of a cluster, as their coordinators know them: consumers', and those of any other protocol type."""

from collections.abc import Sequence
from typing import NamedTuple

from leadline.cli.connection import ClusterConnection
from leadline.cli.diagnosis import ServerAddress
from leadline.cli.errors import Failure, client_error_text
from leadline.cli.formatting import size_text
from leadline.cli.json_values import Json
from leadline.cli.partitions import partitions_text
from leadline.model import BrokerId, TopicPartition

CONSUMER = (
    "consumer"  # the protocol type of consumers' groups; Kafka Connect's is `connect`, of one that only commits none
)
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead")
MEMBERS_SHOWN = 5  # members that a refusal names


class GroupListing(NamedTuple):
    group_id: str
    state: str
    protocol_type: str  # empty for a group that only commits
    coordinator: BrokerId


class MemberDescription(NamedTuple):
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: Sequence[TopicPartition]  # of a consumer
    assignment: bytes  # as the group's leader wrote it

    @property
    def assignment_text(self) -> str:
        """What it was given: partitions; in other protocols text as it is, or how much there is of it."""
        if self.partitions:
            return partitions_text(self.partitions)
        try:
            text = self.assignment.decode()
        except UnicodeDecodeError:
            text = ""
        if text.isprintable() and text:
            return text
        return f"{size_text(len(self.assignment))} of its protocol" if self.assignment else "none"


class GroupDescription(NamedTuple):
    group_id: str
    state: str
    protocol_type: str
    protocol: str  # the assignor, among consumers
    coordinator: BrokerId
    members: Sequence[MemberDescription]


def await_coordinator(connection: ClusterConnection, group: str) -> None:
    """Until a group has one, which the first group of a cluster waits for.

    librdkafka's admin client does not: it asks once, and a time-out may even end the process (its issue 4605).
    Its consumers do.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Theirs

    consumer = connection.consumer({"group.id": group, "enable.auto.commit": "false"})
    try:
        consumer.committed([Theirs("leadline", 0)], timeout=connection.remaining_s)  # any one, it need not exist
    except KafkaException as error:
        raise Failure(f"group {group} finds no coordinator: {client_error_text(error.args[0])}") from None
    finally:
        consumer.close()


def refuse_active(group: GroupDescription, what: str) -> None:
    if group.members:
        members = [
            f"{member.client_id} on {member.host} ({member.member_id})" for member in group.members[:MEMBERS_SHOWN]
        ]
        more = f" and {len(group.members) - MEMBERS_SHOWN} more" if len(group.members) > MEMBERS_SHOWN else ""
        raise Failure(
            f"group {group.group_id} is active and cannot be {what} until its members stop: {', '.join(members)}{more}"
        )


def node_text(broker: BrokerId, brokers: dict[BrokerId, ServerAddress]) -> str:
    address = brokers.get(broker)
    return f"{address.host}:{address.port} ({broker})" if address is not None else f"broker {broker}"


def node_json(broker: BrokerId, brokers: dict[BrokerId, ServerAddress]) -> Json:
    address = brokers.get(broker)
    return {"id": broker, "host": address.host, "port": address.port} if address is not None else {"id": broker}

"""The groups of a cluster as their coordinators describe them, of every protocol type."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadline.admin.connection import ClusterConnection
from leadline.admin.diagnosis import ServerAddress
from leadline.admin.errors import Failure, client_error_text
from leadline.admin.formatting import size_text
from leadline.admin.json_values import Json
from leadline.admin.partitions import partitions_text
from leadline.model import BrokerId, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

CONSUMER = "consumer"  # the protocol type of consumers; Kafka Connect has `connect`, groups that only commit have none
STATES = ("Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead")
MEMBERS_SHOWN = 5  # in an error message


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
    partitions: Sequence[TopicPartition]  # of a consumer; empty in other protocols
    assignment: bytes  # as the leader of the group encoded it

    @property
    def assignment_text(self) -> str:
        """Its partitions; in other protocols the assignment as text, or its size."""
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
    protocol: str  # of consumers: the assignor
    coordinator: BrokerId
    members: Sequence[MemberDescription]


def await_coordinator(connection: ClusterConnection, group: str) -> None:
    """Wait until the group has a coordinator: the first group of a cluster has none for a while.

    librdkafka's admin client does not wait, and a time-out may end the process (its issue 4605). Its consumers wait.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka import TopicPartition as Theirs

    consumer = connection.consumer({"group.id": group, "enable.auto.commit": "false"})
    try:
        consumer.committed([Theirs("leadline", 0)], timeout=connection.remaining_s)  # any partition, it need not exist
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


def delete_group(connection: ClusterConnection, admin: "AdminClient", group: str) -> None:
    from confluent_kafka import KafkaException

    (future,) = admin.delete_consumer_groups([group], request_timeout=connection.remaining_s).values()
    try:
        connection.wait(future)
    except KafkaException as error:
        raise Failure(f"group {group}: {client_error_text(error.args[0])}") from None


def node_text(broker: BrokerId, brokers: dict[BrokerId, ServerAddress]) -> str:
    address = brokers.get(broker)
    return f"{address} ({broker})" if address is not None else f"broker {broker}"


def node_json(broker: BrokerId, brokers: dict[BrokerId, ServerAddress]) -> Json:
    address = brokers.get(broker)
    return {"id": broker, "host": address.host, "port": address.port} if address is not None else {"id": broker}

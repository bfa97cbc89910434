"""leadline groups describe: members, committed offsets, lag and the last rebalances of a group."""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.cli.connection import ClusterConnection, administer
from leadline.cli.diagnosis import ServerAddress
from leadline.cli.errors import Failure
from leadline.cli.groups.group import (
    CONSUMER,
    GroupDescription,
    MemberDescription,
    node_json,
    node_text,
)
from leadline.cli.groups.rebalances import HEADS, Rebalance, rebalances, rows
from leadline.cli.json_values import Json
from leadline.cli.kafka_python.admin import KafkaPythonAdmin, kafka_python_admin
from leadline.cli.kafka_python.groups import describe_group, list_groups
from leadline.cli.leaders import partitions_with_leader
from leadline.cli.offsets import committed_by, list_offsets
from leadline.cli.partitions import PartitionOffset
from leadline.cli.terminal import Paint, print_table
from leadline.config.settings import nearest
from leadline.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """The progress of a group in a partition."""

    tp: TopicPartition
    committed: PartitionOffset | None
    log_end: Offset | None  # None: the partition was deleted, or its leader does not answer
    owner: MemberDescription | None  # the member that it is assigned to

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return max(self.log_end - self.committed.offset, 0)


def describe(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    paint = Paint(sys.stdout)
    with kafka_python_admin(connection) as client:
        for n, name in enumerate(group_names(client, options.groups)):
            connection.restart_timeout()
            group = describe_group(client, name)
            partitions = progress(connection, admin, group)
            history = rebalances(connection, admin, group)
            if options.json:
                print(json.dumps(description_json(group, connection.brokers, partitions, history)))
            else:
                if n > 0:
                    print()
                print_description(group, connection.brokers, partitions, history, paint)
    return connection.report_silent("groups that it coordinates and partitions that it leads are missing")


def group_names(client: KafkaPythonAdmin, names: Sequence[str]) -> list[str]:
    """These groups without duplicates, or all. A Failure if one does not exist."""
    group_ids = [listing.group_id for listing in list_groups(client)]
    for name in names:
        if name not in group_ids:
            describe_group(client, name)  # a Failure if its coordinator does not answer: the group may exist
            raise Failure(f"there is no group {name}{nearest(name, group_ids)}")
    return list(dict.fromkeys(names)) or group_ids


def progress(connection: ClusterConnection, admin: "AdminClient", group: GroupDescription) -> list[GroupProgress]:
    """One for each partition with a committed offset or an owner."""
    committed = committed_by(connection, admin, group.group_id)
    owners = {tp: member for member in group.members for tp in member.partitions}
    partitions = sorted(committed.keys() | owners.keys())
    ends = list_offsets(connection, admin, partitions_with_leader(connection, admin, partitions), "latest")
    return [GroupProgress(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in partitions]


def print_description(
    group: GroupDescription,
    brokers: dict[BrokerId, ServerAddress],
    partitions: Sequence[GroupProgress],
    history: Sequence[Rebalance] | str,
    paint: Paint,
) -> None:
    kind = f"protocol type {group.protocol_type}" if group.protocol_type not in ("", CONSUMER) else ""
    summary = [group.state, kind, group.protocol, f"coordinator {node_text(group.coordinator, brokers)}"]
    print(f"{paint.bold(paint.escape(group.group_id))}: {', '.join(filter(None, summary))}")
    print()
    if group.members:
        head = "PARTITIONS" if group.protocol_type == CONSUMER else "ASSIGNMENT"
        print_table(
            ["MEMBER", "CLIENT ID", "HOST", "INSTANCE ID", head], [member_row(member) for member in group.members]
        )
    else:
        print("No members.")
    print()
    if partitions:
        print_table(["TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG", "OWNER"], progress_rows(partitions))
    else:
        print("Nothing committed.")
    print()
    if history and not isinstance(history, str):
        print_table(HEADS, rows(history))
    else:
        print(history or "No rebalance yet.")


def member_row(member: MemberDescription) -> list[str]:
    return [member.member_id, member.client_id, member.host, member.instance_id or "", member.assignment_text]


def progress_rows(partitions: Sequence[GroupProgress]) -> list[list[str]]:
    rows = [
        [
            partition.tp.topic,
            str(partition.tp.partition),
            str(partition.committed.offset) if partition.committed is not None else "-",
            str(partition.log_end) if partition.log_end is not None else "-",
            str(partition.lag) if partition.lag is not None else "-",
            partition.owner.member_id if partition.owner is not None else "-",
        ]
        for partition in partitions
    ]
    return [*rows, ["total", "", "", "", str(total_lag(partitions)), ""]]


def total_lag(partitions: Iterable[GroupProgress]) -> int:
    return sum(partition.lag or 0 for partition in partitions)


def description_json(
    group: GroupDescription,
    brokers: dict[BrokerId, ServerAddress],
    partitions: Sequence[GroupProgress],
    history: Sequence[Rebalance] | str,
) -> Json:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": node_json(group.coordinator, brokers),
        "members": [_member_json(member) for member in group.members],
        "partitions": [_progress_json(partition) for partition in partitions],
        "totalLag": total_lag(partitions),
        "rebalances": history if not isinstance(history, str) else None,
    }


def _member_json(member: MemberDescription) -> Json:
    return {
        "memberId": member.member_id,
        "clientId": member.client_id,
        "host": member.host,
        "instanceId": member.instance_id,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in member.partitions],
    }


def _progress_json(progress: GroupProgress) -> Json:
    return {
        "topic": progress.tp.topic,
        "partition": progress.tp.partition,
        "committed": progress.committed.offset if progress.committed is not None else None,
        "metadata": progress.committed.metadata if progress.committed is not None else None,
        "logEnd": progress.log_end,
        "lag": progress.lag,
        "owner": progress.owner.member_id if progress.owner is not None else None,
    }

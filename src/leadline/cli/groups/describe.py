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
from leadline.cli.partitions import CommittedOffset
from leadline.cli.terminal import Paint, print_table
from leadline.config.settings import nearest
from leadline.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How far a group has come in a partition."""

    tp: TopicPartition
    committed: CommittedOffset | None
    log_end: Offset | None  # None: there is no such partition any longer, or no leader that answers
    owner: MemberDescription | None  # who reads it now

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
            found = progress(connection, admin, group)
            history = rebalances(connection, admin, group)
            if options.json:
                print(json.dumps(description_json(group, connection.brokers, found, history)))
            else:
                print(end="\n" * bool(n))
                print_description(group, connection.brokers, found, history, paint)
    return connection.report_silent("groups that it coordinates and partitions that it leads are missing")


def group_names(client: KafkaPythonAdmin, given: Sequence[str]) -> list[str]:
    """Those that are given, each once, or all; a Failure for one that there is not."""
    known = [each.group_id for each in list_groups(client)]
    for name in given:
        if name not in known:
            describe_group(client, name)  # fails if its coordinator is silent, or missing: then nobody knows
            raise Failure(f"there is no group {name}{nearest(name, known)}")
    return list(dict.fromkeys(given)) or known


def progress(connection: ClusterConnection, admin: "AdminClient", group: GroupDescription) -> list[GroupProgress]:
    """Of each partition for which it has committed or that is assigned to a member."""
    committed = committed_by(connection, admin, group.group_id)
    owners = {tp: member for member in group.members for tp in member.partitions}
    partitions = sorted(committed.keys() | owners.keys())
    ends = list_offsets(connection, admin, partitions_with_leader(connection, admin, partitions), "latest")
    return [GroupProgress(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in partitions]


def print_description(
    group: GroupDescription,
    brokers: dict[BrokerId, ServerAddress],
    found: Sequence[GroupProgress],
    history: Sequence[Rebalance] | str,
    paint: Paint,
) -> None:
    kind = f"protocol type {group.protocol_type}" if group.protocol_type not in ("", CONSUMER) else ""
    about = [group.state, kind, group.protocol, f"coordinator {node_text(group.coordinator, brokers)}"]
    print(f"{paint.bold(paint.harmless(group.group_id))}: {', '.join(filter(None, about))}")
    print()
    if group.members:
        given = "PARTITIONS" if group.protocol_type == CONSUMER else "ASSIGNMENT"
        print_table(["MEMBER", "CLIENT ID", "HOST", "INSTANCE ID", given], [member_row(each) for each in group.members])
    else:
        print("No members.")
    print()
    if found:
        print_table(["TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG", "OWNER"], progress_rows(found))
    else:
        print("Nothing committed.")
    print()
    if history and not isinstance(history, str):
        print_table(HEADS, rows(history))
    else:
        print(history or "No rebalance yet.")


def member_row(member: MemberDescription) -> list[str]:
    return [member.member_id, member.client_id, member.host, member.instance_id or "", member.assignment_text]


def progress_rows(found: Sequence[GroupProgress]) -> list[list[str]]:
    rows = [
        [
            each.tp.topic,
            str(each.tp.partition),
            str(each.committed.offset) if each.committed is not None else "-",
            str(each.log_end) if each.log_end is not None else "-",
            str(each.lag) if each.lag is not None else "-",
            each.owner.member_id if each.owner is not None else "-",
        ]
        for each in found
    ]
    return [*rows, ["total", "", "", "", str(total_lag(found)), ""]]


def total_lag(found: Iterable[GroupProgress]) -> int:
    return sum(each.lag or 0 for each in found)


def description_json(
    group: GroupDescription,
    brokers: dict[BrokerId, ServerAddress],
    found: Sequence[GroupProgress],
    history: Sequence[Rebalance] | str,
) -> Json:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": node_json(group.coordinator, brokers),
        "members": [_member_json(member) for member in group.members],
        "partitions": [_progress_json(each) for each in found],
        "totalLag": total_lag(found),
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


def _progress_json(each: GroupProgress) -> Json:
    return {
        "topic": each.tp.topic,
        "partition": each.tp.partition,
        "committed": each.committed.offset if each.committed is not None else None,
        "metadata": each.committed.metadata if each.committed is not None else None,
        "logEnd": each.log_end,
        "lag": each.lag,
        "owner": each.owner.member_id if each.owner is not None else None,
    }

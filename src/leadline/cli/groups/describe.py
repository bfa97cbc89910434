"""leadline groups describe: members, committed offsets, lag and the last rebalances of a group."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from leadline.admin.connection import administer
from leadline.admin.diagnosis import ServerAddress
from leadline.admin.group import (
    CONSUMER,
    GroupDescription,
    MemberDescription,
    node_json,
    node_text,
)
from leadline.admin.group_progress import GroupProgress, group_names, progress, total_lag
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.groups import describe_group
from leadline.admin.rebalances import HEADS, Rebalance, rebalances, rows
from leadline.cli.errors import report_silent
from leadline.cli.output import Results
from leadline.cli.terminal import TextStyles, print_table
from leadline.model import BrokerId

if TYPE_CHECKING:
    pass


def describe(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    paint = TextStyles(sys.stdout)
    with kafka_python_admin(connection) as client, Results(options) as results:
        for n, name in enumerate(group_names(client, options.groups)):
            connection.restart_timeout()
            group = describe_group(client, name)
            partitions = progress(connection, admin, group)
            history = rebalances(client, group)
            if n > 0 and results.is_text:
                print()
            results.add(
                description_json(group, connection.brokers, partitions, history),
                partial(print_description, group, connection.brokers, partitions, history, paint),
            )
    return report_silent(connection, "groups that it coordinates and partitions that it leads are missing")


def print_description(
    group: GroupDescription,
    brokers: dict[BrokerId, ServerAddress],
    partitions: Sequence[GroupProgress],
    history: Sequence[Rebalance] | str,
    paint: TextStyles,
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


def description_json(
    group: GroupDescription,
    brokers: dict[BrokerId, ServerAddress],
    partitions: Sequence[GroupProgress],
    history: Sequence[Rebalance] | str,
) -> Json:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.protocol,
        "coordinator": node_json(group.coordinator, brokers),
        "members": [_member_json(member) for member in group.members],
        "partitions": [_progress_json(partition) for partition in partitions],
        "total_lag": total_lag(partitions),
        "rebalances": history if not isinstance(history, str) else None,
    }


def _member_json(member: MemberDescription) -> Json:
    return {
        "member_id": member.member_id,
        "client_id": member.client_id,
        "host": member.host,
        "instance_id": member.instance_id,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in member.partitions],
    }


def _progress_json(progress: GroupProgress) -> Json:
    return {
        "topic": progress.tp.topic,
        "partition": progress.tp.partition,
        "committed": progress.committed.offset if progress.committed is not None else None,
        "metadata": progress.committed.metadata if progress.committed is not None else None,
        "log_end": progress.log_end,
        "lag": progress.lag,
        "owner": progress.owner.member_id if progress.owner is not None else None,
    }

"""leadline groups: who reads what, how far behind, and why it last rebalanced; and where it goes on. Of any cluster.

`list` and `describe` know groups of every protocol type: consumers', those that only commit, and others, such as Kafka
Connect's and those of schema registries, which Kafka's own tool leaves out.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS, reset_offsets
from leadline.cli.client import ClusterConnection, Failure, Json, Paint, add_command, administer, agreed, show, text_of
from leadline.cli.known_groups import (
    CONSUMER,
    STATES,
    GroupDescription,
    GroupListing,
    MemberDescription,
    node_json,
    node_text,
    refuse_active,
)
from leadline.cli.leaders import led
from leadline.cli.offset_plan import CommittedOffset
from leadline.cli.offsets import committed_by, listed
from leadline.cli.rebalances import HEADS, Rebalance, rebalances, rows
from leadline.cli.second_client import KafkaPythonAdmin, kafka_python_admin
from leadline.cli.servers import ServerAddress
from leadline.config.settings import nearest
from leadline.model import BrokerId, Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LIST = """
  leadline groups list
  leadline groups list --state Empty                         those that nobody reads for
  leadline groups list --json | jq -r .group
"""
DESCRIBE = """
  leadline groups describe billing                           members, offsets, lag, and the last rebalances
  leadline groups describe                                   all of them
  leadline groups describe billing --json | jq .totalLag
"""
DELETE = """
  leadline groups delete billing                             with all that it has committed
  leadline groups delete billing audit --yes
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "groups",
        prog="leadline groups",
        help=COMMANDS["groups"],
        usage="leadline groups COMMAND ...",
    )
    under = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = add_command(
        under,
        "list",
        _list,
        help="all groups, with state and coordinator",
        usage="groups list [options]",
        examples=LIST,
    )
    listing.add_argument("--state", action="append", default=[], choices=STATES, help="only those in it; repeatable")
    listing.add_argument("--json", action="store_true", help="one JSON object a group")

    describe = add_command(
        under,
        "describe",
        _describe,
        help="members, committed offsets, lag and the last rebalances of groups",
        usage="groups describe [GROUP ...] [options]",
        examples=DESCRIBE,
    )
    describe.add_argument("groups", nargs="*", metavar="GROUP")
    describe.add_argument("--json", action="store_true", help="one JSON object a group")

    reset_offsets.add_to(under)

    delete = add_command(
        under,
        "delete",
        _delete,
        help="delete groups without members, and what they have committed",
        usage="groups delete GROUP ... [--yes] [options]",
        examples=DELETE,
    )
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    delete.add_argument("--yes", action="store_true", help="do not ask, on a terminal")


# list


def _list(options: argparse.Namespace) -> int:
    connection, _ = administer(options)
    with kafka_python_admin(connection) as client:
        found = client.groups(options.state)
    if options.json:
        for each in found:
            print(json.dumps(listing_json(each, connection.brokers)))
    else:
        rows = [
            [each.group_id, each.state, each.protocol_type, node_text(each.coordinator, connection.brokers)]
            for each in found
        ]
        show(["GROUP", "STATE", "PROTOCOL TYPE", "COORDINATOR"], rows)
    return connection.complain_of_silent("groups that it coordinates are not listed")


def listing_json(group: GroupListing, brokers: dict[BrokerId, ServerAddress]) -> Json:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "coordinator": node_json(group.coordinator, brokers),
    }


# describe


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


def _describe(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    paint = Paint(sys.stdout)
    with kafka_python_admin(connection) as client:
        for n, name in enumerate(_names(client, options.groups)):
            connection.start_again()
            group = client.group(name)
            found = progress(connection, admin, group)
            history = rebalances(connection, admin, group)
            if options.json:
                print(json.dumps(description_json(group, connection.brokers, found, history)))
            else:
                print(end="\n" * bool(n))
                print_description(group, connection.brokers, found, history, paint)
    return connection.complain_of_silent("what it coordinates and leads is not told")


def _names(client: KafkaPythonAdmin, given: Sequence[str]) -> list[str]:
    """Those that are given, each once, or all; a Failure for one that there is not."""
    known = [each.group_id for each in client.groups()]
    for name in given:
        if name not in known:
            client.group(name)  # fails if its coordinator is silent, or missing: then nobody knows
            raise Failure(f"there is no group {name}{nearest(name, known)}")
    return list(dict.fromkeys(given)) or known


def progress(connection: ClusterConnection, admin: "AdminClient", group: GroupDescription) -> list[GroupProgress]:
    """Of each partition for which it has committed or that is assigned to a member."""
    committed = committed_by(connection, admin, group.group_id)
    owners = {tp: member for member in group.members for tp in member.partitions}
    partitions = sorted(committed.keys() | owners.keys())
    ends = listed(connection, admin, led(connection, admin, partitions), "latest")
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
        show(["MEMBER", "CLIENT ID", "HOST", "INSTANCE ID", given], [member_row(each) for each in group.members])
    else:
        print("No members.")
    print()
    if found:
        show(["TOPIC", "PARTITION", "COMMITTED", "LOG END", "LAG", "OWNER"], progress_rows(found))
    else:
        print("Nothing committed.")
    print()
    if history and not isinstance(history, str):
        show(HEADS, rows(history))
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


# delete


def _delete(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        names = _names(client, options.groups)
        for name in names:
            refuse_active(client.group(name), "deleted")
    for name in names:
        if not options.yes and not _agreed(connection, admin, name):
            raise Failure(f"group {name} was not deleted")
        _delete_one(connection, admin, name)
        print(f"Deleted group {name}.")
    return 0


def _delete_one(connection: ClusterConnection, admin: "AdminClient", group: str) -> None:
    from confluent_kafka import KafkaException

    (future,) = admin.delete_consumer_groups([group], request_timeout=connection.left_s).values()
    try:
        connection.wait(future)
    except KafkaException as error:
        raise Failure(f"group {group}: {text_of(error.args[0])}") from None


def _agreed(connection: ClusterConnection, admin: "AdminClient", group: str) -> bool:
    if not sys.stdin.isatty():
        return True
    answer = agreed(f"Delete group {group} and its {len(committed_by(connection, admin, group)):,} committed offsets?")
    connection.start_again()  # a person may think for a while
    return answer

"""leadline groups: who reads what, how far behind, and why it last rebalanced; and where it goes on. Of any cluster.

`list` and `describe` know consumers' groups and those that only commit, as Kafka's own tool does.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS, reset_offsets
from leadline.cli.client import Connection, Failure, Json, Paint, add_command, administer, agreed, show, text_of
from leadline.cli.known_groups import (
    STATES,
    assignment,
    check_known,
    described,
    listings,
    node_json,
    node_text,
    refuse_active,
    state_text,
)
from leadline.cli.offset_plan import Committed, partitions_text
from leadline.cli.offsets import committed_by, existing, listed
from leadline.cli.rebalances import HEADS, Rebalance, rebalances, rows
from leadline.model import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Node
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._group import ConsumerGroupDescription, ConsumerGroupListing, MemberDescription

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
    connection, admin = administer(options)
    found = listings(connection, admin, options.state)
    about = described(connection, admin, [each.group_id for each in found])
    coordinators = [about[each.group_id].coordinator for each in found]
    if options.json:
        for each, coordinator in zip(found, coordinators, strict=True):
            print(json.dumps(listing_json(each, coordinator)))
        return 0
    rows = [
        [each.group_id, state_text(each), protocol_type(each), node_text(coordinator)]
        for each, coordinator in zip(found, coordinators, strict=True)
    ]
    show(["GROUP", "STATE", "PROTOCOL TYPE", "COORDINATOR"], rows)
    return 0


def protocol_type(group: "ConsumerGroupListing") -> str:
    """Empty for a group that only commits, and hands out no partitions."""
    return "" if group.is_simple_consumer_group else "consumer"


def listing_json(group: "ConsumerGroupListing", coordinator: "Node | None") -> Json:
    return {
        "group": group.group_id,
        "state": state_text(group),
        "protocolType": protocol_type(group),
        "coordinator": node_json(coordinator),
    }


# describe


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group has come in a partition."""

    tp: TopicPartition
    committed: Committed | None
    log_end: Offset | None  # None: there is no such partition any longer
    owner: "MemberDescription | None"  # who reads it now

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end is None:
            return None
        return max(self.log_end - self.committed.offset, 0)


def _describe(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    known = [each.group_id for each in listings(connection, admin)]
    check_known(connection, options.groups, known)
    paint = Paint(sys.stdout)
    names = list(dict.fromkeys(options.groups)) or known
    for n, group in enumerate(described(connection, admin, names).values()):
        found = progress(connection, admin, group)
        history = rebalances(connection, admin, group)
        if options.json:
            print(json.dumps(description_json(group, found, history)))
        else:
            print(end="\n" * bool(n))
            print_description(group, found, history, paint)
    return 0


def progress(connection: Connection, admin: "AdminClient", group: "ConsumerGroupDescription") -> list[Progress]:
    """Of each partition for which it has committed or that is assigned to a member."""
    committed = committed_by(connection, admin, group.group_id)
    owners = {tp: member for member in group.members for tp in assignment(member)}
    ends = listed(connection, admin, existing(connection, admin, committed.keys() | owners.keys()), "latest")
    return [
        Progress(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in sorted(committed.keys() | owners.keys())
    ]


def print_description(
    group: "ConsumerGroupDescription",
    found: Sequence[Progress],
    history: Sequence[Rebalance] | str,
    paint: Paint,
) -> None:
    about = [state_text(group), group.partition_assignor, f"coordinator {node_text(group.coordinator)}"]
    print(f"{paint.bold(paint.harmless(group.group_id))}: {', '.join(filter(None, about))}")
    print()
    if group.members:
        show(["MEMBER", "CLIENT ID", "HOST", "INSTANCE ID", "PARTITIONS"], [member_row(each) for each in group.members])
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


def member_row(member: "MemberDescription") -> list[str]:
    partitions = partitions_text(assignment(member)) or "none"
    return [member.member_id, member.client_id, member.host, member.group_instance_id or "", partitions]


def progress_rows(found: Sequence[Progress]) -> list[list[str]]:
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


def total_lag(found: Iterable[Progress]) -> int:
    return sum(each.lag or 0 for each in found)


def description_json(
    group: "ConsumerGroupDescription", found: Sequence[Progress], history: Sequence[Rebalance] | str
) -> Json:
    return {
        "group": group.group_id,
        "state": state_text(group),
        "assignor": group.partition_assignor,
        "coordinator": node_json(group.coordinator),
        "members": [_member_json(member) for member in group.members],
        "partitions": [_progress_json(each) for each in found],
        "totalLag": total_lag(found),
        "rebalances": history if not isinstance(history, str) else None,
    }


def _member_json(member: "MemberDescription") -> Json:
    return {
        "memberId": member.member_id,
        "clientId": member.client_id,
        "host": member.host,
        "instanceId": member.group_instance_id,
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in assignment(member)],
    }


def _progress_json(each: Progress) -> Json:
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
    known = [each.group_id for each in listings(connection, admin)]
    names = list(dict.fromkeys(options.groups))
    check_known(connection, names, known)
    for group in described(connection, admin, names).values():
        refuse_active(group, "deleted")
    for name in names:
        if not options.yes and not _agreed(connection, admin, name):
            raise Failure(f"group {name} was not deleted")
        _delete_one(connection, admin, name)
        print(f"Deleted group {name}.")
    return 0


def _delete_one(connection: Connection, admin: "AdminClient", group: str) -> None:
    from confluent_kafka import KafkaException

    (future,) = admin.delete_consumer_groups([group], request_timeout=connection.timeout_s).values()
    try:
        connection.wait(future)
    except KafkaException as error:
        raise Failure(f"group {group}: {text_of(error.args[0])}") from None


def _agreed(connection: Connection, admin: "AdminClient", group: str) -> bool:
    if not sys.stdin.isatty():
        return True
    return agreed(f"Delete group {group} and its {len(committed_by(connection, admin, group)):,} committed offsets?")

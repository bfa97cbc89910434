"""leadline groups: members, lag and rebalances of groups, and resets of their offsets, on any Kafka cluster.

`list` and `describe` include groups of every protocol type: consumers, groups that only commit, Kafka Connect, schema
registries. Kafka's own tool shows consumers only.
"""

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from leadline.admin.connection import ClusterConnection, administer
from leadline.admin.diagnosis import ServerAddress
from leadline.admin.errors import Failure
from leadline.admin.group import (
    STATES,
    GroupListing,
    delete_group,
    node_json,
    node_text,
    refuse_active,
)
from leadline.admin.group_progress import group_names
from leadline.admin.json_values import Json
from leadline.admin.kafka_python.admin import kafka_python_admin
from leadline.admin.kafka_python.groups import describe_group, list_groups
from leadline.admin.offsets import committed_by
from leadline.admin.topic_description import OFFSETS_TOPIC
from leadline.cli import COMMANDS
from leadline.cli.errors import report_incomplete
from leadline.cli.groups import reset_offsets
from leadline.cli.groups.describe import describe
from leadline.cli.options import add_command, add_subcommands, add_yes_option
from leadline.cli.output import Results, add_output_option, print_results
from leadline.cli.terminal import confirmed, print_table
from leadline.model import BrokerId

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

LIST = """
  leadline groups list
  leadline groups list --state Empty                         groups without members
  leadline groups list --json | jq -r .group
"""
DESCRIBE = """
  leadline groups describe billing                           members, offsets, lag, and the last rebalances
  leadline groups describe                                   all groups
  leadline groups describe billing --json | jq .total_lag
"""
DELETE = """
  leadline groups delete billing                             with its committed offsets
  leadline groups delete billing audit --yes
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "groups", COMMANDS["groups"].help)

    listing = add_command(
        subcommands,
        "list",
        _list,
        help="list all groups with state and coordinator",
        usage="groups list [options]",
        examples=LIST,
    )
    listing.add_argument(
        "--state", action="append", default=[], choices=STATES, help="only groups in this state; repeatable"
    )
    add_output_option(listing, "group")

    describing = add_command(
        subcommands,
        "describe",
        describe,
        help="show members, committed offsets, lag and the last rebalances",
        usage="groups describe [GROUP ...] [options]",
        examples=DESCRIBE,
    )
    describing.add_argument("groups", nargs="*", metavar="GROUP")
    add_output_option(describing, "group")

    reset_offsets.add_to(subcommands)

    delete = add_command(
        subcommands,
        "delete",
        _delete,
        help="delete groups without members, with their committed offsets",
        usage="groups delete GROUP ... [--yes] [options]",
        examples=DELETE,
    )
    delete.add_argument("groups", nargs="+", metavar="GROUP")
    add_yes_option(delete)
    add_output_option(delete, "group")


def _list(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        listings = list_groups(client, options.state)
    rows = [
        [listing.group_id, listing.state, listing.protocol_type, node_text(listing.coordinator, connection.brokers)]
        for listing in listings
    ]
    print_results(
        options,
        [listing_json(listing, connection.brokers) for listing in listings],
        lambda: print_table(["GROUP", "STATE", "PROTOCOL TYPE", "COORDINATOR"], rows),
    )
    return report_incomplete(
        connection,
        admin,
        "groups that it coordinates are not listed",
        OFFSETS_TOPIC,
        "groups that it holds are not listed",
    )


def listing_json(group: GroupListing, brokers: dict[BrokerId, ServerAddress]) -> Json:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "coordinator": node_json(group.coordinator, brokers),
    }


def _delete(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        names = group_names(client, options.groups)
        for name in names:
            refuse_active(describe_group(client, name), "deleted")
    with Results(options) as results:
        for name in names:
            if not options.yes and not _confirmed(connection, admin, name):
                raise Failure(f"group {name} was not deleted")
            delete_group(connection, admin, name)
            results.add({"group": name, "deleted": True}, partial(print, f"Deleted group {name}."))
    return 0


def _confirmed(connection: ClusterConnection, admin: "AdminClient", group: str) -> bool:
    if not sys.stdin.isatty():
        return True
    answer = confirmed(
        f"Delete group {group} and its {len(committed_by(connection, admin, group)):,} committed offsets?"
    )
    connection.restart_timeout()  # the answer may have taken a while
    return answer

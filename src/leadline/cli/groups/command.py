"""leadline groups: members, lag and rebalances of groups, and resets of their offsets, on any Kafka cluster.

`list` and `describe` include groups of every protocol type: consumers, groups that only commit, Kafka Connect, schema
registries. Kafka's own tool shows consumers only.
"""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from leadline.cli import COMMANDS
from leadline.cli.connection import ClusterConnection, administer
from leadline.cli.diagnosis import ServerAddress
from leadline.cli.errors import Failure, client_error_text
from leadline.cli.groups import reset_offsets
from leadline.cli.groups.describe import describe, group_names
from leadline.cli.groups.group import (
    STATES,
    GroupListing,
    node_json,
    node_text,
    refuse_active,
)
from leadline.cli.json_values import Json
from leadline.cli.kafka_python.admin import kafka_python_admin
from leadline.cli.kafka_python.groups import describe_group, list_groups
from leadline.cli.offsets import committed_by
from leadline.cli.options import add_command, add_json_option, add_yes_option
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
  leadline groups describe billing --json | jq .totalLag
"""
DELETE = """
  leadline groups delete billing                             with its committed offsets
  leadline groups delete billing audit --yes
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "groups",
        prog="leadline groups",
        help=COMMANDS["groups"].help,
        usage="leadline groups COMMAND ...",
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

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
    add_json_option(listing, "group")

    describing = add_command(
        subcommands,
        "describe",
        describe,
        help="show members, committed offsets, lag and the last rebalances",
        usage="groups describe [GROUP ...] [options]",
        examples=DESCRIBE,
    )
    describing.add_argument("groups", nargs="*", metavar="GROUP")
    add_json_option(describing, "group")

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


def _list(options: argparse.Namespace) -> int:
    connection, _ = administer(options)
    with kafka_python_admin(connection) as client:
        listings = list_groups(client, options.state)
    if options.json:
        for listing in listings:
            print(json.dumps(listing_json(listing, connection.brokers)))
    else:
        rows = [
            [listing.group_id, listing.state, listing.protocol_type, node_text(listing.coordinator, connection.brokers)]
            for listing in listings
        ]
        print_table(["GROUP", "STATE", "PROTOCOL TYPE", "COORDINATOR"], rows)
    return connection.report_silent("groups that it coordinates are not listed")


def listing_json(group: GroupListing, brokers: dict[BrokerId, ServerAddress]) -> Json:
    return {
        "group": group.group_id,
        "state": group.state,
        "protocolType": group.protocol_type,
        "coordinator": node_json(group.coordinator, brokers),
    }


def _delete(options: argparse.Namespace) -> int:
    connection, admin = administer(options)
    with kafka_python_admin(connection) as client:
        names = group_names(client, options.groups)
        for name in names:
            refuse_active(describe_group(client, name), "deleted")
    for name in names:
        if not options.yes and not _confirmed(connection, admin, name):
            raise Failure(f"group {name} was not deleted")
        _delete_group(connection, admin, name)
        print(f"Deleted group {name}.")
    return 0


def _delete_group(connection: ClusterConnection, admin: "AdminClient", group: str) -> None:
    from confluent_kafka import KafkaException

    (future,) = admin.delete_consumer_groups([group], request_timeout=connection.remaining_s).values()
    try:
        connection.wait(future)
    except KafkaException as error:
        raise Failure(f"group {group}: {client_error_text(error.args[0])}") from None


def _confirmed(connection: ClusterConnection, admin: "AdminClient", group: str) -> bool:
    if not sys.stdin.isatty():
        return True
    answer = confirmed(
        f"Delete group {group} and its {len(committed_by(connection, admin, group)):,} committed offsets?"
    )
    connection.restart_timeout()  # the answer may have taken a while
    return answer

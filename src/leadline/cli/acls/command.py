"""leadline acls: list, add and remove ACLs of any Kafka cluster, and explain decisions.

`--dry-run` shows what a rule would change: the decision for each principal and resource, before and after.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from leadline.cli import COMMANDS
from leadline.cli.acls import why
from leadline.cli.acls.acl_effect import ANY_OTHER_HOST, ANYONE_ELSE, changed_decisions, merged
from leadline.cli.acls.acl_options import (
    add_pattern_option,
    add_resource_options,
    add_rule_options,
    bindings_of,
    filters_of,
    principal,
    resources,
)
from leadline.cli.acls.acl_requests import create_acls, delete_acls, describe_acls
from leadline.cli.acls.acl_text import ACL_HEADS, acl_json, acl_row, binding_text, operation_text, resource_text
from leadline.cli.acls.authorizer_settings import authorizer_settings
from leadline.cli.errors import Failure, print_error
from leadline.cli.formatting import count_text
from leadline.cli.options import add_command, add_json_option, add_yes_option
from leadline.cli.security_admin import SecurityAdmin, security_admin
from leadline.cli.terminal import Paint, confirmed, print_table
from leadline.security.acls import (
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    ResourcePatternFilter,
    ResourceType,
)

LIST = """
  leadline acls list
  leadline acls list --topic orders --resource-pattern-type match    what applies
  leadline acls list --principal User:alice --json
"""
ADD = """
  leadline acls add --allow-principal User:alice --producer --topic orders
  leadline acls add --allow-principal User:ben --consumer --topic orders --group billing
  leadline acls add --allow-principal User:ops --operation all --cluster
  leadline acls add --allow-principal User:app --operation read --topic logs- --resource-pattern-type prefixed
  leadline acls add --deny-principal 'User:*' --deny-host 10.0.0.7 --operation all --topic '*' --dry-run
"""
REMOVE = """
  leadline acls remove --allow-principal User:alice --producer --topic orders
  leadline acls remove --topic orders --dry-run              show what would go
  leadline acls remove --topic logs- --resource-pattern-type prefixed --yes
"""
CHANGES_SHOWN = 30
ALL_ACLS = AclBindingFilter()


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "acls", prog="leadline acls", help=COMMANDS["acls"].help, usage="leadline acls COMMAND ..."
    )
    subcommands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    listing = add_command(
        subcommands, "list", _list, help="list ACLs", usage="acls list [RESOURCE ...] [options]", examples=LIST
    )
    listing.add_argument("--principal", type=principal, metavar="User:NAME", help="only those for this principal")
    add_json_option(listing, "ACL")
    add_pattern_option(listing, filter=True)
    add_resource_options(listing)

    add = add_command(
        subcommands,
        "add",
        _add,
        help="allow or deny something",
        usage="acls add --allow-principal User:NAME --operation NAME RESOURCE ... [options]",
        examples=ADD,
        description="Allow or deny something. Deny counts before allow. What no rule allows is\n"
        "denied. read, write, delete and alter include describe.",
    )
    add_pattern_option(add, filter=False)

    remove = add_command(
        subcommands,
        "remove",
        _remove,
        help="remove ACLs",
        usage="acls remove RESOURCE ... [options]",
        examples=REMOVE,
        description="Remove the ACLs of resources: all, or those of a principal, a host, an operation.",
    )
    add_yes_option(remove)
    add_pattern_option(remove, filter=True)
    for leaf in (add, remove):
        leaf.add_argument("--dry-run", action="store_true", help="only show what would change, and for whom")
        add_resource_options(leaf)
        add_rule_options(leaf)
    why.add_to(subcommands)


def _list(options: argparse.Namespace) -> int:
    entry = AccessControlEntryFilter(options.principal)
    chosen = resources(options)
    patterns = [ResourcePatternFilter(kind, name, options.resource_pattern_type) for kind, name in chosen]
    filters = [AclBindingFilter(pattern, entry) for pattern in patterns or [ResourcePatternFilter()]]
    with security_admin(options) as admin:
        bindings = _matching(admin, filters)
    if options.json:
        for binding in bindings:
            print(json.dumps(acl_json(binding)))
    elif bindings:
        print_table(ACL_HEADS, [acl_row(binding) for binding in bindings])
    else:
        print("No ACLs.")
    return 0


def _matching(admin: SecurityAdmin, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
    return sorted({binding for filter in filters for binding in describe_acls(admin, filter)})


def _add(options: argparse.Namespace) -> int:
    bindings = bindings_of(options)
    with security_admin(options) as admin:
        before = describe_acls(admin, ALL_ACLS)
        new = [binding for binding in bindings if binding not in before]
        _print_bindings("=", [binding for binding in bindings if binding in before], Paint.dim, "there already")
        if options.dry_run:
            _print_bindings("+", new, Paint.cyan)
            _print_effect(admin, before, [*before, *new])
            print(f"Would add {count_text(len(new), 'ACL')}.")
            return 0
        errors = create_acls(admin, new) if new else {}
    added = [binding for binding in new if binding not in errors]
    _print_bindings("+", added, Paint.cyan)
    for binding, error in errors.items():
        print_error(f"{binding_text(binding)}: {error}")
    print(f"Added {count_text(len(added), 'ACL')}.")
    return 1 if errors else 0


def _remove(options: argparse.Namespace) -> int:
    filters = filters_of(options)
    with security_admin(options) as admin:
        before = describe_acls(admin, ALL_ACLS)
        gone = [binding for binding in before if any(filter.matches(binding) for filter in filters)]
        if not gone:
            print("No ACL matches: nothing to remove.")
            return 0
        _print_bindings("-", gone, Paint.red)
        if options.dry_run:
            _print_effect(admin, before, [binding for binding in before if binding not in gone])
            print(f"Would remove {count_text(len(gone), 'ACL')}.")
            return 0
        if not options.yes and not confirmed(f"Remove {count_text(len(gone), 'ACL')}?"):
            raise Failure("no ACL was removed")
        exact = [
            AclBindingFilter(ResourcePatternFilter(*binding.pattern), AccessControlEntryFilter(*binding.entry))
            for binding in gone
        ]
        for error in (errors := delete_acls(admin, exact)):
            print_error(error)
    if not errors:
        print(f"Removed {count_text(len(gone), 'ACL')}.")
    return 1 if errors else 0


def _print_bindings(
    sign: str, bindings: Sequence[AclBinding], colour: Callable[[Paint, str], str], remark: str = ""
) -> None:
    paint = Paint(sys.stdout)
    for binding in bindings:
        text = f"{sign} {paint.escape(binding_text(binding))}{f' ({remark})' if remark else ''}"
        print(colour(paint, text))


def _print_effect(admin: SecurityAdmin, before: Sequence[AclBinding], after: Sequence[AclBinding]) -> None:
    settings = authorizer_settings(admin)
    topics = [(ResourceType.TOPIC, name) for name in admin.client.topics()]
    changes = merged(changed_decisions(before, after, topics, settings.authorizer))
    if not changes:
        print("No decision changes.")
    else:
        other_host = "any" if all(change.host == ANY_OTHER_HOST for change, _ in changes) else "any other"
        rows = [
            [
                "anyone else" if change.principal == ANYONE_ELSE else str(change.principal),
                other_host if change.host == ANY_OTHER_HOST else change.host,
                resource_text(change.resource_type, change.name),
                "now may" if change.allowed else "no longer may",
                ", ".join(map(operation_text, operations)),
            ]
            for change, operations in changes[:CHANGES_SHOWN]
        ]
        print_table(["PRINCIPAL", "HOST", "RESOURCE", "CHANGE", "OPERATIONS"], rows)
        if len(changes) > CHANGES_SHOWN:
            print(f"... and {len(changes) - CHANGES_SHOWN} more")
    for spot in settings.blind_spots():
        print(f"Not seen: {spot}.")

"""leadline acls: list, add and remove ACLs of any Kafka cluster, and explain decisions.

`--dry-run` shows what a rule would change: the decision for each principal and resource, before and after.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.acls import why
from leadline.cli.acls.acl_effect import ANY_OTHER_HOST, ANYONE_ELSE, ChangedDecision, changed_decisions, merged
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
from leadline.cli.errors import print_error
from leadline.cli.options import add_command, add_subcommands, add_yes_option
from leadline.cli.output import add_output_option, is_text, print_result, print_results
from leadline.cli.security_admin import SecurityAdmin, security_admin
from leadline.cli.terminal import TextStyles, confirmed, print_table
from leadline.security.acls import (
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
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
    subcommands = add_subcommands(commands, "acls", COMMANDS["acls"].help)

    listing = add_command(
        subcommands, "list", _list, help="list ACLs", usage="acls list [RESOURCE ...] [options]", examples=LIST
    )
    listing.add_argument("--principal", type=principal, metavar="User:NAME", help="only those for this principal")
    add_output_option(listing, "ACL")
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
        leaf.add_argument("--dry-run", action="store_true", help="only show which principals would gain or lose access")
        add_output_option(leaf)
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
    rows = [acl_row(binding) for binding in bindings]
    print_results(options, map(acl_json, bindings), lambda: print_table(ACL_HEADS, rows) if rows else print("No ACLs."))
    return 0


def _matching(admin: SecurityAdmin, filters: Sequence[AclBindingFilter]) -> list[AclBinding]:
    return sorted({binding for filter in filters for binding in describe_acls(admin, filter)})


def _add(options: argparse.Namespace) -> int:
    bindings = bindings_of(options)
    with security_admin(options) as admin:
        before = describe_acls(admin, ALL_ACLS)
        new = [binding for binding in bindings if binding not in before]
        existing = [binding for binding in bindings if binding in before]
        effect = _effect(admin, before, [*before, *new]) if options.dry_run else None
        errors = create_acls(admin, new) if new and not options.dry_run else {}
    added = [binding for binding in new if binding not in errors]

    def print_added() -> None:
        _print_bindings("=", existing, TextStyles.dim, "there already")
        _print_bindings("+", added, TextStyles.cyan)
        if effect is not None:
            _print_effect(effect)
        print(f"{'Would add' if options.dry_run else 'Added'} {count_text(len(added), 'ACL')}.")

    value: Json = {
        "added": [acl_json(binding) for binding in added],
        "existing": [acl_json(binding) for binding in existing],
        "changes": [] if effect is None else effect.as_json(),
        "dry_run": options.dry_run,
    }
    for binding, error in errors.items():
        print_error(f"{binding_text(binding)}: {error}")
    print_result(options, value, print_added)
    return 1 if errors else 0


def _remove(options: argparse.Namespace) -> int:
    filters = filters_of(options)
    with security_admin(options) as admin:
        before = describe_acls(admin, ALL_ACLS)
        removed = [binding for binding in before if any(filter.matches(binding) for filter in filters)]
        value: dict[str, Json] = {"removed": [acl_json(binding) for binding in removed], "changes": []}
        value["dry_run"] = options.dry_run
        if not removed:
            print_result(options, value, "No ACL matches: nothing to remove.")
            return 0
        if is_text(options):
            _print_bindings("-", removed, TextStyles.red)
        if options.dry_run:
            effect = _effect(admin, before, [binding for binding in before if binding not in removed])
            if is_text(options):
                _print_effect(effect)
            value["changes"] = effect.as_json()
            print_result(options, value, f"Would remove {count_text(len(removed), 'ACL')}.")
            return 0
        if not options.yes and not confirmed(f"Remove {count_text(len(removed), 'ACL')}?"):
            raise Failure("no ACL was removed")
        exact = [
            AclBindingFilter(ResourcePatternFilter(*binding.pattern), AccessControlEntryFilter(*binding.entry))
            for binding in removed
        ]
        for error in (errors := delete_acls(admin, exact)):
            print_error(error)
    if not errors:
        print_result(options, value, f"Removed {count_text(len(removed), 'ACL')}.")
    return 1 if errors else 0


def _print_bindings(
    sign: str, bindings: Sequence[AclBinding], colour: Callable[[TextStyles, str], str], remark: str = ""
) -> None:
    paint = TextStyles(sys.stdout)
    for binding in bindings:
        text = f"{sign} {paint.escape(binding_text(binding))}{f' ({remark})' if remark else ''}"
        print(colour(paint, text))


class AclEffect(NamedTuple):
    """The decisions that would change, and what cannot be seen from here."""

    changes: Sequence[tuple[ChangedDecision, Sequence[AclOperation]]]
    blind_spots: Sequence[str]

    def as_json(self) -> list[Json]:
        """A principal or a host of null stands for anyone else, or any other."""
        return [
            {
                "principal": None if change.principal == ANYONE_ELSE else str(change.principal),
                "host": None if change.host == ANY_OTHER_HOST else change.host,
                "resource_type": change.resource_type.name,
                "name": change.name,
                "allowed": change.allowed,
                "operations": [operation.name for operation in operations],
            }
            for change, operations in self.changes
        ]


def _effect(admin: SecurityAdmin, before: Sequence[AclBinding], after: Sequence[AclBinding]) -> AclEffect:
    settings = authorizer_settings(admin)
    topics = [(ResourceType.TOPIC, name) for name in admin.client.topics()]
    changes = merged(changed_decisions(before, after, topics, settings.authorizer))
    return AclEffect(changes, list(settings.blind_spots()))


def _print_effect(effect: AclEffect) -> None:
    changes = effect.changes
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
    for spot in effect.blind_spots:
        print(f"Not seen: {spot}.")

"""leadline quotas: limits of users, client ids, pairs of them and addresses, of any Kafka cluster."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from leadline.admin.errors import Failure
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.options import Commands, add_command, add_subcommands, key_value
from leadline.cli.output import add_output_option, print_result, print_results
from leadline.cli.security_admin import SecurityAdmin, check, security_admin
from leadline.cli.terminal import print_table
from leadline.config.settings import nearest
from leadline.security.client_quotas import DEFAULT, EntityName
from leadline.security.quota_nodes import CLIENT_ID, CONNECTION_CREATION_RATE, IP, TYPES, USER
from leadline.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

DESCRIPTION = """
The most specific quota of a client counts, for each key by itself: that of its
user and client id, then of its user, then of its client id; a name before a default.

  producer_byte_rate         bytes per second that it may write to a broker
  consumer_byte_rate         bytes per second that it may read from a broker
  request_percentage         time of a broker's threads; 100 is one thread
  controller_mutation_rate   partitions per second that it may create and delete
  connection_creation_rate   connections per second, of an address
"""
LIST = """
  leadline quotas list
  leadline quotas list --user alice --json
"""
SET = """
  leadline quotas set --user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
  leadline quotas set --user alice --client-id etl request_percentage=50
  leadline quotas set --user-default producer_byte_rate=524288   users without a quota of their own
  leadline quotas set --ip 10.0.0.7 connection_creation_rate=20 --dry-run
"""
REMOVE = """
  leadline quotas remove --user alice producer_byte_rate
  leadline quotas remove --user alice                        all quotas of this user
"""
EXACT, OF_DEFAULT = 0, 1  # how a name is matched
ENTITY_TYPES = {USER: "user", CLIENT_ID: "client id", IP: "address"}


class QuotaTarget(NamedTuple):
    """The entity of a quota: names by entity type, in the order user, client id, address."""

    parts: tuple[tuple[str, EntityName], ...]

    def __str__(self) -> str:
        return ", ".join(
            f"{ENTITY_TYPES[kind]} {'<default>' if name is DEFAULT else name}" for kind, name in self.parts
        )


Quotas = Mapping[str, float]


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "quotas", COMMANDS["quotas"].help)
    listing = add_command(
        subcommands, "list", _list, help="list quotas", usage="quotas list [WHOSE] [options]", examples=LIST
    )
    add_output_option(listing, "entity")
    setting = add_command(
        subcommands,
        "set",
        _set,
        help="set or change quotas",
        usage="quotas set WHOSE KEY=VALUE ... [options]",
        examples=SET,
        description=DESCRIPTION.strip(),
    )
    setting.add_argument("quotas", nargs="+", type=key_value, metavar="KEY=VALUE")
    remove = add_command(
        subcommands,
        "remove",
        _remove,
        help="remove quotas",
        usage="quotas remove WHOSE [KEY ...] [options]",
        examples=REMOVE,
    )
    remove.add_argument("keys", nargs="*", metavar="KEY", help="which quotas (default: all)")
    for leaf in (setting, remove):
        leaf.add_argument("--dry-run", action="store_true", help="only check it, and show what would change")
        add_output_option(leaf)
    for leaf in (listing, setting, remove):
        group = leaf.add_argument_group("whose quotas")
        for kind, text in ENTITY_TYPES.items():
            names = group.add_mutually_exclusive_group()
            names.add_argument(f"--{kind}", metavar="ADDRESS" if kind == IP else "NAME", help=f"this {text}")
            plural = "addresses" if kind == IP else f"{text}s"
            names.add_argument(f"--{kind}-default", action="store_true", help=f"{plural} without a quota of their own")


def target_of(options: argparse.Namespace) -> QuotaTarget | None:
    """None: no entity is named."""
    parts: list[tuple[str, EntityName]] = []
    for kind in ENTITY_TYPES:
        name = getattr(options, kind.replace("-", "_"))
        if getattr(options, f"{kind.replace('-', '_')}_default"):
            parts.append((kind, DEFAULT))
        elif name is not None:
            parts.append((kind, name))
    if len(parts) > 1 and parts[-1][0] == IP:
        raise Failure("--ip cannot be combined with --user or --client-id")
    return QuotaTarget(tuple(parts)) if parts else None


def _some_target(options: argparse.Namespace) -> QuotaTarget:
    target = target_of(options)
    if target is None:
        names = ", ".join(f"--{kind}, --{kind}-default" for kind in ENTITY_TYPES)
        raise Failure(f"whose quotas? Give one of {names}, or a user and a client id")
    return target


# Requests


def describe_quotas(
    admin: SecurityAdmin, target: QuotaTarget | None, *, strict: bool = True
) -> dict[QuotaTarget, Quotas]:
    """The quotas of one entity, or of all. Not strict: also those of pairs that the entity is part of."""
    components = [
        DescribeClientQuotasRequest.ComponentData(
            entity_type=kind,
            match_type=OF_DEFAULT if name is DEFAULT else EXACT,
            match=None if name is DEFAULT else name,
        )
        for kind, name in (target.parts if target else ())
    ]
    request = DescribeClientQuotasRequest(components=components, strict=strict and target is not None)
    answer = admin.ask(request, DescribeClientQuotasResponse)
    check(answer.error_code, answer.error_message)
    quotas = {
        _target(entry.entity): {value.key: value.value for value in entry.values} for entry in answer.entries or ()
    }
    return dict(sorted(quotas.items(), key=lambda item: str(item[0])))


def _target(entity: Iterable["DescribeClientQuotasResponse.EntityData"]) -> QuotaTarget:
    names = {part.entity_type: DEFAULT if part.entity_name is None else part.entity_name for part in entity}
    return QuotaTarget(tuple((kind, names[kind]) for kind in ENTITY_TYPES if kind in names))


def alter_quotas(
    admin: SecurityAdmin, target: QuotaTarget, changes: Mapping[str, float | None], *, validate_only: bool
) -> None:
    """None: remove it."""
    entry = AlterClientQuotasRequest.EntryData(
        entity=[
            AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=None if name is DEFAULT else name)
            for kind, name in target.parts
        ],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
            for key, value in changes.items()
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    for result in admin.ask(request, AlterClientQuotasResponse).entries:
        check(result.error_code, result.error_message, str(target))


# Commands


def _list(options: argparse.Namespace) -> int:
    with security_admin(options) as admin:
        quotas = describe_quotas(admin, target_of(options), strict=False)
    rows = [
        [*(_cell(target, kind) for kind in ENTITY_TYPES), key, number_text(value)]
        for target, values in quotas.items()
        for key, value in sorted(values.items())
    ]
    heads = ["USER", "CLIENT ID", "ADDRESS", "QUOTA", "LIMIT"]
    print_results(
        options,
        [as_json(target, values) for target, values in quotas.items()],
        lambda: print_table(heads, rows) if rows else print("No quotas."),
    )
    return 0


def _cell(target: QuotaTarget, kind: str) -> str:
    name = dict(target.parts).get(kind)
    return "" if name is None else "<default>" if name is DEFAULT else name


def as_json(target: QuotaTarget, quotas: Quotas) -> Json:
    return {"entity": entity_json(target), "quotas": dict(quotas)}


def entity_json(target: QuotaTarget) -> Json:
    """An entity's default is null, as in Kafka's requests."""
    return {kind: None if name is DEFAULT else name for kind, name in target.parts}


def number_text(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,}"


def _set(options: argparse.Namespace) -> int:
    target = _some_target(options)
    changes = {key: _number(target, key, text) for key, text in options.quotas}
    return _alter(options, target, changes)


def _number(target: QuotaTarget, key: str, text: str) -> float:
    _check_key(target, key)
    try:
        value = float(text)
    except ValueError:
        raise Failure(f"{key}={text}: expected a number") from None
    if not 0 <= value < float("inf"):
        raise Failure(f"{key}={text}: expected a number of at least 0")
    return value


def _check_key(target: QuotaTarget, key: str) -> None:
    if key not in TYPES:
        raise Failure(f"there is no quota {key}{nearest(key, TYPES)}: {', '.join(TYPES)}")
    if (key == CONNECTION_CREATION_RATE) != (target.parts[0][0] == IP):
        raise Failure(f"{key} is not a quota of {'an address' if target.parts[0][0] == IP else 'users and client ids'}")


def _remove(options: argparse.Namespace) -> int:
    target = _some_target(options)
    for key in options.keys:
        _check_key(target, key)
    return _alter(options, target, dict.fromkeys(options.keys))


def _alter(options: argparse.Namespace, target: QuotaTarget, changes: Mapping[str, float | None]) -> int:
    with security_admin(options) as admin:
        before = describe_quotas(admin, target).get(target, {})
        changes = changes or dict.fromkeys(before)
        changes = {key: value for key, value in changes.items() if value is not None or key in before}
        if changes:
            alter_quotas(admin, target, changes, validate_only=options.dry_run)

    def print_changes() -> None:
        if not changes:
            print(f"No quotas of {target} to remove.")
            return
        rows = [_change_row(key, before.get(key), value) for key, value in changes.items()]
        print_table(["QUOTA", "BEFORE", "AFTER"], rows)
        print(f"{'Would change' if options.dry_run else 'Changed'} the quotas of {target}.")

    altered: list[Json] = [{"quota": key, "before": before.get(key), "after": value} for key, value in changes.items()]
    print_result(options, {"entity": entity_json(target), "quotas": altered, "dry_run": options.dry_run}, print_changes)
    return 0


def _change_row(key: str, before: float | None, after: float | None) -> Sequence[str]:
    return [key, *("none" if value is None else number_text(value) for value in (before, after))]

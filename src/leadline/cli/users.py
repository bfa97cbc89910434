"""leadline users: the users who log in by SCRAM, of any Kafka cluster. The cluster never gets the password itself.

The command derives the salted password. A broker keeps two keys of it, from which the password cannot be computed.
"""

import argparse
import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from leadline.admin.errors import Failure
from leadline.admin.json_values import Json
from leadline.cli import COMMANDS
from leadline.cli.options import Commands, add_command, add_dry_run_option, add_subcommands, add_yes_option, at_least
from leadline.cli.output import Results, add_output_option, print_result, print_results
from leadline.cli.passwords import add_password_options, password_of
from leadline.cli.security_admin import SecurityAdmin, check, error_text, security_admin
from leadline.cli.terminal import confirmed, print_table
from leadline.config.settings import nearest
from leadline.errors import ResourceNotFound
from leadline.security.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    ScramMechanism,
    salted_password,
)
from leadline.security.secret import Secret
from leadline.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

LIST = """
  leadline users list
  leadline users list alice --json
"""
ADD = """
  leadline users add alice                                   ask for the password
  leadline users add alice --password-file alice.password
  pass kafka/alice | leadline users add alice --password-stdin --mechanism SCRAM-SHA-512
"""
REMOVE = """
  leadline users remove alice
  leadline users remove alice --mechanism SCRAM-SHA-256 --yes
"""
ITERATIONS = 8192
SALT_BYTES = 32
Credentials = Mapping[ScramMechanism, int]  # the iterations


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "users", COMMANDS["users"].help)
    listing = add_command(
        subcommands,
        "list",
        _list,
        help="list users and how they can log in",
        usage="users list [USER ...] [options]",
        examples=LIST,
    )
    listing.add_argument("users", nargs="*", metavar="USER")
    add_output_option(listing, "user")

    add = add_command(
        subcommands,
        "add",
        _add,
        help="add a user, or change a password",
        usage="users add USER [options]",
        examples=ADD,
        description="Add a user who logs in by SCRAM, or change the password of one. Connections\n"
        "that are open stay open.",
    )
    add.add_argument("user", metavar="USER")
    add.add_argument(
        "--iterations",
        type=at_least(MIN_ITERATIONS),
        default=ITERATIONS,
        metavar="N",
        help=f"iterations of the hash, {MIN_ITERATIONS} to {MAX_ITERATIONS} (default {ITERATIONS})",
    )
    remove = add_command(
        subcommands,
        "remove",
        _remove,
        help="remove users",
        usage="users remove USER ... [--yes] [options]",
        examples=REMOVE,
        description="Remove users, or one of their mechanisms. Their quotas and ACLs stay, and so do\n"
        "connections that are open.",
    )
    remove.add_argument("users", nargs="+", metavar="USER")
    add_yes_option(remove)
    for leaf in (add, remove):
        leaf.add_argument(
            "--mechanism",
            action="append",
            choices=list(SCRAM_MECHANISMS),
            metavar="NAME",
            help=f"{' or '.join(SCRAM_MECHANISMS)}; repeatable (default: both)",
        )
        add_dry_run_option(leaf)
    add_password_options(add)
    add_output_option(add)
    add_output_option(remove, "user")


def mechanisms_of(options: argparse.Namespace) -> list[ScramMechanism]:
    return [SCRAM_MECHANISMS[name] for name in dict.fromkeys(options.mechanism or SCRAM_MECHANISMS)]


def describe_users(admin: SecurityAdmin, names: Iterable[str] = ()) -> dict[str, Credentials]:
    """The named users that exist, or all of them, sorted."""
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in dict.fromkeys(names)]
    answer = admin.ask(DescribeUserScramCredentialsRequest(users=users or None), DescribeUserScramCredentialsResponse)
    check(answer.error_code, answer.error_message)
    described: dict[str, Credentials] = {}
    for result in sorted(answer.results, key=lambda result: result.user):
        if result.error_code == ResourceNotFound.code:
            continue
        check(result.error_code, result.error_message, f"user {result.user}")
        described[result.user] = {ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos}
    return described


def _list(options: argparse.Namespace) -> int:
    with security_admin(options) as admin:
        users = describe_users(admin, options.users)
        missing = [name for name in options.users if name not in users]
        if missing:
            raise _no_user(missing[0], describe_users(admin))
    rows = [
        [name, mechanism.mechanism_name, str(credentials[mechanism])]
        for name, credentials in users.items()
        for mechanism in ScramMechanism
        if mechanism in credentials
    ]
    values: list[Json] = [
        {"user": name, "iterations": {mechanism.mechanism_name: count for mechanism, count in credentials.items()}}
        for name, credentials in users.items()
    ]
    heads = ["USER", "MECHANISM", "ITERATIONS"]
    print_results(options, values, lambda: print_table(heads, rows) if users else print("No users."))
    return 0


def _no_user(name: str, users: Iterable[str]) -> Failure:
    return Failure(f"there is no user {name}{nearest(name, users)}")


def _add(options: argparse.Namespace) -> int:
    if options.iterations > MAX_ITERATIONS:
        raise Failure(f"--iterations {options.iterations}: brokers take at most {MAX_ITERATIONS}")
    mechanisms = mechanisms_of(options)
    with security_admin(options) as admin:
        exists = options.user in describe_users(admin, [options.user])
        what = f"{'password of' if exists else 'user'} {options.user}, by {_names(mechanisms)}"
        value: dict[str, Json] = {
            "user": options.user,
            "mechanisms": [mechanism.mechanism_name for mechanism in mechanisms],
            "existed": exists,
            "dry_run": options.dry_run,
        }
        if options.dry_run:
            print_result(options, value, f"Would {'change the' if exists else 'add'} {what}.")
            return 0
        password = password_of(options, options.user)
        admin.connection.restart_timeout()  # the answer may have taken a while
        upsertions = [_upsertion(options.user, mechanism, password, options.iterations) for mechanism in mechanisms]
        _alter(admin, AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions))
    print_result(options, value, f"{'Changed the' if exists else 'Added'} {what}.")
    return 0


def _upsertion(
    user: str, mechanism: ScramMechanism, password: Secret, iterations: int
) -> AlterUserScramCredentialsRequest.ScramCredentialUpsertion:
    salt = secrets.token_bytes(SALT_BYTES)
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism.value,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(mechanism, password, salt, iterations).reveal(),
    )


def _alter(admin: SecurityAdmin, request: AlterUserScramCredentialsRequest) -> None:
    answer = admin.ask_controller(
        request, AlterUserScramCredentialsResponse, lambda answer: [result.error_code for result in answer.results]
    )
    errors = [
        f"user {result.user}: {error_text(result.error_code, result.error_message)}"
        for result in answer.results
        if result.error_code
    ]
    if errors:
        raise Failure("; ".join(errors))


def _remove(options: argparse.Namespace) -> int:
    with security_admin(options) as admin:
        users = describe_users(admin, options.users)
        names = list(dict.fromkeys(options.users))
        for name in names:
            if name not in users:
                raise _no_user(name, describe_users(admin))
        removed = {name: [kind for kind in mechanisms_of(options) if kind in users[name]] for name in names}
        for name, mechanisms in removed.items():
            if not mechanisms:
                raise Failure(f"user {name} logs in by {_names(users[name])} alone")
            needs_confirmation = not (options.dry_run or options.yes)
            if needs_confirmation and not confirmed(f"Remove user {name}, by {_names(mechanisms)}?"):
                raise Failure(f"user {name} was not removed")
        admin.connection.restart_timeout()
        deletions = [
            AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism.value)
            for name, mechanisms in removed.items()
            for mechanism in mechanisms
        ]
        if not options.dry_run:
            _alter(admin, AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[]))
    done = "Would remove" if options.dry_run else "Removed"
    with Results(options) as results:
        for name, mechanisms in removed.items():
            by: list[Json] = [mechanism.mechanism_name for mechanism in mechanisms]
            results.add(
                {"user": name, "mechanisms": by, "dry_run": options.dry_run},
                partial(print, f"{done} user {name}, by {_names(mechanisms)}."),
            )
    return 0


def _names(mechanisms: Iterable[ScramMechanism] | Sequence[ScramMechanism]) -> str:
    return " and ".join(mechanism.mechanism_name for mechanism in mechanisms)

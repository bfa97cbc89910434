"""leadline tokens: delegation tokens of any Kafka cluster. A token is a login that expires and can be passed on.

The HMAC of a token is its password. It is printed where it is asked for, and nowhere else: `renew` and `expire` take
the id of a token, and look its HMAC up.
"""

import argparse
import base64
import re
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leadline.admin.errors import Failure
from leadline.admin.formatting import age_text, moment_text
from leadline.admin.json_values import Json
from leadline.admin.times import duration_ms
from leadline.cli import COMMANDS
from leadline.cli.acls.acl_options import principal
from leadline.cli.options import Commands, add_command, add_dry_run_option, add_subcommands, add_yes_option
from leadline.cli.output import add_output_option, print_result, print_results
from leadline.cli.passwords import write_private
from leadline.cli.security_admin import SecurityAdmin, check, security_admin
from leadline.cli.terminal import TextStyles, confirmed, print_table
from leadline.config.properties import property_text
from leadline.config.settings import nearest
from leadline.security.client_properties import SecurityProperties
from leadline.security.principal import Principal, parse_principal
from leadline.security.scram_credentials import SCRAM_MECHANISMS
from leadline.security.secret import Secret
from leadline.wire.messages import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

CREATE = """
  leadline tokens create --lifetime 1d --out job.properties      a file to log in with
  leadline tokens create --renewer User:scheduler --lifetime 7d
  leadline tokens create --owner User:alice                  for another user, if you may
"""
LIST = """
  leadline tokens list                                       those that you may see
  leadline tokens list --owner User:alice --json
"""
RENEW = """
  leadline tokens renew Bw1QuMShQAaHT-qfoVdObA               for as long as the brokers give by default
  leadline tokens renew Bw1QuMShQAaHT-qfoVdObA --period 12h
"""
EXPIRE = """
  leadline tokens expire Bw1QuMShQAaHT-qfoVdObA              at once
  leadline tokens expire Bw1QuMShQAaHT-qfoVdObA --period 1h  in an hour
"""
TRUST = ("ssl.truststore.", "ssl.ca.", "ssl.endpoint.")
DEFAULT_MECHANISM = "SCRAM-SHA-512"
DEFAULT_PERIOD = -1  # to the broker: its own default; to expire: at once
_ID_WITH_DASH = re.compile(r"-[A-Za-z0-9_-]{21}$")
LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True, slots=True)
class ShownToken:
    id: str
    hmac: Secret
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    @property
    def hmac_text(self) -> str:
        """As a login takes it."""
        return base64.b64encode(self.hmac.reveal()).decode()


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    subcommands = add_subcommands(commands, "tokens", COMMANDS["tokens"].help)
    create = add_command(
        subcommands,
        "create",
        _create,
        help="create a token",
        usage="tokens create [options]",
        examples=CREATE,
        description="Create a token. Its id is a user name and its HMAC a password, for SCRAM with tokenauth=true.\n"
        "Connect with a password or a certificate: whoever logs in with a token cannot create another.",
    )
    create.add_argument("--owner", type=principal, metavar="User:NAME", help="owner of the token (default: you)")
    create.add_argument(
        "--renewer",
        type=principal,
        action="append",
        default=[],
        metavar="User:NAME",
        help="principal that may renew and expire it, besides the owner; repeatable",
    )
    create.add_argument(
        "--lifetime",
        type=duration_ms,
        metavar="TIME",
        help="maximum lifetime (default: that of the brokers)",
    )
    create.add_argument(
        "--mechanism",
        choices=list(SCRAM_MECHANISMS),
        metavar="NAME",
        help=f"mechanism in --out: {' or '.join(SCRAM_MECHANISMS)} (default: yours, or {DEFAULT_MECHANISM})",
    )
    create.add_argument(
        "--out", type=Path, metavar="FILE", help="write client properties with the token to a private file"
    )
    listing = add_command(subcommands, "list", _list, help="list tokens", usage="tokens list [options]", examples=LIST)
    listing.add_argument(
        "--owner",
        type=principal,
        action="append",
        default=[],
        metavar="User:NAME",
        help="only tokens of this owner; repeatable",
    )
    listing.add_argument("--show-hmac", action="store_true", help="show the HMACs, which are passwords")
    renew = add_command(
        subcommands, "renew", _renew, help="renew a token", usage="tokens renew ID [options]", examples=RENEW
    )
    expire = add_command(
        subcommands, "expire", _expire, help="end a token", usage="tokens expire ID [options]", examples=EXPIRE
    )
    add_yes_option(expire)
    for leaf, default in ((renew, "default: that of the brokers"), (expire, "default: at once")):
        leaf.add_argument("id", metavar="ID")
        leaf._negative_number_matcher = _ID_WITH_DASH  # so that it is a value, not an option
        leaf.add_argument(
            "--period", type=duration_ms, metavar="TIME", help=f"remaining lifetime, from now on ({default})"
        )
    for leaf in (create, renew, expire):
        add_dry_run_option(leaf)
        add_output_option(leaf)
    add_output_option(listing, "token")


# Requests


def describe_tokens(admin: SecurityAdmin, owners: Iterable[str] = ()) -> list[ShownToken]:
    named = [
        DescribeDelegationTokenRequest.DescribeDelegationTokenOwner(
            principal_type=principal.type, principal_name=principal.name
        )
        for principal in map(parse_principal, owners)
    ]
    answer = admin.ask(DescribeDelegationTokenRequest(owners=named or None), DescribeDelegationTokenResponse)
    check(answer.error_code, None)
    tokens = [
        ShownToken(
            token.token_id,
            Secret(bytes(token.hmac)),
            Principal(token.principal_type, token.principal_name),
            Principal(token.token_requester_principal_type, token.token_requester_principal_name),
            tuple(Principal(renewer.principal_type, renewer.principal_name) for renewer in token.renewers),
            token.issue_timestamp,
            token.expiry_timestamp,
            token.max_timestamp,
        )
        for token in answer.tokens
    ]
    return sorted(tokens, key=lambda token: (token.issue_ms, token.id))


def _token(admin: SecurityAdmin, id: str) -> ShownToken:
    tokens = {token.id: token for token in describe_tokens(admin)}
    if id not in tokens:
        raise Failure(f"there is no token {id} that you may see{nearest(id, tokens)}")
    return tokens[id]


# Commands


def _create(options: argparse.Namespace) -> int:
    owner = parse_principal(options.owner) if options.owner else None
    if options.dry_run:
        whose = f" for {owner}" if owner else ""
        life = f"at most {age_text(options.lifetime)}" if options.lifetime else "the lifetime of the brokers"
        text = f"Would create a token{whose}, {life}, renewed by {_names(options.renewer) or 'its owner alone'}."
        print_result(options, {"owner": options.owner, "renewers": options.renewer, "dry_run": True}, text)
        return 0
    if options.out is not None and options.out.exists():
        raise Failure(f"{options.out} exists: it is not overwritten")
    renewers = [
        CreateDelegationTokenRequest.CreatableRenewers(principal_type=principal.type, principal_name=principal.name)
        for principal in map(parse_principal, options.renewer)
    ]
    request = CreateDelegationTokenRequest(
        owner_principal_type=owner.type if owner else None,
        owner_principal_name=owner.name if owner else None,
        renewers=renewers,
        max_lifetime_ms=options.lifetime or DEFAULT_PERIOD,
    )
    with security_admin(options) as admin:
        answer = admin.ask(request, CreateDelegationTokenResponse)
        creators = admin.connection.security
    check(answer.error_code, None)
    token = ShownToken(
        answer.token_id,
        Secret(bytes(answer.hmac)),
        Principal(answer.principal_type, answer.principal_name),
        Principal(answer.token_requester_principal_type, answer.token_requester_principal_name),
        tuple(map(parse_principal, options.renewer)),
        answer.issue_timestamp_ms,
        answer.expiry_timestamp_ms,
        answer.max_timestamp_ms,
    )
    if options.out is not None:
        write_private(options.out, client_properties_of(token, creators, options.mechanism).encode())
    print_result(options, as_json(token, with_hmac=options.out is None), "\n".join(_created_lines(token, options.out)))
    return 0


def _created_lines(token: ShownToken, out: Path | None) -> list[str]:
    lines = [
        f"Created token {TextStyles(sys.stdout).bold(token.id)} of {token.owner}.",
        f"  expires  {moment_text(token.expiry_ms)}, unless it is renewed",
        f"  ends     {moment_text(token.max_ms)}",
        f"  hmac     {f'in {out}' if out else token.hmac_text}",
    ]
    return [*lines, f"Kafka's clients, Spark and `leadline pipeline` log in with {out}."] if out else lines


def client_properties_of(token: ShownToken, creators: SecurityProperties, mechanism: str | None = None) -> str:
    """Properties for Kafka's clients, with the creator's trust store but without the creator's certificate."""
    own = creators.mechanism if creators.mechanism in SCRAM_MECHANISMS else DEFAULT_MECHANISM
    shared = {name: value for name, value in creators.properties.items() if name.startswith(TRUST)}
    return (
        f"# delegation token of {token.owner}, until {moment_text(token.expiry_ms)}\n"
        + "".join(f"{name}={property_text(value)}\n" for name, value in shared.items())
        + f"security.protocol={creators.protocol if creators.protocol.startswith('SASL') else 'SASL_SSL'}\n"
        f"sasl.mechanism={mechanism or own}\n"
        f'sasl.jaas.config={LOGIN_MODULE} required username="{token.id}" password="{token.hmac_text}" '
        'tokenauth="true";\n'
    )


def _list(options: argparse.Namespace) -> int:
    with security_admin(options) as admin:
        tokens = describe_tokens(admin, options.owner)
    heads = ["TOKEN", "OWNER", "RENEWERS", "EXPIRES", "ENDS", *(["HMAC"] if options.show_hmac else [])]
    rows = [
        [
            token.id,
            str(token.owner),
            _names(token.renewers),
            _short(token.expiry_ms),
            _short(token.max_ms),
            *([token.hmac_text] if options.show_hmac else []),
        ]
        for token in tokens
    ]
    print_results(
        options,
        [as_json(token, with_hmac=options.show_hmac) for token in tokens],
        lambda: print_table(heads, rows) if rows else print("No tokens."),
    )
    return 0


def _short(at_ms: int) -> str:
    """in 23 h 59 min; expired."""
    left_ms = at_ms - time.time_ns() // 1_000_000
    return f"in {age_text(left_ms)}" if left_ms > 0 else "expired"


def as_json(token: ShownToken, *, with_hmac: bool) -> Json:
    shown: dict[str, Json] = {
        "token_id": token.id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issue_timestamp": token.issue_ms,
        "expiry_timestamp": token.expiry_ms,
        "max_timestamp": token.max_ms,
    }
    return {**shown, "hmac": token.hmac_text} if with_hmac else shown


def _names(principals: Iterable[object]) -> str:
    return ",".join(map(str, principals))


def _renew(options: argparse.Namespace) -> int:
    period_ms = DEFAULT_PERIOD if options.period is None else options.period
    with security_admin(options) as admin:
        token = _token(admin, options.id)
        if options.dry_run:
            until = "as the brokers do by default" if options.period is None else f"for {age_text(period_ms)}"
            text = f"Would renew token {token.id} {until}: it expires {_short(token.expiry_ms)} now."
            value: Json = {"token_id": token.id, "expiry_timestamp": token.expiry_ms, "dry_run": True}
            print_result(options, value, text)
            return 0
        request = RenewDelegationTokenRequest(hmac=token.hmac.reveal(), renew_period_ms=period_ms)
        answer = admin.ask(request, RenewDelegationTokenResponse)
        check(answer.error_code, None, f"token {token.id}")
    value = {"token_id": token.id, "expiry_timestamp": answer.expiry_timestamp_ms, "dry_run": False}
    print_result(options, value, f"Renewed token {token.id}: it expires {moment_text(answer.expiry_timestamp_ms)}.")
    return 0


def _expire(options: argparse.Namespace) -> int:
    period_ms = DEFAULT_PERIOD if options.period is None else options.period
    when = "at once" if options.period is None else f"in {age_text(period_ms)}"
    with security_admin(options) as admin:
        token = _token(admin, options.id)
        if options.dry_run:
            value: Json = {"token_id": token.id, "expiry_timestamp": token.expiry_ms, "dry_run": True}
            print_result(options, value, f"Would end token {token.id} of {token.owner} {when}.")
            return 0
        if not options.yes and not confirmed(f"End token {token.id} of {token.owner} {when}?"):
            raise Failure(f"token {token.id} was not ended")
        admin.connection.restart_timeout()
        request = ExpireDelegationTokenRequest(hmac=token.hmac.reveal(), expiry_time_period_ms=period_ms)
        answer = admin.ask(request, ExpireDelegationTokenResponse)
        check(answer.error_code, None, f"token {token.id}")
    value = {"token_id": token.id, "expiry_timestamp": answer.expiry_timestamp_ms, "dry_run": False}
    text = f"Token {token.id} ended." if options.period is None else f"Token {token.id} ends {when}."
    print_result(options, value, text)
    return 0

"""leadline acls why: which rule decides whether a principal may do something, and what cannot be seen from here."""

import argparse
import sys
from collections.abc import Iterator

from leadline.admin.errors import Failure
from leadline.admin.json_values import Json
from leadline.cli.acls.acl_options import add_resource_options, host, operation, principal, resources
from leadline.cli.acls.acl_requests import NO_AUTHORIZER, NoAuthorizer, describe_acls
from leadline.cli.acls.acl_text import (
    acl_json,
    add_command_text,
    binding_text,
    operation_text,
    resource_text,
    type_text,
)
from leadline.cli.acls.authorizer_settings import ALLOW_EVERYONE, AuthorizerSettings, authorizer_settings
from leadline.cli.options import Commands, add_command
from leadline.cli.output import add_output_option, print_result
from leadline.cli.security_admin import security_admin
from leadline.cli.terminal import TextStyles
from leadline.config.values import InvalidSetting
from leadline.security.acls import (
    SUPPORTED_OPERATIONS,
    WILDCARD_HOST,
    WILDCARD_PRINCIPAL,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from leadline.security.authorizer import IMPLIED_BY, AclDecision, Reason
from leadline.security.principal import Principal, parse_principal, parse_super_users

DESCRIPTION = """
Name the rule that decides. The ACLs come from the brokers; the decision is made
here, as a broker makes it: first super users, then deny, then allow. Brokers hide
super.users; give them with --super-users to count them in.
"""
WHY = """
  leadline acls why --principal User:alice --operation read --topic orders
  leadline acls why --principal User:alice --operation write --topic orders --host 10.0.0.7
  leadline acls why --principal User:ben --operation create --cluster --super-users User:admin
"""
ANY_HOST = "any host"


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "why",
        _why,
        help="name the rule that allows or denies something",
        usage="acls why --principal User:NAME --operation NAME RESOURCE [options]",
        examples=WHY,
        description=DESCRIPTION.strip(),
    )
    parser.add_argument("--principal", type=principal, required=True, metavar="User:NAME", help="principal")
    parser.add_argument("--operation", type=operation, required=True, metavar="NAME", help="operation")
    parser.add_argument(
        "--host", type=host, metavar="ADDRESS", help="client address (default: a host that no ACL names)"
    )
    parser.add_argument("--super-users", metavar="LIST", help="super.users of the brokers: User:a;User:b")
    add_output_option(parser)
    add_resource_options(parser, several=False)


def _why(options: argparse.Namespace) -> int:
    chosen = resources(options)
    if len(chosen) != 1:
        raise Failure(f"one resource is needed, not {len(chosen)}: --topic NAME, --group NAME, --cluster, ...")
    ((kind, name),) = chosen
    if options.operation not in SUPPORTED_OPERATIONS[kind]:
        names = ", ".join(map(operation_text, SUPPORTED_OPERATIONS[kind]))
        raise Failure(f"{operation_text(options.operation)} means nothing on a {type_text(kind)}: it has {names}")
    principal, where = parse_principal(options.principal), options.host or "\0"
    with security_admin(options) as admin:
        settings = _with_super_users(authorizer_settings(admin), options.super_users)
        filter = AclBindingFilter(ResourcePatternFilter(kind, name, PatternType.MATCH))
        try:
            bindings = describe_acls(admin, filter)
        except NoAuthorizer:
            print_result(options, {"allowed": True, "reason": NO_AUTHORIZER}, NO_AUTHORIZER)
            return 0
    decision = settings.authorizer(bindings).decide(principal, where, options.operation, kind, name)
    spots = list(_blind_spots(settings, decision))
    question = Question(principal, where, options.operation, kind, name)
    text = "\n".join(text_lines(question, decision, bindings, spots, TextStyles(sys.stdout)))
    print_result(options, as_json(question, decision, spots), text)
    return 0


def _with_super_users(settings: AuthorizerSettings, text: str | None) -> AuthorizerSettings:
    if text is None:
        return settings
    try:
        super_users = parse_super_users(text)
    except InvalidSetting as error:
        raise Failure(f"--super-users: {error}") from None
    return AuthorizerSettings(super_users, settings.allow_everyone)


class Question:
    """Whether a principal may do something."""

    def __init__(
        self, principal: Principal, where: str, operation: AclOperation, kind: ResourceType, name: str
    ) -> None:
        self.principal, self.where, self.operation, self.kind, self.name = principal, where, operation, kind, name

    @property
    def host_text(self) -> str:
        return ANY_HOST if self.where == "\0" else self.where

    def concerns(self, binding: AclBinding) -> bool:
        """Whether an ACL names this client, for any operation."""
        entry = binding.entry
        return entry.principal in (str(self.principal), WILDCARD_PRINCIPAL) and entry.host in (
            self.where,
            WILDCARD_HOST,
        )


def _blind_spots(settings: AuthorizerSettings, decision: AclDecision) -> Iterator[str]:
    """The hidden settings that could change the decision."""
    for spot in settings.blind_spots():
        is_idle = spot.startswith(ALLOW_EVERYONE) and decision.reason is not Reason.NO_ACL_FOUND
        if not (is_idle or (decision.allowed and decision.reason is Reason.ALLOWED_BY_ACL)):
            yield spot


def text_lines(
    question: Question, decision: AclDecision, bindings: list[AclBinding], spots: list[str], paint: TextStyles
) -> Iterator[str]:
    verb = "may" if decision.allowed else "may not"
    what = f"{operation_text(question.operation)} on {resource_text(question.kind, question.name)}"
    answer = f"{question.principal} {verb} {what} from {question.host_text}"
    yield (paint.bold(answer) if decision.allowed else paint.red(answer))
    yield f"  because  {reason_text(question, decision)}"
    if decision.binding is not None:
        yield f"  rule     {paint.escape(binding_text(decision.binding))}"
    elif not decision.allowed:
        others = [binding for binding in bindings if question.concerns(binding)]
        for at, binding in enumerate(others):
            yield f"  {'' if at else 'but':8} {paint.escape(binding_text(binding))}"
        needed = AccessControlEntry(str(question.principal), WILDCARD_HOST, question.operation, AclPermission.ALLOW)
        command = add_command_text(AclBinding(ResourcePattern(question.kind, question.name), needed))
        yield f"  to allow it: {command}"
    for spot in spots:
        yield f"  not seen: {spot}"


def reason_text(question: Question, decision: AclDecision) -> str:
    if decision.reason is Reason.ALLOWED_BY_ACL and decision.binding is not None:
        allowed = decision.binding.entry.operation
        if allowed in IMPLIED_BY.get(question.operation, ()):
            return f"an ACL allows {operation_text(allowed)}, which includes {operation_text(question.operation)}"
    if decision.reason is Reason.NO_ACL_FOUND:
        setting = f"{ALLOW_EVERYONE} is {'true' if decision.allowed else 'false'}"
        return f"no ACL applies, and {setting}"
    return str(decision.reason.value)


def as_json(question: Question, decision: AclDecision, spots: list[str]) -> Json:
    return {
        "principal": str(question.principal),
        "host": None if question.where == "\0" else question.where,
        "operation": question.operation.name,
        "resource_type": question.kind.name,
        "name": question.name,
        "allowed": decision.allowed,
        "reason": decision.reason.name,
        "rule": None if decision.binding is None else acl_json(decision.binding),
        "not_seen": spots,
    }

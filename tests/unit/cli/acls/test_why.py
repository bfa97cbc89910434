"""Which rule decides, in words."""

import io

import pytest

from leadline.cli.acls.authorizer_settings import AuthorizerSettings
from leadline.cli.acls.why import Question, as_json, text_lines
from leadline.cli.acls.why import _blind_spots as blind_spots
from leadline.cli.terminal import TextStyles
from leadline.security.acls import AclBinding, AclOperation, ResourceType
from leadline.security.principal import Principal
from tests.unit.cli.acls.test_acl_effect import ALL, DESCRIBE, NO_SETTINGS, READ, rule

ALICE = Principal("User", "alice")
HIDDEN = AuthorizerSettings(None, None)


def why(
    bindings: list[AclBinding], operation: AclOperation = READ, settings: AuthorizerSettings = NO_SETTINGS
) -> list[str]:
    question = Question(ALICE, "\0", operation, ResourceType.TOPIC, "orders")
    decision = settings.authorizer(bindings).decide(ALICE, "\0", operation, ResourceType.TOPIC, "orders")
    spots = list(blind_spots(settings, decision))
    return list(text_lines(question, decision, bindings, spots, TextStyles(io.StringIO())))


def test_the_rule_that_allows_is_named() -> None:
    assert why([rule("ord", "User:*", prefixed=True)]) == [
        "User:alice may read on topic orders from any host",
        "  because  an ACL allows it",
        "  rule     User:* may read on topics ord... from any host",
    ]


def test_an_operation_that_another_includes_says_so() -> None:
    assert why([rule("orders", "User:alice")], DESCRIBE)[1:] == [
        "  because  an ACL allows read, which includes describe",
        "  rule     User:alice may read on topic orders from any host",
    ]


def test_a_denial_counts_before_what_is_allowed() -> None:
    lines = why([rule("orders", "User:alice"), rule("*", "User:alice", ALL, deny=True)])
    assert lines == [
        "User:alice may not read on topic orders from any host",
        "  because  an ACL denies it",
        "  rule     User:alice may do nothing on all topics from any host",
    ]


def test_without_a_rule_it_shows_what_there_is_and_what_would_help() -> None:
    lines = why([rule("orders", "User:ben"), rule("orders", "User:alice", DESCRIBE)])
    assert lines == [
        "User:alice may not read on topic orders from any host",
        "  because  the resource has ACLs, and none of them allows it",
        "  but      User:alice may describe on topic orders from any host",
        "  to allow it: leadline acls add --allow-principal User:alice --operation read --topic orders",
    ]


@pytest.mark.parametrize(
    ("bindings", "count"), [([], 2), ([rule("orders", "User:ben")], 1), ([rule("orders", "User:alice")], 0)]
)
def test_what_is_hidden_is_named_where_it_could_decide_otherwise(bindings: list[AclBinding], count: int) -> None:
    spots = [line for line in why(bindings, settings=HIDDEN) if line.startswith("  not seen: ")]
    assert len(spots) == count


def test_super_users_and_open_topics_need_no_rule() -> None:
    assert why([], settings=AuthorizerSettings(frozenset({ALICE})))[1] == "  because  the principal is a super user"
    everyone = why([], settings=AuthorizerSettings(allow_everyone=True))
    assert everyone[1] == "  because  no ACL applies, and allow.everyone.if.no.acl.found is true"


def test_json_has_the_rule() -> None:
    question = Question(ALICE, "10.0.0.7", READ, ResourceType.TOPIC, "orders")
    decision = (
        AuthorizerSettings()
        .authorizer([rule("orders", "User:alice")])
        .decide(ALICE, "10.0.0.7", READ, ResourceType.TOPIC, "orders")
    )
    shown = as_json(question, decision, [])
    assert isinstance(shown, dict)
    assert (shown["allowed"], shown["reason"], shown["host"]) == (True, "ALLOWED_BY_ACL", "10.0.0.7")
    assert isinstance(shown["rule"], dict)
    assert shown["rule"]["operation"] == "READ"

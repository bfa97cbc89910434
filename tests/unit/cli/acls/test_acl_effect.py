"""What ACLs would change, before they are added or removed."""

from leadline.cli.acls.acl_effect import ANY_OTHER_HOST, ANYONE_ELSE, changed_decisions, merged
from leadline.cli.acls.authorizer_settings import AuthorizerSettings
from leadline.security.acls import (
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

READ, DESCRIBE, ALL = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC = ResourceType.TOPIC
NO_SETTINGS = AuthorizerSettings()


def rule(
    name: str,
    user: str,
    operation: AclOperation = READ,
    *,
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
) -> AclBinding:
    pattern = ResourcePattern(TOPIC, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return AclBinding(pattern, AccessControlEntry(user, host, operation, permission))


def changes(
    before: list[AclBinding],
    after: list[AclBinding],
    names: tuple[str, ...] = (),
    settings: AuthorizerSettings = NO_SETTINGS,
) -> list[tuple[str, str, str, bool, tuple[AclOperation, ...]]]:
    topics = [(TOPIC, name) for name in names]
    return [
        (
            change.name,
            "else" if change.principal == ANYONE_ELSE else str(change.principal),
            "any" if change.host == ANY_OTHER_HOST else change.host,
            change.allowed,
            operations,
        )
        for change, operations in merged(changed_decisions(before, after, topics, settings.authorizer))
    ]


def test_a_new_rule_allows_and_what_it_includes() -> None:
    assert changes([], [rule("a", "User:x")]) == [("a", "User:x", "any", True, (READ, DESCRIBE))]


def test_a_prefix_applies_to_existing_topics() -> None:
    after = [rule("a-", "User:x", prefixed=True)]
    assert [change[0] for change in changes([], after, ("a-1", "a-2", "b"))] == ["a-", "a-1", "a-2"]


def test_a_rule_that_another_covers_changes_nothing() -> None:
    everything = rule("*", "User:x", ALL)
    assert changes([everything], [everything, rule("a", "User:x")]) == []


def test_the_first_rule_of_a_topic_shuts_everyone_else_out() -> None:
    settings = AuthorizerSettings(allow_everyone=True)
    after = changes([], [rule("a", "User:x", ALL)], settings=settings)
    assert {(user, allowed) for _, user, _, allowed, _ in after} == {("else", False)}


def test_a_denial_from_one_host_shows_that_host_alone() -> None:
    before = [rule("a", "User:x")]
    after = [*before, rule("a", "User:*", ALL, deny=True, host="10.0.0.7")]
    assert changes(before, after) == [("a", "User:x", "10.0.0.7", False, (READ, DESCRIBE))]


def test_a_removal_shows_who_loses_what() -> None:
    before = [rule("a", "User:x"), rule("a", "User:y", ALL)]
    assert changes(before, before[1:]) == [("a", "User:x", "any", False, (READ, DESCRIBE))]

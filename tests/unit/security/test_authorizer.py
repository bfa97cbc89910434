"""The decision of the authorizer, rule by rule, with the reason that it gives."""

import pytest

from leadline.security.acls import (
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
from leadline.security.authorizer import MEMO_SIZE, AclDecision, Authorizer, Reason
from leadline.security.principal import Principal

ALICE, BOB, ROOT = Principal("User", "alice"), Principal("User", "bob"), Principal("User", "root")
HOST = "127.0.0.1"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


def allow(operation: AclOperation, principal: str = "User:alice", host: str = "*") -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, AclPermission.ALLOW)


def deny(operation: AclOperation, principal: str = "User:alice", host: str = "*") -> AccessControlEntry:
    return AccessControlEntry(principal, host, operation, AclPermission.DENY)


def authorizer(*rules: tuple[str, PatternType, AccessControlEntry], allow_everyone: bool = False) -> Authorizer:
    """One of topics."""
    made = Authorizer([ROOT], allow_everyone)
    for name, kind, entry in rules:
        pattern = ResourcePattern(TOPIC, name, kind)
        made.put(pattern, (*made.entries(pattern), entry))
    return made


def decide(
    of: Authorizer, operation: AclOperation, topic: str = "orders", principal: Principal = ALICE, host: str = HOST
) -> AclDecision:
    """With its reason; the quick answers must be the same."""
    decision = of.decide(principal, host, operation, TOPIC, topic)
    client = of.client(principal, host)
    assert decision.allowed == client.allows(operation, TOPIC, topic) == client.allows(operation, TOPIC, topic)
    return decision


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    denied = authorizer(("*", LITERAL, deny(AclOperation.ALL, "User:*")))
    assert decide(denied, WRITE, principal=ROOT) == AclDecision(True, Reason.SUPER_USER)
    assert not decide(denied, WRITE, principal=Principal("Group", "root")).allowed
    assert not decide(denied, WRITE, principal=Principal("User", "Root")).allowed


@pytest.mark.parametrize("everyone", [True, False])
def test_where_no_acl_applies_the_setting_decides(everyone: bool) -> None:
    empty = authorizer(("other", LITERAL, allow(READ)), allow_everyone=everyone)
    assert decide(empty, READ) == AclDecision(everyone, Reason.NO_ACL_FOUND)


def test_one_acl_for_another_principal_denies_everyone_else() -> None:
    of_bob = authorizer(("orders", LITERAL, allow(READ, "User:bob")), allow_everyone=True)
    assert decide(of_bob, READ) == AclDecision(False, Reason.NO_ACL_ALLOWS)
    assert decide(of_bob, READ, "elsewhere").allowed


@pytest.mark.parametrize(
    ("name", "kind"), [("orders", LITERAL), ("*", LITERAL), ("ord", PREFIXED), ("orders", PREFIXED)]
)
def test_an_acl_of_each_pattern_that_applies_allows_and_denies(name: str, kind: PatternType) -> None:
    pattern = ResourcePattern(TOPIC, name, kind)
    allowing = authorizer((name, kind, allow(READ)))
    assert decide(allowing, READ) == AclDecision(True, Reason.ALLOWED_BY_ACL, AclBinding(pattern, allow(READ)))
    assert decide(allowing, WRITE) == AclDecision(False, Reason.NO_ACL_ALLOWS)
    denying = authorizer(
        (name, kind, deny(READ)), ("*", LITERAL, allow(AclOperation.ALL)), ("or", PREFIXED, allow(READ))
    )
    assert decide(denying, READ) == AclDecision(False, Reason.DENIED_BY_ACL, AclBinding(pattern, deny(READ)))
    assert decide(denying, WRITE).allowed


@pytest.mark.parametrize(
    ("name", "kind"), [("order", LITERAL), ("*", PREFIXED), ("orders-", PREFIXED), ("Orders", LITERAL)]
)
def test_an_acl_of_a_pattern_that_does_not_apply_does_nothing(name: str, kind: PatternType) -> None:
    assert decide(authorizer((name, kind, allow(AclOperation.ALL))), READ) == AclDecision(False, Reason.NO_ACL_FOUND)


@pytest.mark.parametrize(
    ("principal", "host", "allowed"),
    [
        ("User:alice", "*", True),
        ("User:alice", HOST, True),
        ("User:*", "*", True),
        ("User:*", HOST, True),
        ("User:alice", "127.0.0.2", False),
        ("User:*", "127.0.0.2", False),
        ("User:bob", "*", False),
        ("User:Alice", "*", False),
        ("Group:alice", "*", False),
        ("Group:*", "*", False),
        ("*:*", "*", False),
    ],
)
def test_principals_and_hosts_are_equal_or_the_wildcard(principal: str, host: str, allowed: bool) -> None:
    assert decide(authorizer(("orders", LITERAL, allow(READ, principal, host))), READ).allowed is allowed


def test_a_client_called_like_the_wildcard_is_one_client() -> None:
    star = authorizer(("orders", LITERAL, allow(READ, "User:alice")))
    assert not decide(star, READ, principal=Principal("User", "*")).allowed


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALL])
def test_to_be_allowed_to_use_implies_describe(operation: AclOperation) -> None:
    assert decide(authorizer(("orders", LITERAL, allow(operation))), DESCRIBE).allowed


@pytest.mark.parametrize("operation", [AclOperation.CREATE, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS])
def test_nothing_else_implies_describe(operation: AclOperation) -> None:
    assert not decide(authorizer(("orders", LITERAL, allow(operation))), DESCRIBE).allowed


def test_altering_configs_implies_describing_them_and_not_the_reverse() -> None:
    assert decide(
        authorizer(("t", LITERAL, allow(AclOperation.ALTER_CONFIGS))), AclOperation.DESCRIBE_CONFIGS, "t"
    ).allowed
    assert not decide(authorizer(("t", LITERAL, allow(DESCRIBE))), READ, "t").allowed
    assert not decide(authorizer(("t", LITERAL, allow(AclOperation.ALTER))), AclOperation.DESCRIBE_CONFIGS, "t").allowed


def test_to_deny_reading_does_not_deny_describing() -> None:
    rules = authorizer(("orders", LITERAL, deny(READ)), ("orders", LITERAL, allow(WRITE)))
    assert decide(rules, DESCRIBE).allowed
    assert not decide(rules, READ).allowed


def test_all_matches_every_operation_in_both_permissions() -> None:
    for operation in (READ, AclOperation.CREATE, AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_TOKENS):
        assert decide(authorizer(("orders", LITERAL, allow(AclOperation.ALL))), operation).allowed
        denied = authorizer(("orders", LITERAL, allow(operation)), ("orders", LITERAL, deny(AclOperation.ALL)))
        assert not decide(denied, operation).allowed


def test_unknown_operations_and_permissions_match_nothing_but_are_acls() -> None:
    unknown = AccessControlEntry("User:alice", "*", AclOperation.UNKNOWN, AclPermission.ALLOW)
    rules = authorizer(("orders", LITERAL, unknown), allow_everyone=True)
    assert decide(rules, READ) == AclDecision(False, Reason.NO_ACL_ALLOWS)
    neither = AccessControlEntry("User:alice", "*", READ, AclPermission.UNKNOWN)
    assert decide(authorizer(("orders", LITERAL, neither)), READ) == AclDecision(False, Reason.NO_ACL_ALLOWS)


def test_a_type_of_resources_has_its_own_acls() -> None:
    of_topics = authorizer(("orders", LITERAL, allow(READ)))
    assert not of_topics.decide(ALICE, HOST, READ, GROUP, "orders").allowed


def test_the_version_moves_with_each_change_and_only_then() -> None:
    rules = authorizer()
    pattern = ResourcePattern(TOPIC, "orders")
    rules.put(pattern, [])
    assert rules.version == 0
    rules.put(pattern, [allow(READ), allow(WRITE)])
    assert rules.version == 1
    rules.put(pattern, [allow(WRITE), allow(READ), allow(READ)])
    assert rules.version == 1
    rules.put(pattern, [allow(READ)])
    assert rules.version == 2


def test_a_cached_decision_is_made_again_once_an_acl_changes() -> None:
    rules = authorizer(("orders", LITERAL, allow(READ)))
    client = rules.client(ALICE, HOST)
    assert client.allows(READ, TOPIC, "orders")
    assert client.allows_any(READ, TOPIC)
    rules.put(ResourcePattern(TOPIC, "orders"), [])
    assert not client.allows(READ, TOPIC, "orders")
    assert not client.allows_any(READ, TOPIC)
    assert client.version == rules.version


def test_connections_of_one_principal_from_one_host_share_their_decisions() -> None:
    rules = authorizer()
    client = rules.client(ALICE, HOST)
    assert rules.client(Principal("User", "alice"), HOST) is client
    assert rules.client(ALICE, "127.0.0.2") is not client
    assert rules.client(BOB, HOST) is not client


def test_the_memo_of_a_client_is_bounded() -> None:
    client = authorizer().client(ALICE, HOST)
    for number in range(MEMO_SIZE + 10):
        client.allows(READ, TOPIC, f"t{number}")
    assert len(client._memo) <= MEMO_SIZE


def test_a_prefix_that_is_gone_no_longer_applies() -> None:
    rules = authorizer(("ord", PREFIXED, allow(READ)), ("ode", PREFIXED, allow(READ)))
    rules.put(ResourcePattern(TOPIC, "ord", PREFIXED), [])
    assert not decide(rules, READ).allowed
    assert decide(rules, READ, "odessa").allowed
    rules.put(ResourcePattern(TOPIC, "ode", PREFIXED), [])
    assert not decide(rules, READ, "odessa").allowed
    assert rules.patterns() == []


def test_authorized_operations_are_the_bits_of_what_is_allowed() -> None:
    rules = authorizer(("orders", LITERAL, allow(READ)), ("orders", LITERAL, deny(AclOperation.DELETE)))
    assert rules.client(ALICE, HOST).authorized_operations(TOPIC, "orders") == 1 << READ | 1 << DESCRIBE
    assert rules.client(ROOT, HOST).authorized_operations(TOPIC, "orders") == 3576
    assert rules.client(ROOT, HOST).authorized_operations(GROUP, "g") == 328
    assert rules.client(ROOT, HOST).authorized_operations(CLUSTER, "kafka-cluster") == 8096
    assert rules.client(BOB, HOST).authorized_operations(TOPIC, "orders") == 0


def test_bindings_are_those_that_a_filter_matches() -> None:
    rules = authorizer(
        ("orders", LITERAL, allow(READ)), ("ord", PREFIXED, deny(WRITE)), ("*", LITERAL, allow(DESCRIBE))
    )

    def names(filter: ResourcePatternFilter) -> set[str]:
        return {binding.pattern.name for binding in rules.bindings(AclBindingFilter(filter))}

    assert names(ResourcePatternFilter()) == {"orders", "ord", "*"}
    assert names(ResourcePatternFilter(TOPIC, "orders")) == {"orders"}
    assert names(ResourcePatternFilter(TOPIC, "orders", PatternType.MATCH)) == {"orders", "ord", "*"}
    assert names(ResourcePatternFilter(GROUP)) == names(ResourcePatternFilter(TOPIC, "x")) == set()


# Whether there is any topic to write to: InitProducerId without a transactional id


@pytest.mark.parametrize(
    ("rules", "everyone", "allowed"),
    [
        ([], False, False),
        ([], True, True),
        ([("orders", LITERAL, allow(WRITE))], False, True),
        ([("ord", PREFIXED, allow(WRITE))], False, True),
        ([("*", LITERAL, allow(AclOperation.ALL, "User:*"))], False, True),
        ([("orders", LITERAL, allow(READ))], False, False),
        ([("orders", LITERAL, allow(WRITE, "User:bob"))], False, False),
        ([("orders", LITERAL, allow(WRITE, host="127.0.0.9"))], False, False),
        ([("orders", LITERAL, allow(WRITE, "User:bob"))], True, True),
        ([("orders", LITERAL, deny(WRITE))], True, True),
        ([("*", LITERAL, deny(WRITE))], True, False),
        ([("*", LITERAL, allow(WRITE)), ("*", LITERAL, deny(AclOperation.ALL, "User:*"))], False, False),
        ([("orders", LITERAL, allow(WRITE)), ("orders", LITERAL, deny(WRITE))], False, False),
        ([("orders", LITERAL, allow(WRITE)), ("ord", PREFIXED, deny(WRITE))], False, False),
        ([("orders", LITERAL, allow(WRITE)), ("orders2", PREFIXED, deny(WRITE))], False, True),
        ([("orders", PREFIXED, allow(WRITE)), ("ord", PREFIXED, deny(WRITE))], False, False),
        ([("orders", PREFIXED, allow(WRITE)), ("orders", PREFIXED, deny(WRITE))], False, False),
        ([("orders", PREFIXED, allow(WRITE)), ("orders", LITERAL, deny(WRITE))], False, True),
        ([("ord", PREFIXED, allow(WRITE)), ("orders", PREFIXED, deny(WRITE))], False, True),
        ([("*", LITERAL, allow(WRITE)), ("o", PREFIXED, deny(WRITE)), ("p", LITERAL, deny(WRITE))], False, True),
        ([("a", LITERAL, allow(WRITE)), ("b", LITERAL, allow(WRITE)), ("a", LITERAL, deny(WRITE))], False, True),
        ([("orders", LITERAL, allow(WRITE)), ("orders", LITERAL, deny(READ))], False, True),
    ],
)
def test_any_resource_of_a_type_as_kafka_decides_it(
    rules: list[tuple[str, PatternType, AccessControlEntry]], everyone: bool, allowed: bool
) -> None:
    made = authorizer(*rules, allow_everyone=everyone)
    assert made.client(ALICE, HOST).allows_any(WRITE, TOPIC) is allowed
    assert made.client(ROOT, HOST).allows_any(WRITE, TOPIC)


def test_removing_one_of_several_acls_leaves_the_others_in_force() -> None:
    """CVE-2024-27309."""
    three = (allow(READ), allow(WRITE), deny(WRITE, host="127.0.0.9"))
    pattern = ResourcePattern(TOPIC, "orders")
    for removed in three:
        rules = authorizer()
        rules.put(pattern, three)
        rules.put(pattern, [entry for entry in three if entry != removed])
        assert decide(rules, READ).allowed is (removed != three[0])
        assert decide(rules, WRITE).allowed is (removed != three[1])
        assert decide(rules, WRITE, host="127.0.0.9").allowed is (removed == three[2])

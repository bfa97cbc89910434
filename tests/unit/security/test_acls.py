"""ACLs: codes, names, patterns, filters, and what cannot be created."""

import pytest

from leadline.errors import InvalidRequest, UnknownServerError, WireError
from leadline.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    check_creation,
)

ENTRY = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")


def test_codes_are_kafkas() -> None:
    operations = "UNKNOWN ANY ALL READ WRITE CREATE DELETE ALTER DESCRIBE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS"
    operations += " IDEMPOTENT_WRITE CREATE_TOKENS DESCRIBE_TOKENS"
    assert [operation.name for operation in AclOperation] == operations.split()
    types = "UNKNOWN ANY TOPIC GROUP CLUSTER TRANSACTIONAL_ID DELEGATION_TOKEN USER"
    assert [kind.name for kind in ResourceType] == types.split()
    assert [kind.name for kind in PatternType] == "UNKNOWN ANY MATCH LITERAL PREFIXED".split()
    assert [kind.name for kind in AclPermission] == "UNKNOWN ANY DENY ALLOW".split()
    assert [int(operation) for operation in AclOperation] == list(range(15))


@pytest.mark.parametrize("code", [15, 99, -1])
def test_a_code_without_a_meaning_is_unknown(code: int) -> None:
    assert AclOperation(code) is AclOperation.UNKNOWN
    assert ResourceType(code) is ResourceType.UNKNOWN


@pytest.mark.parametrize(
    ("text", "operation"),
    [
        ("ClusterAction", AclOperation.CLUSTER_ACTION),
        ("clusteraction", AclOperation.CLUSTER_ACTION),
        ("CLUSTERACTION", AclOperation.CLUSTER_ACTION),
        ("READ", AclOperation.READ),
        ("CLUSTER_ACTION", AclOperation.UNKNOWN),
        ("Fly", AclOperation.UNKNOWN),
        ("", AclOperation.UNKNOWN),
    ],
)
def test_a_name_in_a_node_is_read_in_any_case_without_underscores(text: str, operation: AclOperation) -> None:
    assert AclOperation.named(text) is operation


@pytest.mark.parametrize("text", ["TransactionalId", "transactional_id", "transactional-id", "TRANSACTIONAL_ID"])
def test_people_may_spell_a_name_as_they_like(text: str) -> None:
    assert ResourceType.spelled(text) is ResourceType.TRANSACTIONAL_ID


def test_a_name_that_nothing_has_is_refused_with_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"'fly' is not one of .*Read, Write"):
        AclOperation.spelled("fly")


def test_codes_of_several_kinds_are_hashed_as_integers() -> None:
    assert hash(AclOperation.READ) == hash(3)


@pytest.mark.parametrize(
    ("resource_type", "bits"), [(ResourceType.TOPIC, 3576), (ResourceType.GROUP, 328), (ResourceType.CLUSTER, 8096)]
)
def test_supported_operations_are_those_that_kafka_reports(resource_type: ResourceType, bits: int) -> None:
    assert sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type]) == bits


@pytest.mark.parametrize(
    ("pattern", "kind", "name", "covered"),
    [
        ("orders", PatternType.LITERAL, "orders", True),
        ("orders", PatternType.LITERAL, "orders2", False),
        ("*", PatternType.LITERAL, "orders", True),
        ("ord", PatternType.PREFIXED, "orders", True),
        ("orders", PatternType.PREFIXED, "orders", True),
        ("orders2", PatternType.PREFIXED, "orders", False),
        ("*", PatternType.PREFIXED, "orders", False),
        ("*", PatternType.PREFIXED, "*orders", True),
    ],
)
def test_a_pattern_covers_its_name_its_prefix_or_everything(
    pattern: str, kind: PatternType, name: str, covered: bool
) -> None:
    assert ResourcePattern(ResourceType.TOPIC, pattern, kind).covers(name) is covered


LITERAL, PREFIXED, ALL_TOPICS, STAR_PREFIX, GROUP = PATTERNS = (
    ResourcePattern(ResourceType.TOPIC, "orders", PatternType.LITERAL),
    ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED),
    ResourcePattern(ResourceType.TOPIC, "*", PatternType.LITERAL),
    ResourcePattern(ResourceType.TOPIC, "*", PatternType.PREFIXED),
    ResourcePattern(ResourceType.GROUP, "orders", PatternType.LITERAL),
)
TOPICS = ResourceType.TOPIC


@pytest.mark.parametrize(
    ("filter", "matched"),
    [
        (ResourcePatternFilter(), PATTERNS),
        (ResourcePatternFilter(TOPICS), PATTERNS[:4]),
        (ResourcePatternFilter(name="orders"), (LITERAL, GROUP)),
        (ResourcePatternFilter(TOPICS, "orders"), (LITERAL,)),
        (ResourcePatternFilter(TOPICS, "*"), (ALL_TOPICS, STAR_PREFIX)),
        (ResourcePatternFilter(TOPICS, "*", PatternType.LITERAL), (ALL_TOPICS,)),
        (ResourcePatternFilter(TOPICS, "ord", PatternType.LITERAL), ()),
        (ResourcePatternFilter(TOPICS, "ord", PatternType.PREFIXED), (PREFIXED,)),
        (ResourcePatternFilter(TOPICS, "orders", PatternType.PREFIXED), ()),
        (ResourcePatternFilter(TOPICS, "orders", PatternType.MATCH), (LITERAL, PREFIXED, ALL_TOPICS)),
        (ResourcePatternFilter(TOPICS, "or", PatternType.MATCH), (ALL_TOPICS,)),
        (ResourcePatternFilter(TOPICS, "*", PatternType.MATCH), (ALL_TOPICS, STAR_PREFIX)),
        (ResourcePatternFilter(TOPICS, None, PatternType.MATCH), PATTERNS[:4]),
        (ResourcePatternFilter(TOPICS, None, PatternType.PREFIXED), (PREFIXED, STAR_PREFIX)),
    ],
)
def test_a_pattern_filter_matches_as_kafkas(
    filter: ResourcePatternFilter, matched: tuple[ResourcePattern, ...]
) -> None:
    assert tuple(pattern for pattern in PATTERNS if filter.matches(pattern)) == matched


@pytest.mark.parametrize(
    ("filter", "matches"),
    [
        (AccessControlEntryFilter(), True),
        (AccessControlEntryFilter(principal="User:alice"), True),
        (AccessControlEntryFilter(principal="User:*"), False),
        (AccessControlEntryFilter(host="*"), True),
        (AccessControlEntryFilter(host="127.0.0.1"), False),
        (AccessControlEntryFilter(operation=AclOperation.READ), True),
        (AccessControlEntryFilter(operation=AclOperation.ALL), False),
        (AccessControlEntryFilter(permission=AclPermission.DENY), False),
    ],
)
def test_an_entry_filter_compares_each_field_that_it_has(filter: AccessControlEntryFilter, matches: bool) -> None:
    assert filter.matches(ENTRY) is matches
    assert AclBindingFilter(entry=filter).matches(AclBinding(TOPIC, ENTRY)) is matches


def test_a_filter_that_names_its_patterns_says_which() -> None:
    assert ResourcePatternFilter(TOPICS, "orders", PatternType.LITERAL).definite_patterns() == (LITERAL,)
    assert len(ResourcePatternFilter(TOPICS, "orders").definite_patterns()) == 2
    assert ResourcePatternFilter(TOPICS, "orders", PatternType.MATCH).definite_patterns() == ()
    assert ResourcePatternFilter(name="orders").definite_patterns() == ()
    assert ResourcePatternFilter(TOPICS).definite_patterns() == ()


@pytest.mark.parametrize(
    ("pattern", "entry", "error", "message"),
    [
        (ResourcePattern(ResourceType.CLUSTER, "c"), ENTRY, InvalidRequest, "The only valid name for the CLUSTER"),
        (ResourcePattern(ResourceType.CLUSTER, ""), ENTRY, InvalidRequest, "The only valid name for the CLUSTER"),
        (ResourcePattern(ResourceType.TOPIC, ""), ENTRY, InvalidRequest, "Invalid empty resource name"),
        (ResourcePattern(ResourceType.TOPIC, "a/b"), ENTRY, InvalidRequest, "Failed to create ACL"),
        (TOPIC._replace(pattern_type=PatternType.MATCH), ENTRY, InvalidRequest, "Failed to create ACL"),
        (TOPIC, ENTRY._replace(operation=AclOperation.ANY), InvalidRequest, "Failed to create ACL"),
        (TOPIC, ENTRY._replace(principal="alice"), UnknownServerError, "expected a principal as type:name"),
    ],
)
def test_what_kafka_does_not_create_is_refused(
    pattern: ResourcePattern, entry: AccessControlEntry, error: type[WireError], message: str
) -> None:
    with pytest.raises(error, match=message):
        check_creation(AclBinding(pattern, entry))


def test_an_operation_that_a_resource_does_not_have_can_be_granted() -> None:
    check_creation(AclBinding(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME), ENTRY))
    check_creation(AclBinding(TOPIC, ENTRY._replace(operation=AclOperation.CLUSTER_ACTION)))


def test_a_binding_reads_as_a_sentence() -> None:
    assert str(AclBinding(TOPIC, ENTRY)) == "Allow Read on Topic:LITERAL:orders to User:alice from *"

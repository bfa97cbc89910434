"""The authorizer's index against the rules written down naively, and filters against each field compared by itself."""

from hypothesis import given, settings
from hypothesis import strategies as st

from leadline.security.acl_nodes import acl_path, decode_acls, decode_change, encode_acls, encode_change
from leadline.security.acls import (
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
)
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal

# Few of each, so that they meet.
NAMES = ["*", "a", "ab", "abc", "b", "*a"]
TYPES = [ResourceType.TOPIC, ResourceType.CLUSTER]
OPERATIONS = [operation for operation in AclOperation if operation > AclOperation.ALL]
names, types = st.sampled_from(NAMES), st.sampled_from(TYPES)
principals = st.sampled_from(["User:a", "User:b", "User:*", "Group:*", "Group:a"])
hosts = st.sampled_from(["*", "1.1.1.1", "2.2.2.2"])
patterns = st.builds(ResourcePattern, types, names, st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]))
entries = st.builds(
    AccessControlEntry,
    principals,
    hosts,
    st.sampled_from([*OPERATIONS, AclOperation.ALL, AclOperation.UNKNOWN]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
bindings = st.builds(AclBinding, patterns, entries)
changes = st.lists(st.tuples(patterns, st.lists(entries, max_size=4)), max_size=12)
clients = st.builds(Principal, st.sampled_from(["User", "Group"]), st.sampled_from(["a", "b", "c", "*"]))
some = st.lists(st.tuples(clients, hosts, st.sampled_from(OPERATIONS), types, names), min_size=1, max_size=20)

IMPLYING = {
    AclOperation.DESCRIBE: {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER},
    AclOperation.DESCRIBE_CONFIGS: {AclOperation.ALTER_CONFIGS},
}


def applies(binding: AclBinding, resource_type: ResourceType, name: str) -> bool:
    pattern = binding.pattern
    if pattern.resource_type != resource_type:
        return False
    if pattern.pattern_type == PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name == name or pattern.name == "*"


def concerns(entry: AccessControlEntry, principal: Principal, host: str) -> bool:
    return entry.principal in (str(principal), "User:*") and entry.host in (host, "*")


def naively(
    rules: list[AclBinding],
    everyone: bool,
    principal: Principal,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    applying = [binding.entry for binding in rules if applies(binding, resource_type, name)]
    if not applying:
        return everyone
    of_client = [entry for entry in applying if concerns(entry, principal, host)]
    if any(e.permission == AclPermission.DENY and e.operation in (operation, AclOperation.ALL) for e in of_client):
        return False
    enough = {operation, AclOperation.ALL} | IMPLYING.get(operation, set())
    return any(e.permission == AclPermission.ALLOW and e.operation in enough for e in of_client)


def any_naively(
    rules: list[AclBinding], everyone: bool, principal: Principal, host: str, operation: AclOperation, of: ResourceType
) -> bool:
    def having(permission: AclPermission, kind: PatternType) -> set[str]:
        return {
            pattern.name
            for pattern, entry in rules
            if pattern.resource_type == of and pattern.pattern_type == kind and entry.permission == permission
            if concerns(entry, principal, host) and entry.operation in (operation, AclOperation.ALL)
        }

    denied = having(AclPermission.DENY, PatternType.LITERAL)
    prefixes = having(AclPermission.DENY, PatternType.PREFIXED)
    if "*" in denied or everyone:
        return "*" not in denied
    free = {
        prefix
        for prefix in having(AclPermission.ALLOW, PatternType.PREFIXED)
        if not any(prefix.startswith(above) for above in prefixes)
    }
    literals = having(AclPermission.ALLOW, PatternType.LITERAL)
    left = {name for name in literals - denied if not any(name.startswith(above) for above in prefixes)}
    return bool(free or left or "*" in literals)


@settings(max_examples=400)
@given(changes, st.booleans(), some)
def test_the_index_decides_as_the_rules_do(
    history: list[tuple[ResourcePattern, list[AccessControlEntry]]],
    everyone: bool,
    probes: list[tuple[Principal, str, AclOperation, ResourceType, str]],
) -> None:
    authorizer = Authorizer([Principal("User", "c")], everyone)
    in_force: dict[ResourcePattern, list[AccessControlEntry]] = {}
    asked_before = [authorizer.client(principal, host) for principal, host, *_ in probes]
    for pattern, acls in history:
        for client, (*_, operation, resource_type, name) in zip(asked_before, probes, strict=True):
            client.allows(operation, resource_type, name)  # what is remembered must not outlive the change
        authorizer.put(pattern, acls)
        in_force[pattern] = acls
    rules = [AclBinding(pattern, entry) for pattern, acls in in_force.items() for entry in acls]
    for client, (principal, host, operation, resource_type, name) in zip(asked_before, probes, strict=True):
        is_super = principal == Principal("User", "c")
        expected = is_super or naively(rules, everyone, principal, host, operation, resource_type, name)
        assert client.allows(operation, resource_type, name) is expected
        decision = authorizer.decide(principal, host, operation, resource_type, name)
        assert decision.allowed is expected
        assert decision.binding is None or decision.binding in rules
        any_of_them = is_super or any_naively(rules, everyone, principal, host, operation, resource_type)
        assert client.allows_any(operation, resource_type) is any_of_them
    assert sorted(authorizer.bindings(AclBindingFilter())) == sorted(set(rules))


filters = st.builds(
    AclBindingFilter,
    st.builds(
        ResourcePatternFilter,
        st.sampled_from([ResourceType.ANY, *TYPES]),
        st.none() | names,
        st.sampled_from([PatternType.ANY, PatternType.MATCH, PatternType.LITERAL, PatternType.PREFIXED]),
    ),
    st.builds(
        AccessControlEntryFilter,
        st.none() | principals,
        st.none() | hosts,
        st.sampled_from([AclOperation.ANY, AclOperation.ALL, AclOperation.READ]),
        st.sampled_from(AclPermission),
    ),
)


def matches_naively(filter: AclBindingFilter, binding: AclBinding) -> bool:
    (resource_type, name, kind), (principal, host, operation, permission) = filter
    pattern, entry = binding
    if name is None:
        named = kind in (PatternType.ANY, PatternType.MATCH) or kind == pattern.pattern_type
    elif kind == PatternType.MATCH:
        named = applies(binding, pattern.resource_type, name)
    else:
        named = name == pattern.name and kind in (PatternType.ANY, pattern.pattern_type)
    return (
        named
        and (resource_type == ResourceType.ANY or resource_type == pattern.resource_type)
        and (principal is None or principal == entry.principal)
        and (host is None or host == entry.host)
        and (operation == AclOperation.ANY or operation == entry.operation)
        and (permission == AclPermission.ANY or permission == entry.permission)
    )


@given(st.lists(bindings, max_size=30), filters)
def test_filters_match_what_each_of_their_fields_matches(rules: list[AclBinding], filter: AclBindingFilter) -> None:
    authorizer = Authorizer()
    for pattern, entry in rules:
        authorizer.put(pattern, (*authorizer.entries(pattern), entry))
    expected = {binding for binding in rules if matches_naively(filter, binding)}
    assert {binding for binding in rules if filter.matches(binding)} == expected
    assert sorted(authorizer.bindings(filter)) == sorted(expected)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(entries, unique=True), patterns, texts)
def test_nodes_and_notifications_come_back_as_they_were(
    acls: list[AccessControlEntry], pattern: ResourcePattern, text: str
) -> None:
    strange = [entry._replace(principal=f"User:{text}{n}", host=text) for n, entry in enumerate(acls)]
    assert decode_acls(acl_path(pattern), encode_acls(strange)) == tuple(strange)
    of = pattern._replace(name=text)
    changes = "/kafka-acl-changes" if of.pattern_type is PatternType.LITERAL else "/kafka-acl-extended-changes"
    assert decode_change(f"{changes}/acl_changes_0000000001", encode_change(of)) == of

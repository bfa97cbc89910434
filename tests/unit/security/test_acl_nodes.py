"""The nodes of ACLs, byte for byte as a real Kafka has left them."""

import pytest

from leadline.coordination.node_json import MalformedNode
from leadline.security import acl_nodes
from leadline.security.acls import (
    AccessControlEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourceType,
)

READ = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
DENIED = AccessControlEntry("User:bob", "127.0.0.1", AclOperation.DESCRIBE_CONFIGS, AclPermission.DENY)
STRANGE = AccessControlEntry('User:CN=ümlaut "x"\\,O=é', "*", AclOperation.ALL, AclPermission.ALLOW)
IDEMPOTENT = READ._replace(operation=AclOperation.IDEMPOTENT_WRITE)
ALICE = '{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"Read"}'
BOB = '{"principal":"User:bob","permissionType":"Deny","host":"127.0.0.1","operation":"DescribeConfigs"}'

NODES = [
    (ResourcePattern(ResourceType.TOPIC, "one"), (READ,), "/kafka-acl/Topic/one", f'{{"acls":[{ALICE}],"version":1}}'),
    (
        ResourcePattern(ResourceType.TOPIC, "two"),
        (READ, DENIED),
        "/kafka-acl/Topic/two",
        f'{{"acls":[{ALICE},{BOB}],"version":1}}',
    ),
    (
        ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"),
        (IDEMPOTENT,),
        "/kafka-acl/Cluster/kafka-cluster",
        '{"acls":[{"principal":"User:alice","permissionType":"Allow","host":"*","operation":"IdempotentWrite"}],'
        '"version":1}',
    ),
    (
        ResourcePattern(ResourceType.TOPIC, "pre-", PatternType.PREFIXED),
        (STRANGE,),
        "/kafka-acl-extended/prefixed/Topic/pre-",
        r'{"acls":[{"principal":"User:CN=ümlaut \"x\"\\,O=é","permissionType":"Allow","host":"*","operation":"All"}],'
        '"version":1}',
    ),
]


@pytest.mark.parametrize(("pattern", "entries", "path", "text"), NODES)
def test_a_node_of_acls_is_kafkas_and_read_again(
    pattern: ResourcePattern, entries: tuple[AccessControlEntry, ...], path: str, text: str
) -> None:
    assert acl_nodes.acl_path(pattern) == path
    assert acl_nodes.encode_acls(entries) == text.encode()
    assert acl_nodes.decode_acls(path, text.encode()) == entries


CHANGES = [
    (ResourcePattern(ResourceType.TOPIC, "one"), "/kafka-acl-changes/acl_changes_", b"TOPIC:one"),
    (ResourcePattern(ResourceType.USER, "User:a"), "/kafka-acl-changes/acl_changes_", b"USER:User:a"),
    (ResourcePattern(ResourceType.TRANSACTIONAL_ID, "t"), "/kafka-acl-changes/acl_changes_", b"TRANSACTIONAL_ID:t"),
    (
        ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx", PatternType.PREFIXED),
        "/kafka-acl-extended-changes/acl_changes_",
        b'{"version":1,"resourceType":"TRANSACTIONAL_ID","name":"tx","patternType":"PREFIXED"}',
    ),
]


@pytest.mark.parametrize(("pattern", "path", "data"), CHANGES)
def test_a_change_notification_is_kafkas_and_read_again(pattern: ResourcePattern, path: str, data: bytes) -> None:
    assert acl_nodes.change_path(pattern) == path
    assert acl_nodes.encode_change(pattern) == data
    assert acl_nodes.decode_change(f"{path}0000000007", data) == pattern


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/kafka-acl-changes/acl_changes_0000000000", b"one"),
        ("/kafka-acl-changes/acl_changes_0000000000", b"NOTHING:one"),
        ("/kafka-acl-changes/acl_changes_0000000000", b"ANY:one"),
        ("/kafka-acl-changes/acl_changes_0000000000", b"\xff"),
        ("/kafka-acl-extended-changes/acl_changes_0000000000", b"TOPIC:one"),
        (
            "/kafka-acl-extended-changes/acl_changes_0000000000",
            b'{"version":2,"resourceType":"TOPIC","name":"t","patternType":"PREFIXED"}',
        ),
        (
            "/kafka-acl-extended-changes/acl_changes_0000000000",
            b'{"version":1,"resourceType":"TOPIC","name":"t","patternType":"MATCH"}',
        ),
    ],
)
def test_a_malformed_change_notification_is_refused_by_its_path(path: str, data: bytes) -> None:
    with pytest.raises(MalformedNode, match=path):
        acl_nodes.decode_change(path, data)


def test_names_in_a_node_are_read_in_any_case_and_unknown_ones_match_nothing() -> None:
    data = b'{"version":1,"acls":[{"host":"*","permissionType":"ALLOW","operation":"read","principal":"User:alice"},'
    data += b'{"host":"*","permissionType":"Allow","operation":"CLUSTER_ACTION","principal":"User:alice"}]}'
    unknown = READ._replace(operation=AclOperation.UNKNOWN)
    assert acl_nodes.decode_acls("/kafka-acl/Topic/t", data) == (READ, unknown)


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        '{"acls":[]}',
        '{"version":2,"acls":[]}',
        '{"version":1}',
        '{"version":1,"acls":[{"principal":"alice","permissionType":"Allow","host":"*","operation":"Read"}]}',
        '{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read"}]}',
        '{"version":1,"acls":[{"principal":1,"permissionType":"Allow","host":"*","operation":"Read"}]}',
    ],
)
def test_a_malformed_node_of_acls_is_refused_whole(text: str) -> None:
    with pytest.raises(MalformedNode, match="/kafka-acl/Topic/t"):
        acl_nodes.decode_acls("/kafka-acl/Topic/t", text.encode())


def test_an_empty_node_has_no_acls() -> None:
    assert acl_nodes.decode_acls("/kafka-acl/Topic/t", b"") == ()


def test_an_entry_that_stands_twice_counts_once() -> None:
    assert acl_nodes.decode_acls("/kafka-acl/Topic/t", acl_nodes.encode_acls([READ, DENIED, READ])) == (READ, DENIED)


def test_the_parents_are_those_of_all_six_types_in_both_trees() -> None:
    names = "Topic Group Cluster TransactionalId DelegationToken User".split()
    trees = [f"{root}/{name}" for root in ("/kafka-acl", "/kafka-acl-extended/prefixed") for name in names]
    assert set(acl_nodes.PERSISTENT) == {"/kafka-acl-changes", "/kafka-acl-extended-changes", *trees}

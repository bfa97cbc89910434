"""The options of `leadline acls`, as ACLs and as filters."""

import argparse

import pytest

from leadline.admin.errors import Failure
from leadline.cli import parse
from leadline.cli.acls.acl_options import bindings_of, filters_of
from leadline.cli.acls.acl_text import binding_text
from leadline.security.acls import AclOperation, AclPermission, PatternType, ResourceType

ALICE = ("--allow-principal", "User:alice")


def options(command: str, *arguments: str) -> argparse.Namespace:
    return parse(["acls", command, *arguments])


def added(*arguments: str) -> list[str]:
    return [binding_text(binding) for binding in bindings_of(options("add", *arguments))]


def test_each_principal_gets_each_operation_on_each_resource() -> None:
    arguments = ("--allow-principal", "User:ben", "--operation", "read", "--topic", "a", "--topic", "b")
    assert added(*ALICE, *arguments) == [
        "User:alice may read on topic a from any host",
        "User:ben may read on topic a from any host",
        "User:alice may read on topic b from any host",
        "User:ben may read on topic b from any host",
    ]


def test_hosts_belong_to_what_they_are_given_with() -> None:
    arguments = ("--deny-principal", "User:*", "--deny-host", "::1", "--allow-host", "10.0.0.1", "--operation", "ALL")
    assert added(*ALICE, *arguments, "--topic", "*") == [
        "User:alice may do everything on all topics from 10.0.0.1",
        "User:* may do nothing on all topics from 0:0:0:0:0:0:0:1",
    ]


def test_a_producer_gets_what_kafkas_tool_gives_it() -> None:
    assert added(*ALICE, "--producer", "--idempotent", "--topic", "a", "--transactional-id", "x") == [
        "User:alice may write on topic a from any host",
        "User:alice may describe on topic a from any host",
        "User:alice may create on topic a from any host",
        "User:alice may write on transactional id x from any host",
        "User:alice may describe on transactional id x from any host",
        "User:alice may idempotent-write on the cluster from any host",
    ]


def test_a_consumer_gets_what_kafkas_tool_gives_it() -> None:
    prefixed = ("--resource-pattern-type", "prefixed")
    assert added(*ALICE, "--consumer", "--topic", "a-", "--group", "g-", *prefixed) == [
        "User:alice may read on topics a-... from any host",
        "User:alice may describe on topics a-... from any host",
        "User:alice may read on groups g-... from any host",
    ]


@pytest.mark.parametrize("spelling", ["describe-configs", "DescribeConfigs", "DESCRIBE_CONFIGS"])
def test_operations_are_read_in_all_spellings(spelling: str) -> None:
    (binding,) = bindings_of(options("add", *ALICE, "--operation", spelling, "--cluster"))
    assert binding.entry.operation is AclOperation.DESCRIBE_CONFIGS
    assert binding.pattern == (ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*ALICE, "--operation", "read"), "no resource: give at least one of --topic"),
        ((*ALICE, "--topic", "a"), "no operation"),
        (("--operation", "read", "--topic", "a"), "no principal to add an ACL for"),
        ((*ALICE, "--operation", "write", "--group", "g"), "write means nothing on a group: it has read, delete"),
        ((*ALICE, "--producer", "--operation", "read", "--topic", "a"), "leave --operation out"),
        ((*ALICE, "--producer"), "need --topic"),
        ((*ALICE, "--consumer", "--topic", "a"), "--consumer needs --group"),
        ((*ALICE, "--producer", "--topic", "a", "--group", "g"), "--group is not for --producer"),
        (("--deny-principal", "User:x", "--producer", "--topic", "a"), "are for --allow-principal"),
        ((*ALICE, "--operation", "read", "--topic", "a", "--idempotent"), "--idempotent is for --producer"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(Failure, match=message):
        bindings_of(options("add", *arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--allow-principal", "alice"), "expected User:NAME, not 'alice'"),
        (("--operation", "reed"), "there is no operation 'reed': all, read, write"),
        (("--resource-pattern-type", "regex"), "there is no pattern type 'regex'"),
    ],
)
def test_a_mistyped_value_is_named(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options("add", *arguments)
    assert message in capsys.readouterr().err


def test_a_removal_without_rules_matches_all_acls_of_the_name() -> None:
    ((pattern, entry),) = filters_of(options("remove", "--topic", "a"))
    assert pattern == (ResourceType.TOPIC, "a", PatternType.ANY)
    assert entry == (None, None, AclOperation.ANY, AclPermission.ANY)


def test_a_removal_of_a_principal_matches_all_its_hosts() -> None:
    ((_, entry),) = filters_of(options("remove", "--topic", "a", "--deny-principal", "User:x", "--operation", "read"))
    assert entry == ("User:x", None, AclOperation.READ, AclPermission.DENY)
    with pytest.raises(Failure, match="--allow-host needs --allow-principal"):
        filters_of(options("remove", "--topic", "a", "--allow-host", "10.0.0.1"))

"""ACLs and quotas that cannot be: a real Kafka's codes and words for them, and ours."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.membership import make_persistent_nodes
from leadline.coordination.tree import Tree
from leadline.errors import UnknownServerError, WireError
from leadline.runtime.network import TcpNetwork
from leadline.runtime.ports import SystemTime
from leadline.security.acl_store import AclStore
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
from leadline.security.client_quotas import DEFAULT, ClientQuotas
from leadline.security.connection_rates import ConnectionRates
from leadline.security.quota_nodes import (
    ConfigEntity,
    QuotaAlteration,
    QuotaFilter,
    QuotaFilterComponent,
    altered,
    entity_of_request,
    names_of,
)
from leadline.security.quota_store import QuotaStore
from leadline.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.conformance.both import Connection
from tests.conformance.kafka.broker import zookeeper
from tests.conformance.kafka.secured import secured_broker
from tests.support.chance import SeededChance
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

T = TypeVar("T")
Refused = tuple[int, str | None]
Described = list[tuple[frozenset[tuple[str, str | None]], dict[str, float]]]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    directory = tmp_path_factory.mktemp("refusals")
    with zookeeper(directory / "zk") as zk, secured_broker(directory / "broker", zk, {}) as broker:
        connection = broker.connect()
        yield connection
        connection.close()


def with_tree(directory: Path, use: Callable[[Tree], Awaitable[T]]) -> T:
    async def main() -> T:
        tree = await EmbeddedTree.open(str(directory), SystemTime())
        try:
            await make_persistent_nodes(tree)
            return await use(tree)
        finally:
            await tree.close()

    return asyncio.run(main())


def refusal(error: WireError | None) -> Refused:
    """Kafka has no words of its own for what it did not foresee."""
    if error is None:
        return 0, None
    return error.code, None if isinstance(error, UnknownServerError) else str(error)


def worded(code: int, message: str | None) -> Refused:
    return code, None if code in (0, UnknownServerError.code) else message


# ACLs

READ = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
T1, T2 = ResourcePattern(ResourceType.TOPIC, "t1"), ResourcePattern(ResourceType.TOPIC, "t2")
CREATIONS = [
    AclBinding(T1, READ),
    AclBinding(ResourcePattern(ResourceType.CLUSTER, "elsewhere"), READ),
    AclBinding(ResourcePattern(ResourceType.CLUSTER, ""), READ),
    AclBinding(ResourcePattern(ResourceType.TOPIC, ""), READ),
    AclBinding(ResourcePattern(ResourceType.TOPIC, "a/b"), READ),
    AclBinding(ResourcePattern(ResourceType.TOPIC, "a/b", PatternType.PREFIXED), READ),
    AclBinding(ResourcePattern(ResourceType.TOPIC, "."), READ),
    AclBinding(T2, READ._replace(principal="alice")),
    AclBinding(T2, READ),  # with it
    AclBinding(ResourcePattern(ResourceType.TOPIC, "t3"), READ._replace(host="")),
    AclBinding(ResourcePattern(ResourceType.GROUP, "g"), READ._replace(operation=AclOperation.CLUSTER_ACTION)),
    AclBinding(ResourcePattern(ResourceType.USER, "bob"), READ._replace(principal=":")),
    AclBinding(T1, READ),
]


def creation_of(binding: AclBinding) -> CreateAclsRequest.AclCreation:
    (resource_type, name, pattern_type), (principal, host, operation, permission) = binding
    return CreateAclsRequest.AclCreation(
        resource_type=resource_type,
        resource_name=name,
        resource_pattern_type=pattern_type,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def test_acls_that_cannot_be_created_are_refused_in_kafkas_words(kafka: Connection, tmp_path: Path) -> None:
    request = CreateAclsRequest(creations=[creation_of(binding) for binding in CREATIONS])
    results = kafka.ask(CreateAclsResponse, request, 3).results
    theirs = [worded(result.error_code, result.error_message) for result in results]

    async def create(tree: Tree) -> list[Refused]:
        store = AclStore(tree, Authorizer(), SystemTime(), SeededChance())
        await store.start()
        created = await store.create(CREATIONS)
        await store.stop()
        return [refusal(error) for error in created]

    assert with_tree(tmp_path, create) == theirs


WRITE = READ._replace(operation=AclOperation.WRITE)
DENIED = WRITE._replace(permission=AclPermission.DENY)
FILTERS = [
    AclBindingFilter(ResourcePatternFilter(ResourceType.GROUP, "none")),
    AclBindingFilter(entry=AccessControlEntryFilter(permission=AclPermission.DENY)),
    AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "delete-me", PatternType.MATCH)),
    AclBindingFilter(ResourcePatternFilter(ResourceType.TOPIC, "delete", PatternType.PREFIXED)),
    AclBindingFilter(entry=AccessControlEntryFilter(principal="User:nobody")),
]
DELETED = [
    *(AclBinding(ResourcePattern(ResourceType.TOPIC, "delete-me"), entry) for entry in (READ, WRITE, DENIED)),
    *(
        AclBinding(ResourcePattern(ResourceType.TOPIC, "delete", PatternType.PREFIXED), entry)
        for entry in (READ, DENIED)
    ),
    *(AclBinding(ResourcePattern(ResourceType.TOPIC, "kept"), entry) for entry in (READ, WRITE)),
]


def test_deletions_are_reported_under_the_filters_under_which_kafka_does(kafka: Connection, tmp_path: Path) -> None:
    create = CreateAclsRequest(creations=[creation_of(binding) for binding in DELETED])
    assert {result.error_code for result in kafka.ask(CreateAclsResponse, create, 3).results} == {0}
    filters = [
        DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=pattern.resource_type,
            resource_name_filter=pattern.name,
            pattern_type_filter=pattern.pattern_type,
            principal_filter=entry.principal,
            host_filter=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in FILTERS
    ]
    theirs = [
        {
            AclBinding(
                ResourcePattern(ResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type)),
                AccessControlEntry(
                    acl.principal, acl.host, AclOperation(acl.operation), AclPermission(acl.permission_type)
                ),
            )
            for acl in result.matching_acls
        }
        for result in kafka.ask(DeleteAclsResponse, DeleteAclsRequest(filters=filters), 3).filter_results
    ]

    async def delete(tree: Tree) -> list[set[AclBinding]]:
        store = AclStore(tree, Authorizer(), SystemTime(), SeededChance())
        await store.start()
        await store.create(DELETED)
        results = await store.delete(FILTERS)
        await store.stop()
        assert all(error is None for result in results for _, error in result)
        return [{binding for binding, _ in result} for result in results]

    assert with_tree(tmp_path, delete) == theirs
    assert sum(map(len, theirs)) == 5


# Quotas

Parts = list[tuple[str, str | None]]
ALTERATIONS: list[tuple[Parts, list[tuple[str, float | None]]]] = [
    ([("user", "u")], [("producer_byte_rate", 1024.0), ("request_percentage", 0.5)]),
    ([("user", "u"), ("client-id", None)], [("controller_mutation_rate", 1e-5)]),
    ([("client-id", "c")], [("producer_byte_rate", 1024.0000001)]),
    ([("client-id", "none")], [("producer_byte_rate", None)]),
    ([("ip", "127.0.0.9")], [("connection_creation_rate", 7)]),
    ([("user", "a")], [("producer_byte_rate", 1.5)]),
    ([("user", "b")], [("nonsense", 1)]),
    ([("user", "c")], [("connection_creation_rate", 1)]),
    ([("user", "d")], [("consumer_byte_rate", -5)]),
    ([("user", "e")], [("consumer_byte_rate", 1e300)]),
    ([("user", "f")], [("SCRAM-SHA-256", None)]),
    ([("user", "")], [("producer_byte_rate", 1)]),
    ([("group", "g")], [("producer_byte_rate", 1)]),
    ([("ip", "127.0.0.8"), ("user", "u")], [("connection_creation_rate", 1)]),
    ([("ip", "127.0.0.8")], [("producer_byte_rate", 1)]),
    ([("ip", "127.0.0.8")], [("connection_creation_rate", -1)]),
    ([("ip", "127.0.0.8")], [("connection_creation_rate", 0.5)]),
    ([("ip", "not/an/address")], [("connection_creation_rate", 1)]),
]


def alteration_of(parts: Parts, changes: list[tuple[str, float | None]]) -> AlterClientQuotasRequest.EntryData:
    return AlterClientQuotasRequest.EntryData(
        entity=[AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[
            AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in changes
        ],
    )


async def alter(store: QuotaStore, parts: Parts, changes: list[tuple[str, float | None]]) -> Refused:
    try:
        entity = entity_of_request(parts)
        alterations = [QuotaAlteration(*change) for change in changes]
        await store.alter(entity, lambda config: altered(entity, config, alterations))
    except WireError as error:
        return refusal(error)
    return 0, None


def described_by_kafka(kafka: Connection, filter: QuotaFilter) -> Described | Refused:
    components = [
        DescribeClientQuotasRequest.ComponentData(
            entity_type=kind,
            match_type=2 if name is None else 1 if name is DEFAULT else 0,
            match=name if isinstance(name, str) else None,
        )
        for kind, name in filter.components
    ]
    answer = kafka.ask(
        DescribeClientQuotasResponse, DescribeClientQuotasRequest(components=components, strict=filter.strict), 1
    )
    if answer.error_code:
        return worded(answer.error_code, answer.error_message)
    return [
        (
            frozenset((part.entity_type, part.entity_name) for part in entry.entity),
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or []
    ]


def described_by_us(entities: list[tuple[ConfigEntity, dict[str, str]]], filter: QuotaFilter) -> Described | Refused:
    try:
        filter.check()
    except WireError as error:
        return refusal(error)
    return [
        (
            frozenset((kind, None if name is DEFAULT else name) for kind, name in names_of(entity).items()),
            {key: float(value) for key, value in config.items()},
        )
        for entity, config in entities
        if config and filter.matches(entity)
    ]


def any_of(*kinds: str, strict: bool = False) -> QuotaFilter:
    return QuotaFilter(tuple(QuotaFilterComponent(kind, None) for kind in kinds), strict)


QUOTA_FILTERS = [
    any_of(),
    any_of(strict=True),
    any_of("user"),
    any_of("user", strict=True),
    any_of("client-id"),
    any_of("client-id", strict=True),
    any_of("user", "client-id"),
    any_of("ip"),
    any_of("ip", strict=True),
    QuotaFilter((QuotaFilterComponent("user", "u"),), False),
    QuotaFilter((QuotaFilterComponent("user", "u"),), True),
    QuotaFilter((QuotaFilterComponent("client-id", DEFAULT),), False),
    QuotaFilter((QuotaFilterComponent("user", "u"), QuotaFilterComponent("client-id", DEFAULT)), True),
    QuotaFilter((QuotaFilterComponent("ip", "127.0.0.9"),), False),
    QuotaFilter((QuotaFilterComponent("ip", DEFAULT),), False),
    any_of("user", "user"),
    any_of("client-id", "client-id"),
    any_of("ip", "ip"),
    any_of(""),
    any_of("group"),
    any_of("ip", "user"),
]


def test_quotas_are_altered_refused_and_described_as_kafka_does(kafka: Connection, tmp_path: Path) -> None:
    theirs, ours = list[Refused](), list[Refused]()
    for parts, changes in ALTERATIONS:
        request = AlterClientQuotasRequest(entries=[alteration_of(parts, changes)], validate_only=False)
        (entry,) = kafka.ask(AlterClientQuotasResponse, request, 1).entries
        theirs.append(worded(entry.error_code, entry.error_message))

    async def alter_ours(tree: Tree) -> list[tuple[ConfigEntity, dict[str, str]]]:
        store = QuotaStore(
            tree, ClientQuotas(), ConnectionRates(["PLAINTEXT"], "PLAINTEXT"), SystemTime(), TcpNetwork()
        )
        await store.start()
        ours.extend([await alter(store, *alteration) for alteration in ALTERATIONS])
        await store.stop()
        return [pair async for pair in store.entities()]

    entities = with_tree(tmp_path, alter_ours)
    differing = [
        (alteration, mine, kafkas)
        for alteration, mine, kafkas in zip(ALTERATIONS, ours, theirs, strict=True)
        if mine != kafkas
    ]
    assert differing == []
    until(lambda: len(described_by_kafka(kafka, any_of())) == len(described_by_us(entities, any_of())), "all there")
    for filter in QUOTA_FILTERS:
        mine, kafkas = described_by_us(entities, filter), described_by_kafka(kafka, filter)
        if isinstance(mine, list) and isinstance(kafkas, list):
            assert dict(mine) == dict(kafkas), filter
        else:
            assert mine == kafkas, filter

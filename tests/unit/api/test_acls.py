"""DescribeAcls, CreateAcls and DeleteAcls on a broker with an authorizer, and on one without."""

from typing import Any

import pytest

from leadline.broker.connection_state import CloseConnection
from leadline.security.acls import AclOperation, ResourceType
from leadline.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from tests.support.authorized_broker import AuthorizedBroker, rule, run_authorized
from tests.support.in_memory_broker import InMemoryClient, run

FILTER = DeleteAclsRequest.DeleteAclsFilter
ANY = 1
LITERAL, PREFIXED = 3, 4
DESCRIBED, CHANGED = "No Authorizer is configured on the broker", "No Authorizer is configured."  # Kafka's messages
CLUSTER_REFUSED, INVALID_REQUEST, SECURITY_DISABLED, UNKNOWN_SERVER_ERROR = 31, 42, 54, -1


def acl(name: str = "t", /, principal: str = "User:alice", **other: int) -> CreateAclsRequest.AclCreation:
    built = CreateAclsRequest.AclCreation(
        resource_type=2,
        resource_name=name,
        resource_pattern_type=LITERAL,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )
    for field, value in other.items():
        setattr(built, field, value)
    return built


def matching(**other: object) -> dict[str, Any]:
    nothing = {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
    types = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    return nothing | types | other


async def create(client: InMemoryClient, *creations: CreateAclsRequest.AclCreation, version: int = 3) -> list[int]:
    response = await client.send(CreateAclsRequest(creations=list(creations)), CreateAclsResponse, version)
    return [result.error_code for result in response.results]


async def describe(client: InMemoryClient, version: int = 3, **other: object) -> dict[tuple[int, str, int], set[int]]:
    response = await client.send(DescribeAclsRequest(**matching(**other)), DescribeAclsResponse, version)
    assert response.error_code == 0
    return {
        (resource.resource_type, resource.resource_name, resource.pattern_type): {
            entry.operation for entry in resource.acls
        }
        for resource in response.resources
    }


def test_what_is_created_is_in_force_and_described() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        assert await create(broker.root, acl(), acl(operation=4), acl("p", resource_pattern_type=PREFIXED)) == [0] * 3
        permissions = broker.client().client.permissions(broker.authorizer)
        assert permissions.allows(AclOperation.WRITE, ResourceType.TOPIC, "t")
        assert permissions.allows(AclOperation.READ, ResourceType.TOPIC, "pears")
        assert await describe(broker.root) == {(2, "t", LITERAL): {3, 4}, (2, "p", PREFIXED): {3}}
        assert await describe(broker.root, operation=4) == {(2, "t", LITERAL): {4}}
        assert await describe(broker.root, pattern_type_filter=2, resource_name_filter="pears") == {
            (2, "p", PREFIXED): {3}
        }
        assert await describe(broker.root, version=0, pattern_type_filter=LITERAL) == {(2, "t", LITERAL): {3, 4}}, (
            "v0 has literal patterns only"
        )

    run_authorized(test)


def test_each_creation_fails_by_itself() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        codes = await create(
            broker.root,
            acl(""),
            acl("any", resource_type=4),
            acl("a/b"),
            acl("u", principal="alice"),
            acl("t"),
            acl("kafka-cluster", resource_type=4),
        )
        assert codes == [INVALID_REQUEST, INVALID_REQUEST, INVALID_REQUEST, UNKNOWN_SERVER_ERROR, 0, 0]
        assert await describe(broker.root) == {(2, "t", LITERAL): {3}, (4, "kafka-cluster", LITERAL): {3}}

    run_authorized(test)


@pytest.mark.parametrize(
    "field", [{"operation": 1}, {"resource_type": 1}, {"permission_type": 1}, {"resource_pattern_type": 2}]
)
def test_an_acl_for_anything_fails_the_whole_request(field: dict[str, int]) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        wrong = acl("u")
        for name, value in field.items():
            setattr(wrong, name, value)
        assert await create(broker.root, acl(), wrong) == [UNKNOWN_SERVER_ERROR] * 2
        assert await describe(broker.root) == {}

    run_authorized(test)


def test_an_acl_that_two_filters_match_is_deleted_by_the_first() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        assert await create(broker.root, acl(), acl(operation=4), acl("u")) == [0] * 3
        filters = [FILTER(**matching(operation=4)), FILTER(**matching(resource_name_filter="t"))]
        response = await broker.root.send(DeleteAclsRequest(filters=filters), DeleteAclsResponse, 3)
        first, second = response.filter_results
        assert (first.error_code, first.error_message, second.error_code) == (0, None, 0)
        assert [(match.resource_name, match.operation) for match in first.matching_acls] == [("t", 4)]
        assert [(match.resource_name, match.operation) for match in second.matching_acls] == [("t", 3)]
        assert await describe(broker.root) == {(2, "u", LITERAL): {3}}

    run_authorized(test)


def test_an_unauthorized_request_is_refused_before_anything_is_looked_at() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        alice = broker.client()
        assert await create(alice, acl(""), acl()) == [CLUSTER_REFUSED] * 2
        described = await alice.send(DescribeAclsRequest(**matching()), DescribeAclsResponse, 3)
        assert (described.error_code, described.resources) == (CLUSTER_REFUSED, [])
        request = DeleteAclsRequest(filters=[FILTER(**matching())] * 2)
        deleted = await alice.send(request, DeleteAclsResponse, 3)
        assert [result.error_code for result in deleted.filter_results] == [CLUSTER_REFUSED] * 2
        assert await describe(broker.root) == {}
        broker.put(rule(AclOperation.DESCRIBE, ResourceType.CLUSTER))
        assert await create(alice, acl()) == [CLUSTER_REFUSED], "to describe is not to alter"
        assert await describe(alice) == {(4, "kafka-cluster", LITERAL): {8}}

    run_authorized(test)


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("field", ["resource_type", "operation", "permission_type", "resource_pattern_type"])
def test_an_unknown_element_closes_the_connection(version: int, field: str) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        if version == 0 and field == "resource_pattern_type":
            return  # version 0 does not have it
        with_unknown = acl()
        setattr(with_unknown, field, 0)
        with pytest.raises(CloseConnection):
            await create(broker.root, acl(), with_unknown, version=version)
        of_filter = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}
        pattern = LITERAL if version == 0 else ANY
        wrong = matching(**{"pattern_type_filter": pattern, of_filter.get(field, field): 0})
        with pytest.raises(CloseConnection):
            await broker.root.send(DescribeAclsRequest(**wrong), DescribeAclsResponse, version)
        with pytest.raises(CloseConnection):
            await broker.root.send(DeleteAclsRequest(filters=[FILTER(**wrong)]), DeleteAclsResponse, version)
        assert await describe(broker.root) == {}

    run_authorized(test)


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_without_an_authorizer_each_request_says_that_security_is_disabled(version: int) -> None:
    """MirrorMaker 2 and Kafka's tools look for this very code."""

    async def test(client: InMemoryClient) -> None:
        everything = matching() if version else matching(pattern_type_filter=LITERAL)
        described = await client.send(DescribeAclsRequest(**everything), DescribeAclsResponse, version)
        assert (described.error_code, described.error_message) == (SECURITY_DISABLED, DESCRIBED)
        assert described.resources == []
        created = await client.send(CreateAclsRequest(creations=[acl("a"), acl("b")]), CreateAclsResponse, version)
        deleted = await client.send(DeleteAclsRequest(filters=[FILTER(**everything)]), DeleteAclsResponse, version)
        results = [(result.error_code, result.error_message) for result in created.results]
        results += [(result.error_code, result.error_message) for result in deleted.filter_results]
        assert results == [(SECURITY_DISABLED, CHANGED)] * 3

    run(test)

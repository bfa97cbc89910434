"""Requests for ACLs on a broker without an authorizer."""

from typing import Any

import pytest

from leadline.broker.connection_state import CloseConnection
from leadline.errors import SecurityDisabled
from leadline.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run

ANY, UNKNOWN, TOPIC, LITERAL, READ, ALLOW = 1, 0, 2, 3, 3, 3
FILTER: dict[str, Any] = {
    "resource_type_filter": ANY,
    "pattern_type_filter": ANY,
    "operation": ANY,
    "permission_type": ANY,
}
ACL: dict[str, Any] = {
    "resource_type": TOPIC,
    "resource_pattern_type": LITERAL,
    "operation": READ,
    "permission_type": ALLOW,
}


def test_each_acl_and_each_filter_gets_the_error_of_a_broker_without_an_authorizer() -> None:
    async def test(client: InMemoryClient) -> None:
        described = await client.send(DescribeAclsRequest(**FILTER), DescribeAclsResponse, 3)
        assert described.error_code == SecurityDisabled.code
        creations = [CreateAclsRequest.AclCreation(resource_name=name, **ACL) for name in ("a", "b")]
        created = await client.send(CreateAclsRequest(creations=creations), CreateAclsResponse, 3)
        assert [result.error_code for result in created.results] == [SecurityDisabled.code] * 2
        filters = [DeleteAclsRequest.DeleteAclsFilter(**FILTER) for _ in range(3)]
        deleted = await client.send(DeleteAclsRequest(filters=filters), DeleteAclsResponse, 3)
        assert [result.error_code for result in deleted.filter_results] == [SecurityDisabled.code] * 3

    run(test)


@pytest.mark.parametrize("field", FILTER)
def test_a_filter_with_an_unknown_element_ends_the_connection(field: str) -> None:
    async def test(client: InMemoryClient) -> None:
        with pytest.raises(CloseConnection, match="UNKNOWN"):
            await client.send(DescribeAclsRequest(**FILTER | {field: UNKNOWN}), DescribeAclsResponse, 3)

    run(test)


@pytest.mark.parametrize("field", ACL)
def test_an_acl_with_an_unknown_element_ends_the_connection(field: str) -> None:
    async def test(client: InMemoryClient) -> None:
        creation = CreateAclsRequest.AclCreation(resource_name="a", **ACL | {field: UNKNOWN})
        with pytest.raises(CloseConnection, match="UNKNOWN"):
            await client.send(CreateAclsRequest(creations=[creation]), CreateAclsResponse, 3)

    run(test)

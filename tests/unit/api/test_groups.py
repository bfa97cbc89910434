"""Requests about groups that Kafka has no answer to compare with, or that need no broker."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leadline.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conformance.both import Connection
from tests.support import in_memory
from tests.support.broker import leadline

BROKER_RESOURCE, GROUP_ID_NOT_FOUND = 4, 69
BROKER_ID = "1"


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def describe(connection: Connection, group: str) -> DescribeConfigsResponse.DescribeConfigsResult:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=BROKER_ID, configuration_keys=[f"leadline.rebalances.{group}"]
    )
    return connection.ask(DescribeConfigsResponse, DescribeConfigsRequest(resources=[resource]), 4).results[0]


def test_a_group_is_described_with_the_causes_of_its_rebalances(tmp_path: Path) -> None:
    settings = {"broker.id": BROKER_ID, "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
    with leadline(tmp_path / "data", **settings) as broker, closing(Connection("localhost", broker.port)) as connection:
        located = connection.ask(FindCoordinatorResponse, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert located.coordinators[0].error_code == 0  # at once, though the topic is new
        assert describe(connection, "g").error_code == GROUP_ID_NOT_FOUND
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range")
        join = JoinGroupRequest(
            group_id="g",
            group_instance_id="i",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[protocol],
            reason="a new day",
        )
        joined = connection.ask(JoinGroupResponse, join, 9)
        (under_way,) = json.loads(describe(connection, "g").configs[0].value or "")
        assert (under_way["outcome"], under_way["took_ms"]) == (None, None)
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
        )
        assert connection.ask(SyncGroupResponse, sync, 5).error_code == 0
        (entry,) = describe(connection, "g").configs
        assert (entry.name, entry.read_only, entry.is_sensitive) == ("leadline.rebalances.g", True, False)
        (rebalance,) = json.loads(entry.value or "")
        assert rebalance["took_ms"] >= 0
        assert rebalance["began_ms"] > 0
        assert {name: value for name, value in rebalance.items() if name not in ("took_ms", "began_ms")} == {
            "state": "Empty",
            "causes": [
                {
                    "what": "joined",
                    "member_id": joined.member_id,
                    "instance_id": "i",
                    "client_id": "both",
                    "client_host": "/127.0.0.1",
                    "reason": "a new day",
                }
            ],
            "more_causes": 0,
            "outcome": "stable",
            "generation_before": 0,
            "generation_after": 1,
            "members_before": 0,
            "members_after": 1,
        }

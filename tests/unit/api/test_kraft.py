"""Requests of KRaft mode: each is rejected with the error that Kafka in ZooKeeper mode returns."""

import pytest

from leadline.broker.connection_state import CloseConnection
from leadline.errors import InvalidRequest, NotController, UnsupportedVersion
from leadline.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.in_memory_broker import InMemoryClient, run

Update = UpdateFeaturesRequest.FeatureUpdateKey
UPGRADE, SAFE_DOWNGRADE, UNKNOWN_UPGRADE = 1, 2, 9
NOT_SUPPORTED = "Could not apply finalized feature update because the provided feature is not supported."


def test_the_new_protocol_of_groups_is_not_supported() -> None:
    async def test(client: InMemoryClient) -> None:
        beat = await client.send(ConsumerGroupHeartbeatRequest(group_id="g"), ConsumerGroupHeartbeatResponse, 0)
        assert beat.error_code == UnsupportedVersion.code
        described = await client.send(
            ConsumerGroupDescribeRequest(group_ids=["g", "h"]), ConsumerGroupDescribeResponse, 0
        )
        groups = [(group.group_id, group.error_code) for group in described.groups]
        assert groups == [("g", UnsupportedVersion.code), ("h", UnsupportedVersion.code)]

    run(test)


def test_a_request_within_an_envelope_ends_the_connection() -> None:
    async def test(client: InMemoryClient) -> None:
        with pytest.raises(CloseConnection, match="not forwarded"):
            await client.send(EnvelopeRequest(request_data=b"", client_host_address=bytes(4)), EnvelopeResponse, 0)

    run(test)


def test_no_feature_can_be_updated_and_the_message_says_why() -> None:
    async def test(client: InMemoryClient) -> None:
        updates = [
            Update(feature="z", max_version_level=1, upgrade_type=UPGRADE),
            Update(feature="", max_version_level=1, upgrade_type=UPGRADE),
            Update(feature="u", max_version_level=1, upgrade_type=UNKNOWN_UPGRADE),
            Update(feature="d", max_version_level=0, upgrade_type=SAFE_DOWNGRADE),
            Update(feature="l", max_version_level=0, upgrade_type=UPGRADE),
        ]
        response = await client.send(UpdateFeaturesRequest(feature_updates=updates), UpdateFeaturesResponse, 1)
        assert {result.error_code for result in response.results} == {InvalidRequest.code}
        messages = [(result.feature, result.error_message) for result in response.results]
        assert messages == [
            ("", "Feature name can not be empty."),
            ("d", "Can not delete non-existing finalized feature."),
            (
                "l",
                "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request.",
            ),
            ("u", "Received unknown upgrade type."),
            ("z", NOT_SUPPORTED),
        ]

    run(test)


def test_the_oldest_version_has_a_flag_for_downgrades_instead_of_a_type() -> None:
    async def test(client: InMemoryClient) -> None:
        updates = [Update(feature="d", max_version_level=0, allow_downgrade=True)]
        response = await client.send(UpdateFeaturesRequest(feature_updates=updates), UpdateFeaturesResponse, 0)
        assert response.results[0].error_message == "Can not delete non-existing finalized feature."

    run(test)


def test_only_the_controller_updates_features() -> None:
    async def test(client: InMemoryClient) -> None:
        client.broker.controller.decisions = None
        response = await client.send(UpdateFeaturesRequest(), UpdateFeaturesResponse, 1)
        assert (response.error_code, response.results) == (NotController.code, [])

    run(test)

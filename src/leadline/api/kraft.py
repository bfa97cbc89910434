"""Requests that only KRaft mode supports. A broker in ZooKeeper mode advertises them, and rejects them."""

from leadline.api.context import Context
from leadline.errors import InvalidRequest, NotController, UnsupportedVersion
from leadline.model import NONE
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

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
CLASSIC_ONLY = "Groups rebalance in the classic way alone; set group.protocol=classic."
NOT_CONTROLLER = "This is not the correct controller for this cluster."


def consumer_group_heartbeat(request: ConsumerGroupHeartbeatRequest, ctx: Context) -> ConsumerGroupHeartbeatResponse:
    """ConsumerGroupHeartbeat, v0."""
    return ConsumerGroupHeartbeatResponse(error_code=UnsupportedVersion.code, error_message=CLASSIC_ONLY)


def consumer_group_describe(request: ConsumerGroupDescribeRequest, ctx: Context) -> ConsumerGroupDescribeResponse:
    """ConsumerGroupDescribe, v0."""
    groups = [
        ConsumerGroupDescribeResponse.DescribedGroup(
            error_code=UnsupportedVersion.code, error_message=CLASSIC_ONLY, group_id=group_id
        )
        for group_id in request.group_ids
    ]
    return ConsumerGroupDescribeResponse(groups=groups)


def envelope(request: EnvelopeRequest, ctx: Context) -> EnvelopeResponse:
    """Envelope, v0. Nothing is forwarded in ZooKeeper mode: the connection is closed."""
    raise InvalidRequest("requests are not forwarded to the controller")


def update_features(request: UpdateFeaturesRequest, ctx: Context) -> UpdateFeaturesResponse:
    """UpdateFeatures, v0-1.  v1 the kind of upgrade. No feature can be updated."""
    if (refusal := ctx.refused("cluster")) is not None:
        return UpdateFeaturesResponse(error_code=refusal.code, error_message=str(refusal))
    if not ctx.services.controller.is_active:
        return UpdateFeaturesResponse(error_code=NotController.code, error_message=NOT_CONTROLLER)
    updates = {update.feature: _refusal(update, ctx.version) for update in request.feature_updates}
    return UpdateFeaturesResponse(
        error_code=NONE,
        error_message=None,
        results=[
            UpdateFeaturesResponse.UpdatableFeatureResult(
                feature=feature, error_code=InvalidRequest.code, error_message=message
            )
            for feature, message in sorted(updates.items())
        ],
    )


def _refusal(update: UpdateFeaturesRequest.FeatureUpdateKey, version: int) -> str:
    kind = update.upgrade_type if version >= 1 else SAFE_DOWNGRADE if update.allow_downgrade else UPGRADE
    if not update.feature:
        return "Feature name can not be empty."
    if kind not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
        return "Received unknown upgrade type."
    if update.max_version_level >= 1:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if kind != UPGRADE:
        return "Can not delete non-existing finalized feature."
    return (
        f"Can not provide versionLevel: {update.max_version_level} less than 1 without setting the SAFE downgradeType "
        "in the request."
    )

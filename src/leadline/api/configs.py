"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: settings of topics and brokers, told and changed."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from leadline.api.context import Context
from leadline.api.explanations import explanations
from leadline.config.alter import AlterConfigOp, ConfigChange, NotAList, altered_broker, altered_topic
from leadline.config.describe import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from leadline.config.values import ConfigType, InvalidSetting
from leadline.controller.topics import check_name
from leadline.errors import GroupIdNotFound, InvalidConfig, InvalidRequest, WireError
from leadline.model import NONE
from leadline.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER = 2, 4
GROUP = 32  # since Kafka 3.9
REBALANCES = "leadline.rebalances"
ALL_BROKERS = ""

_Told = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult


class Resource(NamedTuple):
    type: int
    name: str


async def describe_configs(request: DescribeConfigsRequest, ctx: Context) -> DescribeConfigsResponse:
    """DescribeConfigs, v0-4.  v1 sources and synonyms · v3 types and documentation.

    Beyond Kafka 3.8, which refuses them: groups (type 32). They have one read-only entry, `leadline.rebalances`, with
    the last rebalances as a JSON list, the newest last. Each is an object:
        began_ms, took_ms       when, and how long; took_ms is null while it is under way, as all *_after are
        state                   of the group before: Empty, Stable, CompletingRebalance
        causes, more_causes     a list of objects, the first one set it off, and how many more there were:
                                what (a `RebalanceReason`), member_id, instance_id (or null), client_id, client_host,
                                reason (in the client's words, or null)
        outcome                 stable, empty, interrupted (by the next one), or null
        generation_before, generation_after, members_before, members_after
    And of a broker, if asked for by name, what it knows of a partition: see `explanations`.
    """
    results = []
    for asked in request.resources:
        told = _Told(resource_type=asked.resource_type, resource_name=asked.resource_name, error_message="")
        try:
            found = await _describe(Resource(asked.resource_type, asked.resource_name), asked.configuration_keys, ctx)
            told.configs = [_shaped(entry, request, ctx.version) for entry in found]
        except WireError as error:
            told.error_code, told.error_message = error.code, str(error)
        results.append(told)
    return DescribeConfigsResponse(results=results)


async def _describe(resource: Resource, names: list[str] | None, ctx: Context) -> list[ConfigEntry]:
    layers = ctx.services.layers()
    if resource.type == TOPIC:
        check_name(resource.name)
        ctx.services.metadata.topic(resource.name)
        return describe_topic(layers, await ctx.services.configs.of_topic(resource.name), names)
    if resource.type == GROUP:
        return [_rebalances(resource.name, ctx)]
    if resource.type != BROKER:
        raise InvalidRequest(f"resource type {resource.type} has no settings here: topics (2) and brokers (4) have")
    if resource.name == ALL_BROKERS:
        return describe_broker_defaults(layers, names)
    _check_broker(resource.name, ctx)
    return [*describe_broker(layers, names), *explanations(names, ctx.services)]


def _rebalances(group_id: str, ctx: Context) -> ConfigEntry:
    group = ctx.services.groups.find(group_id)
    if group is None:
        raise GroupIdNotFound(f"there is no group {group_id}")
    return ConfigEntry(
        name=REBALANCES,
        value=json.dumps([rebalance.to_json() for rebalance in group.rebalances.rebalances]),
        source=ConfigSource.DEFAULT,
        read_only=True,
        sensitive=False,
        synonyms=(),
        kind=ConfigType.STRING,
        documentation="the last rebalances of the group, a JSON list with the newest last",
    )


def _check_broker(name: str, ctx: Context) -> None:
    me = ctx.services.metadata.me.id
    if name != str(me):
        raise InvalidRequest(f"Unexpected broker id, expected {me} or empty string, but received {name}")


def _shaped(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> _Entry:
    return _Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.is_default,  # later versions tell it by the source
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=0 if entry.kind is None else entry.kind,
        documentation=entry.documentation if request.include_documentation else None,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(name=each.name, value=each.value, source=each.source)
            for each in (entry.synonyms if request.include_synonyms else ())
        ],
    )


async def alter_configs(request: AlterConfigsRequest, ctx: Context) -> AlterConfigsResponse:
    """AlterConfigs, v0-2: all settings of a resource at once; what is not named goes back to its default."""
    responses = []
    often = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    for asked in request.resources:
        resource = Resource(asked.resource_type, asked.resource_name)
        changes = [(entry.name, int(AlterConfigOp.SET), entry.value) for entry in asked.configs]
        edit = Edit(changes, keep=False, only_check=request.validate_only, repeated=often[resource] > 1)
        code, message = await _alter(resource, edit, ctx)
        responses.append(
            AlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
            )
        )
    return AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, ctx: Context
) -> IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs, v0-1: set, delete, append to and subtract from single settings."""
    responses = []
    often = Counter((asked.resource_type, asked.resource_name) for asked in request.resources)
    for asked in request.resources:
        resource = Resource(asked.resource_type, asked.resource_name)
        changes = [(entry.name, entry.config_operation, entry.value) for entry in asked.configs]
        edit = Edit(changes, keep=True, only_check=request.validate_only, repeated=often[resource] > 1)
        code, message = await _alter(resource, edit, ctx)
        responses.append(
            IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
                error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


class Edit(NamedTuple):
    """What is to be done to the settings of a resource."""

    asked: list[tuple[str, int, str | None]]  # name, operation and value, as they came
    keep: bool  # what is not named stays as it is
    only_check: bool
    repeated: bool  # the request names the resource more than once

    def changes(self) -> list[ConfigChange]:
        twice = [name for name, count in Counter(name for name, _, _ in self.asked).items() if count > 1]
        if twice:
            raise InvalidRequest(f"{', '.join(twice)}: more than once in one change")
        nulls = [name for name, op, value in self.asked if value is None and op != AlterConfigOp.DELETE]
        if nulls:
            raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")
        if wrong := [op for _, op, _ in self.asked if op not in list(AlterConfigOp)]:
            raise InvalidRequest(f"there is no operation {wrong[0]}: 0 set, 1 delete, 2 append and 3 subtract are")
        return [ConfigChange(name, AlterConfigOp(op), value) for name, op, value in self.asked]


async def _alter(resource: Resource, edit: Edit, ctx: Context) -> tuple[int, str | None]:
    """The error code and what there is to say. A bad value is a wrong setting of a topic, but a wrong request to a
    broker: so it is in Kafka."""
    try:
        if edit.repeated:
            raise InvalidRequest(f"the request names {resource.name!r} more than once")
        change = _alter_topic if resource.type == TOPIC else _alter_broker
        await change(resource, edit, ctx)
    except InvalidSetting as error:
        is_config = resource.type == TOPIC or isinstance(error, NotAList)
        return InvalidConfig.code if is_config else InvalidRequest.code, str(error)
    except WireError as error:
        return error.code, str(error)
    return NONE, None


async def _alter_topic(resource: Resource, edit: Edit, ctx: Context) -> None:
    changes = edit.changes()
    if not resource.name:
        raise InvalidRequest("Default topic resources are not allowed.")

    def altered(current: Mapping[str, str]) -> dict[str, str]:
        return altered_topic(ctx.services.layers(), current if edit.keep else {}, changes)

    cluster = ctx.services.cluster
    if edit.only_check:
        ctx.services.metadata.topic(resource.name)
        altered(await ctx.services.configs.of_topic(resource.name))
    else:
        await cluster.alter_topic_config(resource.name, altered)


async def _alter_broker(resource: Resource, edit: Edit, ctx: Context) -> None:
    changes = edit.changes()
    if resource.type != BROKER:
        raise InvalidRequest(f"resource type {resource.type} has no settings here: topics (2) and brokers (4) have")
    for_all = resource.name == ALL_BROKERS
    if not for_all:
        _check_broker(resource.name, ctx)

    def altered() -> dict[str, str]:
        layers = ctx.services.layers()
        if not edit.keep:
            layers = replace(layers, dynamic_default={}) if for_all else replace(layers, dynamic_broker={})
        return altered_broker(layers, changes, for_all=for_all)[0]

    if edit.only_check:
        altered()
    else:
        await ctx.services.cluster.alter_broker_config(altered, of_all=for_all)

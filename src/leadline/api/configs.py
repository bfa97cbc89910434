"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs: the settings of topics and brokers, and log levels."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from leadline.api.broker_loggers import alter_levels, check_levels, describe_loggers
from leadline.api.context import Context
from leadline.api.explanations import explanations
from leadline.config.alter import AlterConfigOp, ConfigChange, NotApplicable, altered_broker, altered_topic
from leadline.config.describe import (
    ConfigEntry,
    ConfigSource,
    describe_broker,
    describe_broker_defaults,
    describe_topic,
)
from leadline.config.values import ConfigType, InvalidSetting
from leadline.controller.topics import check_name
from leadline.errors import GroupIdNotFound, InvalidConfig, InvalidRequest, UnknownServerError, WireError
from leadline.model import NONE
from leadline.wire.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16
REBALANCES = "leadline.rebalances."  # and the id of a group

# Of a request, for the table of authorization.
PARTS = {TOPIC: "topics", BROKER: "brokers", BROKER_LOGGER: "brokers", CLIENT_METRICS: "brokers"}
ALL_BROKERS = ""
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult


class Resource(NamedTuple):
    type: int
    name: str

    def check_access(self, ctx: Context) -> None:
        """Raises the refusal if the client may not."""
        part = PARTS.get(self.type)
        if part is not None and (refusal := ctx.refused(part, self.name)) is not None:
            raise refusal


async def describe_configs(request: DescribeConfigsRequest, ctx: Context) -> DescribeConfigsResponse:
    """DescribeConfigs, v0-4.  v1 sources and synonyms · v3 types and documentation.

    A broker has further entries that are returned only if the request names them: see `explanations`. If it names
    nothing but `leadline.rebalances.GROUP`, it is a request about groups, whose rights count. Such an entry is a JSON
    list of the last rebalances of a group that this broker coordinates, the newest last. A rebalance is an object:
        began_ms, took_ms       the start and the duration; took_ms and all *_after are null until it ends
        state                   the state of the group before: Empty, Stable, CompletingRebalance
        causes, more_causes     a list of objects, beginning with the first cause, and the number of further causes:
                                what (a `RebalanceReason`), member_id, instance_id (or null), client_id, client_host,
                                reason (from the client, or null)
        outcome                 stable, empty, interrupted (by the next rebalance), or null
        generation_before, generation_after, members_before, members_after
    Apache Kafka's brokers leave out entries that they do not have.
    """
    results = []
    for requested in request.resources:
        result = _Result(resource_type=requested.resource_type, resource_name=requested.resource_name, error_message="")
        try:
            entries = await _describe(
                Resource(requested.resource_type, requested.resource_name), requested.configuration_keys, ctx
            )
            result.configs = [_entry(entry, request, ctx.version) for entry in entries]
        except WireError as error:
            result.error_code, result.error_message = error.code, str(error)
        results.append(result)
    return DescribeConfigsResponse(results=results)


async def _describe(resource: Resource, names: list[str] | None, ctx: Context) -> list[ConfigEntry]:
    if resource.type == BROKER and (groups := _groups_in(names)):
        _check_broker(resource.name, "Broker", ctx)
        return [_rebalances(group_id, ctx) for group_id in groups]
    resource.check_access(ctx)
    layers = ctx.services.layers()
    if resource.type == TOPIC:
        check_name(resource.name)
        ctx.services.metadata.topic(resource.name)
        return describe_topic(layers, await ctx.services.configs.of_topic(resource.name), names)
    if resource.type == BROKER_LOGGER:
        _check_own_loggers(resource.name, ctx)
        return describe_loggers(names)
    if resource.type != BROKER:
        raise InvalidRequest(InvalidRequest.default_message)
    if resource.name == ALL_BROKERS:
        return describe_broker_defaults(layers, names)
    _check_broker(resource.name, "Broker", ctx)
    return [*describe_broker(layers, names), *explanations(names, ctx.services.replicas, ctx.services.clock.now_ms())]


def _groups_in(names: list[str] | None) -> list[str]:
    """The groups whose rebalances are requested, if nothing else is."""
    groups = [name.removeprefix(REBALANCES) for name in names or () if name.startswith(REBALANCES)]
    return groups if len(groups) == len(names or ()) else []


def _rebalances(group_id: str, ctx: Context) -> ConfigEntry:
    if (refusal := ctx.refused("groups", group_id)) is not None:
        raise refusal
    group = ctx.services.groups.find(group_id)
    if group is None:
        raise GroupIdNotFound(f"group {group_id} does not exist")
    return ConfigEntry(
        name=f"{REBALANCES}{group_id}",
        value=json.dumps([rebalance.to_json() for rebalance in group.rebalances.rebalances]),
        source=ConfigSource.DEFAULT,
        read_only=True,
        sensitive=False,
        synonyms=(),
        kind=ConfigType.STRING,
        documentation="the last rebalances of the group, a JSON list with the newest last",
    )


def _check_broker(name: str, kind: str, ctx: Context) -> None:
    me = ctx.services.metadata.me.id
    if not _INTEGER.fullmatch(name):
        raise InvalidRequest(f"{kind} id must be an integer, but it is: {name}")
    if int(name) != me:
        raise InvalidRequest(f"Unexpected broker id, expected {me} or empty string, but received {name}")


def _check_own_loggers(name: str, ctx: Context) -> None:
    """They are those of one broker, not of all."""
    me = ctx.services.metadata.me.id
    if name == ALL_BROKERS:
        raise InvalidRequest("Broker id must not be empty")
    if not _INTEGER.fullmatch(name):
        raise InvalidRequest(f"Broker id must be an integer, but it is: {name}")
    if int(name) != me:
        raise InvalidRequest(f"Unexpected broker id, expected {me} but received {name}")


def _entry(entry: ConfigEntry, request: DescribeConfigsRequest, version: int) -> _Entry:
    return _Entry(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        is_default=version == 0 and entry.is_default,  # later versions have the source instead
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=0 if entry.kind is None else entry.kind,
        documentation=entry.documentation if request.include_documentation or not entry.documentation else None,
        synonyms=[
            DescribeConfigsResponse.DescribeConfigsSynonym(
                name=synonym.name, value=synonym.value, source=synonym.source
            )
            for synonym in (entry.synonyms if request.include_synonyms else ())
        ],
    )


async def alter_configs(request: AlterConfigsRequest, ctx: Context) -> AlterConfigsResponse:
    """AlterConfigs, v0-2: replaces all settings of a resource; others go back to their defaults."""
    edits = [
        (
            Resource(requested.resource_type, requested.resource_name),
            [(entry.name, int(AlterConfigOp.SET), entry.value) for entry in requested.configs],
        )
        for requested in request.resources
    ]
    altered = await _alter_all(edits, ctx, keep=False, only_check=request.validate_only)
    responses = [
        AlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
        )
        for resource, code, message in altered
    ]
    return AlterConfigsResponse(responses=responses)


async def incremental_alter_configs(
    request: IncrementalAlterConfigsRequest, ctx: Context
) -> IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs, v0-1: set, delete, append to and subtract from single settings."""
    edits = [
        (
            Resource(requested.resource_type, requested.resource_name),
            [(entry.name, entry.config_operation, entry.value) for entry in requested.configs],
        )
        for requested in request.resources
    ]
    altered = await _alter_all(edits, ctx, keep=True, only_check=request.validate_only)
    responses = [
        IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
            error_code=code, error_message=message, resource_type=resource.type, resource_name=resource.name
        )
        for resource, code, message in altered
    ]
    return IncrementalAlterConfigsResponse(responses=responses)


Entries = list[tuple[str, int, str | None]]  # name, operation and value, unchecked


class ConfigEdit(NamedTuple):
    """A requested change of the settings of a resource."""

    entries: Entries
    keep: bool  # settings that are not named keep their values
    only_check: bool
    repeated: bool  # the request names the resource more than once

    def changes(self, *, of_topic: bool) -> list[ConfigChange]:
        if len({name for name, _, _ in self.entries}) < len(self.entries):
            raise InvalidRequest("Error due to duplicate config keys")
        nulls = [name for name, op, value in self.entries if value is None and op != AlterConfigOp.DELETE]
        if nulls:
            raise InvalidRequest(f"Null value not supported for : {', '.join(nulls)}")
        if unknown := [op for _, op, _ in self.entries if op not in list(AlterConfigOp)]:
            message = f"Unknown operations type {unknown[0]}"
            raise UnknownServerError(message) if of_topic else InvalidRequest(message)
        return [ConfigChange(name, AlterConfigOp(op), value) for name, op, value in self.entries]


async def _alter_all(
    edits: list[tuple[Resource, Entries]], ctx: Context, *, keep: bool, only_check: bool
) -> list[tuple[Resource, int, str | None]]:
    """One resource after the other. Returns error code and message of each."""
    counts = Counter(resource for resource, _ in edits)
    altered = []
    for resource, entries in edits:
        edit = ConfigEdit(entries, keep, only_check, repeated=counts[resource] > 1)
        altered.append((resource, *await _alter(resource, edit, ctx)))
    return altered


async def _alter(resource: Resource, edit: ConfigEdit, ctx: Context) -> tuple[int, str | None]:
    """Returns error code and message.

    As in Kafka, a bad value is InvalidConfig for a topic, but InvalidRequest for a broker.
    """
    try:
        if edit.repeated:
            raise InvalidRequest("Each resource must appear at most once.")
        if resource.type == BROKER_LOGGER and edit.keep:
            _alter_loggers(resource, edit, ctx)
        else:
            await (_alter_topic if resource.type == TOPIC else _alter_broker)(resource, edit, ctx)
    except InvalidSetting as error:
        is_config = resource.type == TOPIC or isinstance(error, NotApplicable)
        prefix = f"Invalid config value for resource ConfigResource(type=TOPIC, name='{resource.name}'): "
        is_value = resource.type == TOPIC and str(error).startswith("Invalid value")
        return InvalidConfig.code if is_config else InvalidRequest.code, f"{prefix if is_value else ''}{error}"
    except WireError as error:
        return error.code, str(error)
    return NONE, None


async def _alter_topic(resource: Resource, edit: ConfigEdit, ctx: Context) -> None:
    if not resource.name:
        raise InvalidRequest("Default topic resources are not allowed.")
    changes = edit.changes(of_topic=True)
    resource.check_access(ctx)

    def altered(current: Mapping[str, str]) -> dict[str, str]:
        return altered_topic(ctx.services.layers(), current if edit.keep else {}, changes)

    if edit.only_check:
        ctx.services.metadata.topic(resource.name)
        altered(await ctx.services.configs.of_topic(resource.name))
    else:
        await ctx.services.cluster.alter_topic_config(resource.name, altered)


def _alter_loggers(resource: Resource, edit: ConfigEdit, ctx: Context) -> None:
    changes = edit.changes(of_topic=True)
    resource.check_access(ctx)
    me = ctx.services.metadata.me.id
    if not _INTEGER.fullmatch(resource.name):
        raise InvalidRequest(f"Node id must be an integer, but it is: {resource.name}")
    if int(resource.name) != me:
        raise InvalidRequest(f"Unexpected node id. Expected {me}, but received {resource.name}")
    check_levels(changes)
    if not edit.only_check:
        alter_levels(changes)


async def _alter_broker(resource: Resource, edit: ConfigEdit, ctx: Context) -> None:
    changes = edit.changes(of_topic=False)
    if resource.type != BROKER:
        raise InvalidRequest(f"Unknown resource type {resource.type}")
    for_all = resource.name == ALL_BROKERS
    if not for_all:
        _check_broker(resource.name, "Node", ctx)

    def altered() -> dict[str, str]:
        layers = ctx.services.layers()
        if not edit.keep:
            layers = replace(layers, dynamic_default={}) if for_all else replace(layers, dynamic_broker={})
        after = altered_broker(layers, changes, for_all=for_all)
        if not for_all:
            ctx.services.check_listeners(replace(layers, dynamic_broker=after).settings())
        return after

    altered()  # raises the error of the value, to any client, as in Kafka
    resource.check_access(ctx)
    if not edit.only_check:
        if not for_all:
            ctx.services.read_stores_again()
        await ctx.services.cluster.alter_broker_config(altered, of_all=for_all)

"""DescribeClientQuotas and AlterClientQuotas: the quotas of users, client ids and addresses.

Both go to the tree, and every broker of a cluster serves them. `security/quota_nodes.py` has the rules, in Kafka's
words.
"""

from collections.abc import Mapping
from functools import partial

from leadline import hash_order
from leadline.api.context import Context
from leadline.coordination import znodes
from leadline.coordination.node_json import MalformedNode
from leadline.errors import InvalidRequest, UnknownServerError, WireError
from leadline.security.client_quotas import DEFAULT
from leadline.security.quota_nodes import (
    ConfigEntity,
    IpEntity,
    QuotaAlteration,
    QuotaFilter,
    QuotaFilterComponent,
    altered,
    entity_of_request,
    names_of,
    quota_values_in,
)
from leadline.wire.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_Described = DescribeClientQuotasResponse.EntryData
_Altered = AlterClientQuotasResponse.EntryData
_EntityNames = Mapping[str, str | None]  # by type; None: the default


async def describe_client_quotas(request: DescribeClientQuotasRequest, ctx: Context) -> DescribeClientQuotasResponse:
    """DescribeClientQuotas, v0-1.  v1 flexible."""
    try:
        if (refusal := ctx.refused("cluster")) is not None:
            raise refusal
        quota_filter = QuotaFilter(tuple(map(_component, request.components)), request.strict)
        quota_filter.check()
        entries = [
            _described(entity, values)
            async for entity, config in ctx.services.client_configs.entities()
            if quota_filter.matches(entity) and (values := quota_values_in(entity, config))
        ]
    except WireError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=str(error), entries=None)
    except MalformedNode as error:
        return DescribeClientQuotasResponse(
            error_code=UnknownServerError.code,
            error_message=f"{UnknownServerError.default_message} {error}",
            entries=None,
        )
    return DescribeClientQuotasResponse(entries=entries)


def _component(component: DescribeClientQuotasRequest.ComponentData) -> QuotaFilterComponent:
    """Its match type is 0, the name; 1, the default; or 2, any."""
    match component.match_type, component.match:
        case 0, str(name):
            return QuotaFilterComponent(component.entity_type, name)
        case 1, _:
            return QuotaFilterComponent(component.entity_type, DEFAULT)
        case 2, _:
            return QuotaFilterComponent(component.entity_type, None)
    raise UnknownServerError(UnknownServerError.default_message)


def _described(entity: ConfigEntity, values: Mapping[str, float]) -> _Described:
    """The values are in Kafka's order, which kafka-configs shows."""
    keys = hash_order.mutable(values, hash_order.string_hash)
    return _Described(
        entity=[
            DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=None if name is DEFAULT else name)
            for kind, name in names_of(entity).items()
        ],
        values=[DescribeClientQuotasResponse.ValueData(key=key, value=values[key]) for key in keys],
    )


async def alter_client_quotas(request: AlterClientQuotasRequest, ctx: Context) -> AlterClientQuotasResponse:
    """AlterClientQuotas, v0-1.  v1 flexible. Each entity fails by itself; one that is named twice is reported once."""
    refusal = ctx.refused("cluster")
    results = dict[frozenset[tuple[str, str | None]], _Altered]()
    for entry in request.entries:
        names: _EntityNames = {part.entity_type: part.entity_name for part in entry.entity}
        error = refusal
        if error is None:
            error = await _alter(names, entry.ops, request.validate_only, ctx)
        results[frozenset(names.items())] = _result(names, error)
    return AlterClientQuotasResponse(entries=list(results.values()))


async def _alter(
    names: _EntityNames, ops: list[AlterClientQuotasRequest.OpData], validate_only: bool, ctx: Context
) -> WireError | None:
    """Why the quotas of one entity cannot be altered; None: they are."""
    store = ctx.services.client_configs
    try:
        entity = entity_of_request(names.items())
        if isinstance(entity, IpEntity) and entity.ip is not DEFAULT and await store.address_of(entity.ip) is None:
            raise InvalidRequest(f"{znodes.sanitize(entity.ip)} is not a valid IP or resolvable host.")
        changes = [QuotaAlteration(op.key, None if op.remove else op.value) for op in ops]
        if validate_only:
            altered(entity, await store.config(entity), changes)
        else:
            await store.alter(entity, partial(altered, entity, changes=changes))
    except WireError as error:
        return error
    except MalformedNode as error:
        return UnknownServerError(f"{UnknownServerError.default_message} {error}")
    return None


def _result(names: _EntityNames, error: WireError | None) -> _Altered:
    entity = [AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=names[kind]) for kind in names]
    if error is None:
        return _Altered(error_message=None, entity=entity)
    return _Altered(error_code=error.code, error_message=str(error), entity=entity)

"""Requests that alter and describe the quotas of clients."""

from collections.abc import Mapping

from leadline.wire.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest

EntityNames = Mapping[str, str | None]  # by type; None: the default
QuotaComponent = tuple[str, int, str | None]  # entity type, match type, name


def altering(
    names: EntityNames, values: Mapping[str, float | None], validate_only: bool = False
) -> AlterClientQuotasRequest:
    """A value of None is removed."""
    ops = [
        AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)
        for key, value in values.items()
    ]
    parts = [AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=names[kind]) for kind in names]
    entry = AlterClientQuotasRequest.EntryData(entity=parts, ops=ops)
    return AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)


def describing(*components: QuotaComponent, strict: bool = False) -> DescribeClientQuotasRequest:
    parts = [
        DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match, match=name)
        for kind, match, name in components
    ]
    return DescribeClientQuotasRequest(components=parts, strict=strict)

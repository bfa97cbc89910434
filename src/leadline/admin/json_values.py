"""Values of the JSON that commands print."""

import base64
from collections.abc import Mapping, Sequence

Json = str | int | float | bool | None | Sequence["Json"] | Mapping[str, "Json"]


def json_bytes(name: str, data: bytes | None) -> dict[str, Json]:
    """Bytes as a member of a JSON object: UTF-8 as text, other bytes as base64 under NAME_base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}

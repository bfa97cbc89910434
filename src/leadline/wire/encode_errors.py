"""Says which field of a message cannot be written. Slow, and only asked once writing has failed."""

from collections.abc import Iterator

from leadline.model import NO_ID
from leadline.wire import schema
from leadline.wire.classes import Message, Struct
from leadline.wire.primitives import MAX_STRING

_RANGES = {
    "int8": range(-(2**7), 2**7),
    "int16": range(-(2**15), 2**15),
    "uint16": range(2**16),
    "int32": range(-(2**31), 2**31),
    "int64": range(-(2**63), 2**63),
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    "bool": bool,
    "float64": (float, int),
    "uuid": type(NO_ID),
    "string": str,
    "bytes": (bytes, bytearray, memoryview),
    "records": object,
}


class NotInVersion(ValueError):
    """A value for a field that the version does not have and that may not be left out silently."""

    def __init__(self, path: str, version: int) -> None:
        super().__init__(f"{path} is not in version {version}, and its value must not get lost")
        self.path, self.version = path, version


def misfit(message: Message, version: int, error: Exception) -> ValueError:
    """An error that names the field, made from one that does not."""
    if isinstance(error, NotInVersion):
        return error
    problem = next(_of_struct(message, version, type(message).__qualname__), f"{type(message).__qualname__}: {error}")
    return ValueError(f"{problem}; cannot be written in version {version}")


def _of_struct(struct: Struct, version: int, path: str) -> Iterator[str]:
    for field in struct.SPEC.fields:
        if version in field.versions:
            yield from _of_field(field, getattr(struct, field.name), version, f"{path}.{field.name}")


def _of_field(field: schema.FieldSchema, value: object, version: int, path: str) -> Iterator[str]:
    if value is None:
        if version not in field.nullable:
            yield f"{path} is null"
    elif not field.is_array:
        yield from _of_value(field, value, version, path)
    elif isinstance(value, list | tuple):
        for i, element in enumerate(value):
            yield from _of_value(field, element, version, f"{path}[{i}]")
    else:
        yield f"{path} is {value!r}, not a list"


def _of_value(field: schema.FieldSchema, value: object, version: int, path: str) -> Iterator[str]:
    if field.struct is not None:
        if isinstance(value, Struct) and value.SPEC is field.struct:
            yield from _of_struct(value, version, path)
        else:
            yield f"{path} is {value!r}, not a {field.kind}"
    elif field.kind in _RANGES:
        if not isinstance(value, int) or value not in _RANGES[field.kind]:
            yield f"{path} is {value!r}, not an {field.kind}"
    elif not isinstance(value, _TYPES[field.kind]):
        yield f"{path} is {value!r}, not a {field.kind}"
    elif isinstance(value, str) and len(value.encode(errors="surrogatepass")) > MAX_STRING:
        yield f"{path} has {len(value.encode(errors='surrogatepass'))} bytes, and {MAX_STRING} are the limit"
    elif isinstance(value, str) and not _is_utf8(value):
        yield f"{path} is {value!r}, which has no UTF-8"


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True

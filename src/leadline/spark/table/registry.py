"""Values that name their schema: Avro and Protobuf as clients of a schema registry write them.

Format: 0, the schema's id (4 bytes, big-endian), then the document; in Protobuf, first which message of the schema it
is: a count and that many indexes, from the outermost message inwards (varints; a count of 0 stands for the first one).
Schemas come from a registry (a URL, in Confluent's API) or from a directory: ID.avsc, or ID.desc as
`protoc --include_imports --descriptor_set_out` writes it.
The fragment of the URL names files that give access (ACCESS).
"""
# mypy: disable-error-code="import-untyped"

import base64
import io
import json
import ssl
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from leadline.config.settings import nearest
from leadline.records import varint
from leadline.spark.errors import without_credentials
from leadline.spark.table.evolution import Conflict
from leadline.spark.table.payload import Document, Parser

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

HEAD = struct.Struct(">bI")
TIMEOUT_S = 10
ACCESS = {  # files, which every executor must have
    "token-file": "a bearer token; it is read for each request, so it may be replaced",
    "ca": "certificates of the authorities that may have signed that of the registry",
    "cert": "the certificate of this client",
    "key": "its private key, if that is not in the file of the certificate",
}
MISSING_S = 30

P = ParamSpec("P")
T = TypeVar("T")


class NoSchema(OSError):
    """The registry does not answer, or lacks a schema that records name."""


def parser_of(format: str, registry: str) -> Parser:
    return {"avro": partial(_parse_avro, registry), "protobuf": partial(_parse_protobuf, registry)}[format]


_all_missing: list[dict[object, tuple[float, Conflict]]] = []  # of all lookups


def forget_missing() -> None:
    """The next lookup asks the registry again for missing schemas."""
    for missing in _all_missing:
        missing.clear()


def remembered(find: Callable[P, T]) -> Callable[P, T]:
    """Caches results for ever, and misses for MISSING_S, so that not every record asks the registry."""
    results: dict[object, T] = {}
    missing: dict[object, tuple[float, Conflict]] = {}
    _all_missing.append(missing)

    @wraps(find)
    def look_up(*args: P.args, **kwargs: P.kwargs) -> T:
        if args in results:
            return results[args]
        until_s, conflict = missing.get(args, (0.0, None))
        if conflict is not None and time.monotonic() < until_s:
            raise conflict
        try:
            results[args] = find(*args, **kwargs)
        except Conflict as error:
            missing[args] = time.monotonic() + MISSING_S, error
            raise
        return results[args]

    return look_up


def _split(value: bytes) -> tuple[int, bytes]:
    """The schema's id and the document."""
    if len(value) < HEAD.size or value[0] != 0:
        raise Conflict("not written through a schema registry: it does not start with 0 and a schema's id")
    return HEAD.unpack_from(value)[1], value[HEAD.size :]


def with_access(registry: str, access: Mapping[str, str]) -> str:
    """The URL of a registry with the files that give access to it, which its fragment names. It holds no secret."""
    for name in access:
        if name not in ACCESS:
            raise NoSchema(f"there is no option {name} for a registry{nearest(name, ACCESS)}")
    if access and not _is_url(registry):
        raise NoSchema(f"{', '.join(access)}: these options are for a registry with a URL")
    return f"{registry}#{urlencode(access)}" if access else registry


def _access(registry: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(registry).fragment))


def _tls(access: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=access.get("ca"))
    if "cert" in access:
        context.load_cert_chain(access["cert"], access.get("key"))
    return context


def _request(registry: str, path: str) -> urllib.request.Request:
    """A user and password in the URL of a registry become a login, and are in no error text."""
    place = urlsplit(registry)._replace(fragment="")
    access = _access(registry)
    login, _, host = place.netloc.rpartition("@")
    request = urllib.request.Request(f"{urlunsplit(place._replace(netloc=host)).rstrip('/')}/{path}")
    if login:
        request.add_header("Authorization", f"Basic {base64.b64encode(unquote(login).encode()).decode()}")
    elif "token-file" in access:
        request.add_header("Authorization", f"Bearer {Path(access['token-file']).read_text().strip()}")
    return request


def _get(registry: str, path: str) -> Any:
    access, shown = _access(registry), without_credentials(registry.partition("#")[0])
    url = f"{shown.rstrip('/')}/{path}"
    try:
        request = _request(registry, path)
        context = _tls(access) if request.type == "https" else None
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 404:
                raise Conflict(f"the registry at {shown} has nothing at /{path}") from None
            raise NoSchema(f"{url}: {error}") from None
    except (OSError, ValueError) as error:
        raise NoSchema(f"{url}: {error}") from None


def _file(registry: str, name: str) -> bytes:
    try:
        return (Path(registry) / name).read_bytes()
    except FileNotFoundError:
        raise Conflict(f"there is no {name} in {registry}") from None


def _is_url(registry: str) -> bool:
    return registry.startswith(("http://", "https://"))


# Avro


def _parse_avro(registry: str, value: bytes) -> Document:
    import fastavro

    number, body = _split(value)
    schema, kind = _avro(registry, number)
    try:
        document = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
    except (
        ValueError,
        TypeError,
        EOFError,
        IndexError,
        KeyError,
        StopIteration,
        OverflowError,
        RecursionError,
    ) as error:
        raise Conflict(f"not Avro of schema {number}: {error or type(error).__name__}") from None
    assert isinstance(document, dict)
    return document, kind


@remembered
def _avro(registry: str, number: int) -> tuple[Any, pa.DataType]:
    if _is_url(registry):
        text = _get(registry, f"schemas/ids/{number}")["schema"]
    else:
        text = _file(registry, f"{number}.avsc")
    return avro_record(text, f"schema {number}")


def avro_record(text: str | bytes, name: str) -> tuple[Any, pa.DataType]:
    """A parsed schema, and the type of its records."""
    import fastavro

    try:
        plain = with_stored_types(json.loads(text))
        kind = avro_type(plain, {})
        schema = fastavro.parse_schema(plain)
    except (ValueError, KeyError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise Conflict(f"{name} is not an Avro schema: {error}") from None
    if not pa.types.is_struct(kind):
        raise Conflict(f"{name} is not a record, but {kind}")
    return schema, kind


def newest_schema(registry: str, subject: str) -> str:
    """The text of the newest schema of a subject."""
    if not _is_url(registry):
        return _file(registry, f"{subject}.avsc").decode()
    answer = _get(registry, f"subjects/{quote(subject, safe='')}/versions/latest")
    if answer.get("schemaType", "AVRO") != "AVRO":
        raise Conflict(f"the schema of {subject} is not an Avro schema, but {answer['schemaType']}")
    return str(answer["schema"])


AVRO = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
AVRO_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
AVRO_PARTS = ("type", "fields", "items", "values")  # of a schema, that hold schemas
MAX_PRECISION = 38


def avro_type(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    """The type of the values that fastavro returns. Conflict if tables have no such type."""
    if isinstance(schema, str):
        return AVRO[schema] if schema in AVRO else named[schema]
    if isinstance(schema, list):
        kinds = [kind for kind in (avro_type(branch, named) for branch in schema) if not pa.types.is_null(kind)]
        if len(kinds) > 1:
            raise Conflict(f"a union of {' and '.join(map(str, kinds))}: a column has one type")
        return kinds[0] if kinds else pa.null()
    logical = schema.get("logicalType")
    if logical in AVRO_LOGICAL:
        return AVRO_LOGICAL[logical]
    if logical == "decimal":
        return pa.decimal128(schema["precision"], schema.get("scale", 0))
    return _complex(schema, named)


def with_stored_types(schema: Any) -> Any:
    """An Avro schema without the logical types that both Delta and Iceberg lack. Their values stay as they are written:

    time-millis, time-micros, timestamp-nanos    whole numbers, in the unit of the name
    duration, big-decimal, wide decimals         bytes
    uuid                                         text, or bytes if it is fixed
    """
    if isinstance(schema, list):
        return [with_stored_types(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    plain = {name: with_stored_types(part) if name in AVRO_PARTS else part for name, part in schema.items()}
    logical = schema.get("logicalType")
    too_wide = logical == "decimal" and schema.get("precision", 0) > MAX_PRECISION
    if too_wide or (logical not in AVRO_LOGICAL and logical != "decimal"):
        plain.pop("logicalType", None)
    return plain


def _complex(schema: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    what = schema["type"]
    if what == "record":
        kind = pa.struct([pa.field(field["name"], avro_type(field["type"], named)) for field in schema["fields"]])
    elif what == "enum":
        kind = pa.string()
    elif what == "fixed":
        kind = pa.binary()
    elif what == "array":
        return pa.list_(avro_type(schema["items"], named))
    elif what == "map":
        return pa.map_(pa.string(), avro_type(schema["values"], named))
    else:
        return avro_type(what, named)
    named[schema["name"]] = kind
    return kind


# Protobuf


def _parse_protobuf(registry: str, value: bytes) -> Document:
    from google.protobuf.message import DecodeError

    number, body = _split(value)
    indexes, body = _indexes(body)
    make, kind = _protobuf(registry, number, indexes)
    message = make()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise Conflict(f"not Protobuf of schema {number}: {error}") from None
    return _fields(message), kind


def _indexes(body: bytes) -> tuple[tuple[int, ...], bytes]:
    indexes: list[int] = []
    try:
        count, at = varint.decode(body, 0)
        if not 0 <= count <= len(body):
            raise ValueError
        for _ in range(count):
            index, at = varint.decode(body, at)
            indexes.append(index)
    except (IndexError, ValueError):
        raise Conflict("not the Protobuf of a registry: it does not name its message") from None
    return tuple(indexes) or (0,), body[at:]


@remembered
def _protobuf(registry: str, number: int, indexes: tuple[int, ...]) -> tuple[Callable[[], Any], pa.DataType]:
    from google.protobuf import message_factory

    messages = _messages(registry, number)
    message = None
    for index in indexes:
        if not 0 <= index < len(messages):
            raise Conflict(f"schema {number} has no message {'.'.join(map(str, indexes))}")
        message = messages[index]
        messages = list(message.nested_types)
    assert message is not None
    return message_factory.GetMessageClass(message), protobuf_type(message, ())


def _messages(registry: str, number: int) -> "list[Descriptor]":
    from google.protobuf import descriptor_pb2, descriptor_pool
    from google.protobuf.message import DecodeError

    files = descriptor_pb2.FileDescriptorSet()
    pool = descriptor_pool.DescriptorPool()
    try:
        if _is_url(registry):
            _download(registry, _get(registry, f"schemas/ids/{number}?format=serialized"), files)
        else:
            files.ParseFromString(_file(registry, f"{number}.desc"))
        for file in files.file:
            pool.Add(file)
        newest = pool.FindFileByName(files.file[-1].name)
    except (DecodeError, TypeError, KeyError, IndexError, ValueError) as error:
        raise Conflict(f"schema {number} is not a Protobuf schema: {error}") from None
    return list(newest.message_types_by_name.values())


def _download(registry: str, answer: Any, files: Any) -> None:
    """Loads the imports of the schema, then the schema."""
    for reference in answer.get("references", ()):
        path = f"subjects/{reference['subject']}/versions/{reference['version']}?format=serialized"
        _download(registry, _get(registry, path), files)
        files.file[-1].name = reference["name"]
    files.file.add().ParseFromString(base64.b64decode(answer["schema"]))


PROTOBUF = {
    "CPPTYPE_INT32": pa.int64(),
    "CPPTYPE_INT64": pa.int64(),
    "CPPTYPE_UINT32": pa.int64(),
    "CPPTYPE_UINT64": pa.decimal128(20, 0),
    "CPPTYPE_DOUBLE": pa.float64(),
    "CPPTYPE_FLOAT": pa.float64(),
    "CPPTYPE_BOOL": pa.bool_(),
    "CPPTYPE_ENUM": pa.string(),
}


def protobuf_type(message: "Descriptor", above: tuple[str, ...]) -> pa.DataType:
    if message.full_name in above:
        raise Conflict(f"{message.full_name} contains itself: tables have no such type")
    if message.full_name == "google.protobuf.Timestamp":
        return pa.timestamp("us", "UTC")
    return pa.struct(
        [pa.field(field.name, _field_type(field, (*above, message.full_name))) for field in message.fields]
    )


def _field_type(field: "FieldDescriptor", above: tuple[str, ...]) -> pa.DataType:
    kind: pa.DataType
    if field.message_type is not None:
        kind = protobuf_type(field.message_type, above)
    elif field.cpp_type == field.CPPTYPE_STRING:
        kind = pa.binary() if field.type == field.TYPE_BYTES else pa.string()
    else:
        kind = next(kind for name, kind in PROTOBUF.items() if getattr(field, name) == field.cpp_type)
    return pa.list_(kind) if field.is_repeated else kind


def _fields(message: Any) -> dict[str, object]:
    fields: dict[str, object] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            elements = value.items() if field.message_type and field.message_type.GetOptions().map_entry else value
            fields[field.name] = [_element(field, element) for element in elements]
        else:
            is_there = not field.has_presence or message.HasField(field.name)
            fields[field.name] = _element(field, value) if is_there else None
    return fields


def _element(field: "FieldDescriptor", value: Any) -> object:
    if field.message_type is not None:
        if field.message_type.GetOptions().map_entry:
            key, inner = value
            entry = field.message_type.fields_by_name["value"]
            return {"key": key, "value": _element(entry, inner)}
        if field.message_type.full_name == "google.protobuf.Timestamp":
            return value.seconds * 1_000_000 + value.nanos // 1000
        return _fields(value)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return named.name if named is not None else str(value)
    return value

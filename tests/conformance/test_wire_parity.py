"""The schema text against Kafka's definitions, the codec against Kafka's classes and two other codecs."""

import base64
import importlib
import json
import re
import zipfile
from collections.abc import Iterator
from functools import cache
from io import BytesIO
from typing import Any

import pytest

from leadline.model import format_id
from leadline.wire import schema
from leadline.wire.apis import APIS
from leadline.wire.classes import Message, Struct, message_class
from leadline.wire.codec import decode, to_bytes
from tests.conformance.kafka import jars
from tests.conformance.test_wire_oracle import Refused, WireOracle, wire_oracle
from tests.unit.wire.random_messages import MESSAGES, RandomValues

pytestmark = pytest.mark.conformance

JARS = "kafka-clients", "kafka-group-coordinator", "kafka_2.13"
SEEDS = 4


@pytest.fixture(scope="module")
def kafka() -> Iterator[WireOracle]:
    with wire_oracle() as oracle:
        yield oracle


# The text against the definitions


@cache
def definitions() -> dict[str, dict[str, Any]]:
    by_name = {}
    for jar in JARS:
        with zipfile.ZipFile(jars.libs() / f"{jar}-{jars.VERSION}.jar") as opened:
            for name in opened.namelist():
                if re.fullmatch(r"common/message/\w+\.json", name):
                    definition = json.loads(re.sub(rb"(?m)^\s*//.*$", b"", opened.read(name)))
                    by_name[definition["name"]] = definition
    return by_name


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def span(notation: str | None, within: range) -> range:
    """In Kafka's notation; the part that lies within."""
    if notation in (None, "none"):
        return range(0)
    low, _, high = str(notation).rstrip("+").partition("-")
    last = within[-1] if str(notation).endswith("+") else int(high or low)
    return range(max(int(low), within[0]), min(last, within[-1]) + 1)


def their_default(field: dict[str, Any]) -> schema.Default:
    kind, default = field["type"], field.get("default")
    if default == "null" or kind == "records":
        return None
    if kind.startswith("[]") or kind not in schema.PRIMITIVES:
        return schema.EMPTY
    if default is None or kind == "uuid":
        return schema.PRIMITIVES[kind]
    if kind == "bool":
        return str(default).lower() == "true"
    return str(default) if kind == "string" else int(str(default), 0)


def theirs(definition: dict[str, Any]) -> object:
    versions = span(definition["validVersions"], range(1000))
    shared = {struct["name"]: struct for struct in definition.get("commonStructs", [])}

    def fields(of: list[dict[str, Any]], around: range) -> list[object]:
        return [field(one, around) for one in of]

    def field(one: dict[str, Any], around: range) -> object:
        here = span(one["versions"], around)
        kind = one["type"].removeprefix("[]")
        inner = one.get("fields")
        if kind in shared:
            inner, inside = shared[kind]["fields"], span(shared[kind]["versions"], versions)
        else:
            inside = here
        tag = int(one["tag"]) if "tag" in one else None
        assert tag is None or span(one["taggedVersions"], around) == here, "tagged in some versions only"
        return {
            "name": plain(one["name"]),
            "kind": kind,
            "is_array": one["type"].startswith("[]"),
            "versions": here,
            "nullable": span(one.get("nullableVersions"), here),
            "tag": tag,
            "default": their_default(one),
            "is_ignorable": one.get("ignorable", False),
            "is_rigid": one.get("flexibleVersions") == "none",
            "fields": fields(inner, inside) if inner else [],
        }

    return {
        "api_key": definition.get("apiKey"),
        "versions": versions,
        "flexible": span(definition["flexibleVersions"], versions),
        "fields": fields(definition["fields"], versions),
    }


def ours(message: schema.MessageSchema) -> object:
    def field(one: schema.FieldSchema) -> object:
        inner = [field(below) for below in one.struct.fields] if one.struct else []
        attributes = {key: value for key, value in one._asdict().items() if key != "struct"}
        return {**attributes, "name": plain(one.name), "fields": inner}

    head = message.head
    return {
        "api_key": head.api_key,
        "versions": head.versions,
        "flexible": head.flexible,
        "fields": [field(one) for one in message.root.fields],
    }


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_is_defined_as_in_kafka(name: str) -> None:
    assert ours(schema.message(name)) == theirs(definitions()[name])


def test_every_message_of_a_zookeeper_mode_broker_is_there() -> None:
    keys = {one["apiKey"] for one in definitions().values() if "zkBroker" in one.get("listeners", ())}
    assert {name for name, one in definitions().items() if one.get("apiKey") in keys} <= set(MESSAGES)
    assert len(keys) == 62


def test_apis_are_those_that_kafka_advertises(kafka: WireOracle) -> None:
    mine = {
        key: {
            "name": api.name,
            "headers": {
                str(version): [api.request_header_version(version), api.response_header_version(version)]
                for version in api.versions
            },
        }
        for key, api in APIS.items()
    }
    assert mine == kafka.apis()


# The codec against Kafka's classes


def shown(struct: Struct, version: int) -> dict[str, object]:
    """As Kafka's converters show a message: what the version has, and of the tagged fields what is not default."""
    result: dict[str, object] = {}
    for field in struct.SPEC.fields:
        value = getattr(struct, field.name)
        if version not in field.versions or (field.tag is not None and value == default_of(struct, field.name)):
            continue
        if field.kind == "records" and value is not None:
            result["recordssizeinbytes"] = len(value)
        elif field.is_array and value is not None:
            result[plain(field.name)] = [shown_value(element, version) for element in value]
        else:
            result[plain(field.name)] = shown_value(value, version)
    return result


def default_of(struct: Struct, name: str) -> object:
    return getattr(type(struct).DEFAULT, name)


def shown_value(value: object, version: int) -> object:
    if isinstance(value, Struct):
        return shown(value, version)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value if isinstance(value, bool | int | float | str) or value is None else format_id(value)  # type: ignore[arg-type]


def with_plain_names(value: object) -> object:
    if isinstance(value, dict):
        return {plain(key): with_plain_names(inner) for key, inner in value.items()}
    return [with_plain_names(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", MESSAGES)
def test_kafka_reads_what_we_write_and_writes_it_again(name: str, kafka: WireOracle) -> None:
    for version in message_class(name).VERSIONS:
        for seed in range(SEEDS):
            message = RandomValues(f"{name} {version} {seed}").message(name, version)
            data = to_bytes(message, version)
            again = kafka.rewrite(name, data, version, version)
            assert again.data == data, (version, seed)
            if again.json is not None:
                assert with_plain_names(again.json) == shown(message, version), (version, seed)
            assert decode(type(message), again.data, version) == message


@pytest.mark.parametrize("name", MESSAGES)
def test_a_message_of_defaults_is_the_same(name: str, kafka: WireOracle) -> None:
    for version in message_class(name).VERSIONS:
        assert to_bytes(message_class(name)(), version) == kafka.default(name, version).data, version


def outcome(message: Message, version: int) -> bytes | None:
    """None if it is refused: for a field that the version lacks, or a null that it cannot hold."""
    try:
        return to_bytes(message, version)
    except ValueError:
        return None


def their_outcome(kafka: WireOracle, name: str, data: bytes, read: int, write: int) -> bytes | None:
    try:
        return kafka.rewrite(name, data, read, write).data
    except Refused as refused:
        if refused.exception in ("UnsupportedVersionException", "NullPointerException"):
            return None
        raise


@pytest.mark.parametrize("name", MESSAGES)
def test_in_another_version_the_same_is_dropped_and_the_same_refused(name: str, kafka: WireOracle) -> None:
    versions = message_class(name).VERSIONS
    for read in versions:
        for write in versions:
            message = RandomValues(f"{name} {read} {write}", most=1).message(name, read)
            data = to_bytes(message, read)
            assert outcome(message, write) == their_outcome(kafka, name, data, read, write), (read, write)


# The codec against other codecs

PARTS_OF_KAFKA_PYTHON = "admin", "consumer", "metadata", "producer", "sasl"


def needed(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        pytest.skip(f"needs {package}")


def tame(name: str, version: int) -> bytes:
    return to_bytes(RandomValues(f"{name} {version}", is_tame=True).message(name, version), version)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


REQUESTS_AND_RESPONSES = [
    (api.name, kind, version) for api in APIS.values() for kind in ("request", "response") for version in api.versions
]


def test_kio_reads_what_we_write_and_writes_it_again() -> None:
    """It has neither the requests that only brokers send nor versions that Kafka 4 no longer speaks."""
    index, serial = needed("kio.index", "kio"), needed("kio.serial", "kio")
    kinds = importlib.import_module("kio.static.constants").EntityType
    compared = 0
    for api, kind, version in REQUESTS_AND_RESPONSES:
        name = api + kind.title()
        try:
            entity = getattr(index.load_entity_module(snake(api), version, kinds[kind]), name)
        except index.UnknownEntity:
            continue
        data = tame(name, version)
        with BytesIO() as target:
            message, size = serial.entity_reader(entity)(data, 0)
            serial.entity_writer(entity)(target, message)
            assert (target.getvalue(), size) == (data, len(data)), (name, version)
        compared += 1
    assert compared > 300


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its own imports
def test_kafka_python_reads_what_we_write_and_writes_it_again() -> None:
    parts = [needed(f"kafka.protocol.{part}", "kafka-python") for part in PARTS_OF_KAFKA_PYTHON]
    compared = 0
    for api, kind, version in REQUESTS_AND_RESPONSES:
        name = api + kind.title()
        theirs = next((getattr(part, name) for part in parts if hasattr(part, name)), None)
        if theirs is None:
            continue
        data = tame(name, version)
        message = theirs.decode(data, version=version)
        message._header = None  # what it decoded by itself it cannot encode without one
        assert message.encode(version=version) == data, (name, version)
        compared += 1
    assert compared > 400

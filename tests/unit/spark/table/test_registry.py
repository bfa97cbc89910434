"""Avro and Protobuf, as clients of a schema registry write them; schemas from a directory or a registry."""
# mypy: disable-error-code="import-untyped"

import base64
import io
import json
import ssl
import threading
from collections.abc import Iterator
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.spark.table import registry
from leadline.spark.table.column_types import type_name
from leadline.spark.table.evolution import Conflict
from leadline.spark.table.payload import shape_of
from leadline.spark.table.registry import NoSchema, avro_type, newest_schema, parser_of, with_access
from tests.support.certificates import authority, server_context
from tests.support.decoded import decoded

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "count", "type": "int"}]}}},
    ],
}  # fmt: skip


def head(number: int) -> bytes:
    return b"\0" + number.to_bytes(4, "big")


def avro(number: int, schema: object, document: object) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), document)  # type: ignore[arg-type]
    return head(number) + out.getvalue()


@pytest.fixture(autouse=True)
def nothing_is_missing_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MISSING_S", 0)


def test_a_record_of_avro_has_the_types_of_its_schema(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    document = {
        "id": 1,
        "price": Decimal("1.50"),
        "at": 1_700_000_000_000,
        "kind": "B",
        "note": None,
        "lines": [{"count": 3}],
    }
    parsed, kind = parser_of("avro", str(tmp_path))(avro(7, ORDER, document))
    assert pa.types.is_struct(kind)
    (row,) = pa.array([parsed], kind).to_pylist()
    assert (row["id"], row["price"], row["kind"], row["note"]) == (1, Decimal("1.50"), "B", None)
    assert row["at"].timestamp() == 1_700_000_000
    assert row["lines"] == [{"count": 3}]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (["int", "string"], "a union of int64 and string"),
        ({"type": "map", "values": ["int", "string"]}, "a union"),
    ],
)
def test_types_that_tables_lack_are_refused(schema: object, message: str) -> None:
    with pytest.raises(Conflict, match=message):
        avro_type(schema, {})


@pytest.mark.parametrize(
    ("schema", "value", "kind", "stored"),
    [
        ({"type": "int", "logicalType": "date"}, 3, "date", "1970-01-04"),
        ({"type": "long", "logicalType": "timestamp-millis"}, 2000, "timestamp", "1970-01-01 00:00:02+00:00"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 2000, "timestamp_ntz", "1970-01-01 00:00:02"),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            2000,
            "timestamp_ntz",
            "1970-01-01 00:00:00.002000",
        ),
        ({"type": "int", "logicalType": "time-millis"}, 7, "long", "7"),
        ({"type": "long", "logicalType": "time-micros"}, 7, "long", "7"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 7, "long", "7"),
        ({"type": "string", "logicalType": "uuid"}, "0-1", "string", "0-1"),
        ({"type": "fixed", "name": "f", "size": 12, "logicalType": "duration"}, b"x" * 12, "binary", str(b"x" * 12)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40}, b"\1", "binary", str(b"\1")),
        (
            {"type": "map", "values": {"type": "int", "logicalType": "time-millis"}},
            {"a": 1},
            "map<string,long>",
            "[('a', 1)]",
        ),
    ],
)
def test_all_logical_types_of_avro_have_a_column(
    schema: dict[str, object], value: object, kind: str, stored: str, tmp_path: Path
) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "x", "type": ["null", schema]}]}
    (tmp_path / "7.avsc").write_text(json.dumps(record))
    raw = json.loads(json.dumps(record).replace("logicalType", "other"))
    parsed, struct = parser_of("avro", str(tmp_path))(avro(7, raw, {"x": value}))
    assert struct is not None
    assert type_name(struct) == f"struct<x:{kind}>"
    assert str(pa.array([parsed], struct).to_pylist()[0]["x"]) == stored


@pytest.mark.parametrize("value", [b"", b"\0\0\0", b'{"id": 1}', b"\1\0\0\0\7"])
@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_what_names_no_schema_is_bad(value: bytes, format: str, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="not written through a schema registry"):
        parser_of(format, str(tmp_path))(value)


@pytest.mark.parametrize(("format", "file"), [("avro", "9.avsc"), ("protobuf", "9.desc")])
def test_a_missing_schema_is_reported(format: str, file: str, tmp_path: Path) -> None:
    with pytest.raises(Conflict, match=f"there is no {file} in"):
        parser_of(format, str(tmp_path))(head(9) + b"\0")


def order_file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    order = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    order.field.add(name="tags", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    line = order.nested_type.add(name="Line")
    line.field.add(name="count", number=1, type=kinds.TYPE_UINT32, label=kinds.LABEL_OPTIONAL)
    place = {"type": kinds.TYPE_MESSAGE, "label": kinds.LABEL_OPTIONAL}
    order.field.add(name="line", number=3, type_name=".shop.Order.Line", **place)
    order.field.add(name="at", number=4, type_name=".google.protobuf.Timestamp", **place)
    return file


def order_set() -> bytes:
    imported = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(imported)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[imported, order_file()]).SerializeToString())


def protobuf(number: int, indexes: bytes = b"\0") -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(order_set()).file:
        pool.Add(file)
    order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(id=5, tags=["a", "b"])
    order.line.count = 2
    order.at.seconds = 1_700_000_000
    return head(number) + indexes + bytes(order.SerializeToString())


def test_a_message_of_protobuf_has_the_types_of_its_schema(tmp_path: Path) -> None:
    (tmp_path / "3.desc").write_bytes(order_set())
    parsed, kind = parser_of("protobuf", str(tmp_path))(protobuf(3))
    (row,) = pa.array([parsed], kind).to_pylist()
    assert (row["id"], row["tags"], row["line"]) == (5, ["a", "b"], {"count": 2})
    assert row["at"].timestamp() == 1_700_000_000


def test_a_message_within_a_message_is_found_by_its_indexes(tmp_path: Path) -> None:
    (tmp_path / "3.desc").write_bytes(order_set())
    parsed, _ = parser_of("protobuf", str(tmp_path))(head(3) + b"\4\0\0" + b"\x08\x09")  # two of them: 0, 0
    assert parsed == {"count": 9}
    with pytest.raises(Conflict, match="schema 3 has no message 4"):
        parser_of("protobuf", str(tmp_path))(head(3) + b"\2\x08")


class Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = {
            "/subjects/orders%2Fvalue/versions/latest": {"schema": json.dumps(ORDER)},
            "/subjects/texts/versions/latest": {"schema": "{}", "schemaType": "JSON"},
            "/schemas/ids/7": {"schema": json.dumps(ORDER), "schemaType": "AVRO"},
            "/schemas/ids/3?format=serialized": {
                "schema": base64.b64encode(order_file().SerializeToString()).decode(),
                "references": [{"name": "google/protobuf/timestamp.proto", "subject": "timestamp", "version": 1}],
            },
            "/subjects/timestamp/versions/1?format=serialized": {
                "schema": base64.b64encode(timestamp_pb2.DESCRIPTOR.serialized_pb).decode()
            },
        }
        code = 500 if "/8" in self.path else 200 if self.path in answers else 404
        if "/10" in self.path and self.headers["Authorization"] == f"Basic {base64.b64encode(b'me:hush').decode()}":
            code = 418  # the login arrived
        if "/11" in self.path:
            code = 418 if self.headers["Authorization"] == "Bearer hush" else 401
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(answers.get(self.path, {})).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("localhost", 0), Registry) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_schemas_come_from_a_registry(url: str) -> None:
    document = {"id": 1, "price": Decimal("1.50"), "at": 0, "kind": "A", "note": "n", "lines": []}
    assert parser_of("avro", url)(avro(7, ORDER, document))[0]["note"] == "n"
    assert parser_of("protobuf", url)(protobuf(3))[0]["id"] == 5


def test_a_login_in_the_url_of_a_registry_is_used_and_not_shown(url: str) -> None:
    parse = parser_of("avro", url.replace("http://", "http://me:hush@"))
    with pytest.raises(NoSchema, match="418") as login:
        parse(head(10))
    with pytest.raises(Conflict, match="has nothing at /schemas/ids/9") as missing:
        parse(head(9))
    assert "hush" not in f"{login.value} {missing.value}"


def test_a_bearer_token_is_read_for_each_request_and_not_shown(url: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    parse = parser_of("avro", with_access(url, {"token-file": str(token)}))
    with pytest.raises(NoSchema, match="No such file"):
        parse(head(11))
    for text, answer in (("old", "401"), ("hush\n", "418")):
        token.write_text(text)
        with pytest.raises(NoSchema, match=answer) as refused:
            parse(head(11))
        assert "hush" not in str(refused.value)


def test_a_registry_may_demand_a_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(authority().pem)
    authority().issue("client").write(tmp_path / "client.pem")
    access = {"ca": str(tmp_path / "ca.pem")}
    with ThreadingHTTPServer(("localhost", 0), Registry) as server:
        context = server_context(tmp_path, verify=ssl.CERT_REQUIRED)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"https://localhost:{server.server_port}"
            with pytest.raises(NoSchema):
                newest_schema(with_access(url, access), "orders/value")
            access["cert"] = str(tmp_path / "client.pem")
            assert json.loads(newest_schema(with_access(url, access), "orders/value")) == ORDER
        finally:
            server.shutdown()
            thread.join()


def test_options_of_a_registry_that_do_not_exist_are_refused(url: str) -> None:
    with pytest.raises(NoSchema, match="there is no option tokenfile for a registry"):
        with_access(url, {"tokenfile": "x"})
    with pytest.raises(NoSchema, match="for a registry with a URL"):
        with_access("schemas", {"ca": "x"})


def test_the_newest_schema_of_a_subject_is_one_of_avro(url: str) -> None:
    assert json.loads(newest_schema(url, "orders/value")) == ORDER
    with pytest.raises(Conflict, match="the schema of texts is not an Avro schema, but JSON"):
        newest_schema(url, "texts")


def test_a_schema_that_the_registry_lacks_is_bad_and_a_registry_that_fails_is_no_ones_fault(url: str) -> None:
    with pytest.raises(Conflict, match="has nothing at /schemas/ids/9"):
        parser_of("avro", url)(head(9))
    with pytest.raises(NoSchema, match="500"):
        parser_of("avro", url)(head(8))
    with pytest.raises(NoSchema, match="refused"):
        parser_of("avro", "http://localhost:1")(head(7))


def test_a_value_out_of_the_range_of_its_type_is_bad(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    wide = {**ORDER, "fields": [ORDER["fields"][0], {"name": "price", "type": "bytes"}, *ORDER["fields"][2:]]}
    good = {"id": 1, "price": b"\1", "at": 0, "kind": "A", "note": None, "lines": []}
    values = [avro(7, wide, document) for document in (good, good | {"price": bytes([1] * 12)}, good)]
    shaped = shape_of("avro", str(tmp_path), by_key=False)(
        decoded(*values), "t", 0, pa.schema(list(avro_type(ORDER, {})))
    )
    assert shaped.rows.column("kafka_offset").to_pylist() == [100, 102]
    assert shaped.bad is not None
    assert shaped.bad.column("offset").to_pylist() == [101]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=40))
def test_no_bytes_bring_it_down(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "7.desc").write_bytes(order_set())
    for format in ("avro", "protobuf"):
        try:
            parsed, kind = parser_of(format, str(tmp_path))(head(7) + body)
        except Conflict:
            continue
        assert pa.array([parsed], kind).type == kind

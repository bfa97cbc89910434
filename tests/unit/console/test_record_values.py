"""Records as text for a person."""

import json
from pathlib import Path

import pytest

from leadline.console.record_values import SHOWN_BYTES, bytes_of, decoded, hex_dump, schema_decoders

AVRO = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}, {"name": "n", "type": "int"}]}


@pytest.mark.parametrize(
    ("data", "format", "text"),
    [
        (None, "null", "null"),
        (b"", "text", ""),
        (b"plain", "text", "plain"),
        ("schön\n".encode(), "text", "schön\n"),
        (b'{"a":[1,2]}', "json", '{\n  "a": [\n    1,\n    2\n  ]\n}'),
        (b"{not json", "text", "{not json"),
        (b"\x00\x01\xff", "hex", "000000  00 01 ff                                         ..."),
        (b"\x1b[31mred", "hex", "000000  1b 5b 33 31 6d 72 65 64                          .[31mred"),
    ],
)
def test_a_value_is_shown_as_what_it_looks_like(data: bytes | None, format: str, text: str) -> None:
    assert decoded(data, "auto", {})[:2] == (format, text)


def test_a_value_that_is_not_in_the_requested_format_is_shown_with_the_reason() -> None:
    value = decoded(b"[1", "json", {})
    assert (value.format, value.text, value.problem[:9]) == ("text", "[1", "not json:")
    assert "--registry" in decoded(b"x", "avro", {}).problem


def test_deep_json_is_no_error() -> None:
    assert decoded(b"[" * 100_000, "auto", {}).format == "text"


def test_a_long_value_is_cut() -> None:
    assert decoded(b"x" * (SHOWN_BYTES + 7), "auto", {}).text.endswith("\n… 7 more characters")
    assert hex_dump(bytes(1000)).splitlines()[-1] == "… 488 more bytes"


def test_avro_is_decoded_with_the_schema_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(AVRO))
    data = b"\x00\x00\x00\x00\x07" + b"\x0aapple" + b"\x06"
    decoders = schema_decoders(str(tmp_path))
    for format in ("auto", "avro"):
        value = decoded(data, format, decoders)
        assert (value.format, json.loads(value.text)) == ("avro", {"item": "apple", "n": 3})
    assert "8.avsc" in decoded(b"\x00\x00\x00\x00\x08x", "avro", decoders).problem


def test_without_a_registry_there_are_no_decoders() -> None:
    assert schema_decoders("") == {}


def test_what_a_person_types_becomes_bytes() -> None:
    assert bytes_of("a\r\nb", "text") == b"a\nb"
    assert bytes_of("00 ff", "hex") == b"\x00\xff"
    assert bytes_of('{"a": 1}', "json") == b'{"a": 1}'
    for text, format in (("0", "hex"), ("{", "json")):
        with pytest.raises(ValueError, match=r"."):
            bytes_of(text, format)

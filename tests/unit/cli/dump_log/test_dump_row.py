"""A row of a dump, as Kafka's tool prints it and as JSON."""

import json

import pytest

from leadline.cli.dump_log.dump_row import DumpRow, snake_case


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (DumpRow("segment", {"startingOffset": 7}), "Log starting offset: 7"),
        (DumpRow("batch", {"baseOffset": 0, "isvalid": True}), "baseOffset: 0 isvalid: true"),
        (DumpRow("record", {"offset": 3, "payload": b"v\xff"}), "| offset: 3 payload: v\ufffd"),
        (DumpRow("record", {"headerKeys": ["a", "b"]}), "| headerKeys: [a,b]"),
        (DumpRow("batch", {"deleteHorizonMs": None}), "deleteHorizonMs: OptionalLong.empty"),
        (DumpRow("batch", {"deleteHorizonMs": 5}), "deleteHorizonMs: OptionalLong[5]"),
        (DumpRow("metaProperties", {"version": "0", "broker.id": "1"}), "version: 0\nbroker.id: 1"),
    ],
)
def test_the_text_is_that_of_kafkas_tool(row: DumpRow, text: str) -> None:
    assert row.text() == text


@pytest.mark.parametrize(
    ("name", "expected"),
    [("baseOffset", "base_offset"), ("CreateTime", "create_time"), ("isvalid", "is_valid"), ("payload", "value")],
)
def test_json_has_names_in_snake_case(name: str, expected: str) -> None:
    assert snake_case(name) == expected
    assert expected in json.loads(DumpRow("batch", {name: 1}).json("f"))


def test_json_names_the_file_and_keeps_the_names_of_properties() -> None:
    row = json.loads(DumpRow("metaProperties", {"brokerId": "1"}).json("meta.properties"))
    assert row == {"file": "meta.properties", "type": "meta_properties", "brokerId": "1"}

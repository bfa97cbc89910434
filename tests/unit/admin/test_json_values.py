"""Bytes in JSON."""

from leadline.admin.json_values import json_bytes


def test_bytes_in_json_are_text_or_say_that_they_are_not() -> None:
    assert json_bytes("value", "né".encode()) == {"value": "né"}
    assert json_bytes("value", None) == {"value": None}
    assert json_bytes("value", b"\xff") == {"value_base64": "/w=="}

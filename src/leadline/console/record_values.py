"""Keys, values and headers of records as text for a person: JSON, Avro, Protobuf, plain text or a hex dump.

Avro and Protobuf need a source of schemas: the values name their schema, as clients of a schema registry write them
(`leadline.spark.table.registry`).
"""

import json
from collections.abc import Callable
from importlib.util import find_spec
from typing import NamedTuple

FORMATS = ("auto", "json", "avro", "protobuf", "text", "hex")
SHOWN_BYTES = 20_000  # of one value; the rest is counted
HEX_BYTES = 512
ROW_BYTES = 16
SCHEMA_FORMATS = ("avro", "protobuf")
NAMES_SCHEMA_BYTES = 5  # 0 and the id of the schema

Decoder = Callable[[bytes], object]  # raises ValueError for bytes that it cannot decode


class DecodedValue(NamedTuple):
    format: str  # json, avro, protobuf, text, hex; `null`: there is no value
    text: str
    problem: str = ""  # why it is not in the requested format

    @property
    def summary(self) -> str:
        """One line."""
        return " ".join(self.text.split())[:200]


def schema_decoders(registry: str) -> dict[str, Decoder]:
    """The decoders of Avro and Protobuf with schemas from a registry or a directory. Empty if there is none."""
    if not registry or find_spec("pyarrow") is None:
        return {}
    from leadline.spark.table.evolution import Conflict
    from leadline.spark.table.registry import NoSchema, parser_of

    def decoder(format: str) -> Decoder:
        parse = parser_of(format, registry)

        def decode(data: bytes) -> object:
            try:
                return parse(data)[0]
            except (Conflict, NoSchema, ModuleNotFoundError) as error:
                raise ValueError(str(error)) from None

        return decode

    return {format: decoder(format) for format in SCHEMA_FORMATS}


def decoded(data: bytes | None, format: str, decoders: dict[str, Decoder]) -> DecodedValue:
    """The value in this format. If it is in another one, as text or hex, with the reason."""
    if data is None:
        return DecodedValue("null", "null")
    if format == "auto":
        return _guessed(data, decoders)
    try:
        return DecodedValue(format, _decode(data, format, decoders))
    except (ValueError, RecursionError) as error:
        return _plain(data)._replace(problem=f"not {format}: {error}")


def _decode(data: bytes, format: str, decoders: dict[str, Decoder]) -> str:
    if format == "hex":
        return hex_dump(data)
    if format == "text":
        return _cut(data.decode(errors="replace"))
    if format == "json":
        return _pretty(json.loads(data))
    if format not in decoders:
        raise ValueError("no schemas: start the console with --registry, with leadline[spark,avro,protobuf] installed")
    return _pretty(decoders[format](data))


def _guessed(data: bytes, decoders: dict[str, Decoder]) -> DecodedValue:
    if len(data) > NAMES_SCHEMA_BYTES and data[0] == 0:
        for format in decoders:
            try:
                return DecodedValue(format, _decode(data, format, decoders))
            except (ValueError, RecursionError):
                continue
    if data[:1] in (b"{", b"["):
        try:
            return DecodedValue("json", _decode(data, "json", decoders))
        except (ValueError, RecursionError):
            pass
    return _plain(data)


def _plain(data: bytes) -> DecodedValue:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return DecodedValue("hex", hex_dump(data))
    if all(character.isprintable() or character in "\t\n\r" for character in text):
        return DecodedValue("text", _cut(text))
    return DecodedValue("hex", hex_dump(data))


def _pretty(document: object) -> str:
    return _cut(json.dumps(document, indent=2, ensure_ascii=False, default=_json_value))


def _json_value(value: object) -> str:
    """A value that JSON does not have, such as bytes, dates and decimals."""
    return value.hex() if isinstance(value, bytes) else str(value)


def _cut(text: str) -> str:
    if len(text) <= SHOWN_BYTES:
        return text
    return f"{text[:SHOWN_BYTES]}\n… {len(text) - SHOWN_BYTES:,} more characters"


def hex_dump(data: bytes) -> str:
    """Rows of an offset, 16 bytes in hex, and the same bytes as ASCII."""
    rows = []
    for at in range(0, min(len(data), HEX_BYTES), ROW_BYTES):
        row = data[at : at + ROW_BYTES]
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{at:06x}  {row.hex(' '):{ROW_BYTES * 3 - 1}}  {ascii_text}")
    if len(data) > HEX_BYTES:
        rows.append(f"… {len(data) - HEX_BYTES:,} more bytes")
    return "\n".join(rows)


def bytes_of(text: str, format: str) -> bytes:
    """The bytes of a value that a person typed. ValueError if it is not in the format."""
    if format == "hex":
        return bytes.fromhex(text)
    if format == "json":
        json.loads(text)
    return text.replace("\r\n", "\n").encode()

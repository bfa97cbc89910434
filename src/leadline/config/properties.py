"""A Java properties file: comments, key=value, continued lines, escapes. The last of two equal keys is used.

Kafka reads such a file as ISO 8859-1, independent of the system's encoding. Other characters are written as \\uXXXX.

Pure: text in, values out.
"""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"(?<!\\)(?:[=:]|\s+[=:]?)\s*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLANKS = "".join(map(chr, range(0x21)))  # which Kafka drops at the end of a value, also where they are escaped
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def decode_properties(content: bytes) -> dict[str, str]:
    """The settings of a file with this content."""
    return parse_properties(content.decode("latin-1"))


def parse_properties(text: str) -> dict[str, str]:
    def unescape(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)

    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, *value = _SEPARATOR.split(line, maxsplit=1)
        properties[_ESCAPE.sub(unescape, key)] = _ESCAPE.sub(unescape, value[0]).rstrip(_BLANKS) if value else ""
    return {_joined(key): _joined(value) for key, value in properties.items()}


def _joined(text: str) -> str:
    """A character beyond 16 bits is escaped in two halves. A half without the other one is replaced, as in Java."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def property_text(value: str) -> str:
    """A value as a file has it, on one line. Blanks at its end are lost, as `parse_properties` drops them."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    escaped = _BEYOND_ASCII.sub(_unicode_escapes, escaped)
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _unicode_escapes(match: re.Match[str]) -> str:
    """Java's characters have 16 bits: others are two of them."""
    units = memoryview(match[0].encode("utf-16-be"))
    return "".join(f"\\u{int.from_bytes(units[at : at + 2]):04x}" for at in range(0, len(units), 2))


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments. A line that ends with an odd number of backslashes continues on the next one."""
    logical = ""
    for line in (*_LINE_END.split(text), ""):
        line = line.lstrip()
        if not logical and line[:1] in ("#", "!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            logical += line[:-1]
            continue
        if (logical := logical + line).strip():
            yield logical
        logical = ""

"""A Java properties file: comments, key=value, continued lines, escapes. The last of two equal keys is used.

Pure: text in, values out.
"""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\n|\r")
_SEPARATOR = re.compile(r"(?<!\\)(?:[=:]|\s+[=:]?)\s*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_BLANKS = "".join(map(chr, range(0x21)))  # which Kafka drops at the end of a value, also where they are escaped
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    def unescape(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)

    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key, *value = _SEPARATOR.split(line, maxsplit=1)
        properties[_ESCAPE.sub(unescape, key)] = _ESCAPE.sub(unescape, value[0]).rstrip(_BLANKS) if value else ""
    return properties


def property_text(value: str) -> str:
    """A value as a file has it, on one line. Blanks at its end are lost, as `parse_properties` drops them."""
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


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

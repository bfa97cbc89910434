"""A Java properties file: comments, key=value, continued lines, escapes. The last of two equal keys is used.

Pure: text in, values out.
"""

import re

_SEPARATOR = re.compile(r"(?<!\\)[=:\s]\s*[=:]?\s*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    def unescape(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPED.get(escape, escape)

    properties: dict[str, str] = {}
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, *value = _SEPARATOR.split(line, maxsplit=1)
            properties[_ESCAPE.sub(unescape, key)] = _ESCAPE.sub(unescape, value[0]) if value else ""
    return properties

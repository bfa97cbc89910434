"""Regular expressions of Java in Python's, for the rules that turn names into those of principals.

Pure: text in, text out.

`python_pattern` refuses what Python has no equal for, by name.
"""

import re

_ANY = r"[^\n\r\x85\u2028\u2029]"  # what a dot means in Java


def python_pattern(pattern: str) -> str:
    """A dot stops at any end of a line, groups are named with ?P, \\z is \\Z, \\Q quotes up to \\E."""
    parts, at, in_class = list[str](), 0, False
    while at < len(pattern):
        character, pair = pattern[at], pattern[at : at + 2]
        if pair in ("\\p", "\\P", "\\h", "\\H", "\\R", "\\X", "\\k", "\\G") or (in_class and pair == "&&"):
            raise ValueError(f"{pair} is not supported")
        if pair == "\\Q":
            quoted, _, _ = pattern[at + 2 :].partition("\\E")
            parts.append(re.escape(quoted))
            at += len(quoted) + 4
        elif character == "\\":
            parts.append({"\\z": r"\Z", "\\Z": r"(?=\n?\Z)", "\\/": "/"}.get(pair, pair))
            at += 2
        elif in_class and character == "[":
            raise ValueError("a class within a class is not supported")
        else:
            in_class = character == "[" or (in_class and character != "]")
            is_named = pattern.startswith("(?<", at) and pattern[at + 3 : at + 4] not in ("=", "!") and not in_class
            parts.append("(?P<" if is_named else _ANY if character == "." and not in_class else character)
            at += 3 if is_named else 1
    return "".join(parts)


def replaced(replacement: str, match: re.Match[str]) -> str:
    """Java's replacement: a backslash takes the next character as it is, $ and digits name a group."""
    parts, at, groups = list[str](), 0, match.re.groups
    while at < len(replacement):
        character = replacement[at]
        if character == "\\" and at + 1 < len(replacement):
            parts.append(replacement[at + 1])
            at += 2
            continue
        digits = re.match(r"\$([0-9]+)", replacement[at:])
        number = digits[1] if digits else ""
        while len(number) > 1 and int(number) > groups:
            number = number[:-1]
        if number and int(number) <= groups:
            parts.append(match[int(number)] or "")
            at += 1 + len(number)
        else:
            parts.append(character)
            at += 1
    return "".join(parts)

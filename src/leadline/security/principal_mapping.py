"""ssl.principal.mapping.rules: from the name in a certificate to the name of a principal.

Pure: text in, text out.

    rules       = rule ("," rule)*
    rule        = "DEFAULT" | "RULE:" pattern "/" replacement "/" ["L" | "U"]        a `/` within is written `\\/`

    the first rule whose pattern matches the whole name wins; DEFAULT takes the name as it is
    $1 is what a group matched; $n of a group that is not there stays as it is
    a name that no rule matches is nobody's: the connection is closed

Patterns are Java's. `_python_pattern` turns them into Python's, and refuses what Python has no equal for, by name.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from leadline.config.values import BLANK, InvalidSetting
from leadline.security.distinguished_name import subject_name
from leadline.security.principal import ANONYMOUS, USER_TYPE, Principal

SETTING = "ssl.principal.mapping.rules"
_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_ANY = r"[^\n\r\x85\u2028\u2029]"  # what a dot means in Java
_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper}


class NoMatchingRule(Exception):
    """No rule applies to a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None  # None: DEFAULT
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if not self.pattern.fullmatch(name):
            return None
        result = self.pattern.sub(lambda match: _replaced(self.replacement, match), name)
        return _CASES[self.case](result) if self.case else result


class PrincipalMapping:
    """The rules of a listener. Raises InvalidSetting for rules that are none."""

    def __init__(self, rules: str = "DEFAULT") -> None:
        texts = [match[1] for match in _SPLITTER.finditer(rules.strip(BLANK))]
        self._rules = [rule for text in texts if (rule := _parsed(text)) is not None]

    def name_of(self, distinguished_name: str) -> str:
        """Raises NoMatchingRule."""
        for rule in self._rules:
            name = rule.apply(distinguished_name)
            if name is not None:
                return name
        raise NoMatchingRule(f"No rules apply to {distinguished_name}")


def certificate_principal(certificate: bytes | None, mapping: PrincipalMapping) -> Principal:
    """Whom a certificate in DER stands for; without one, nobody in particular. Raises NoMatchingRule."""
    if certificate is None:
        return ANONYMOUS
    return Principal(USER_TYPE, mapping.name_of(subject_name(certificate)))


def _parsed(text: str) -> _Rule | None:
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        rest = text[match.end() :] if match else text
        raise InvalidSetting(f"{SETTING}: Invalid rule: `{text}`, unmatched substring: `{rest}`")
    if match[1] is not None:
        return _Rule(None)
    if match[2] is None:
        return None  # an empty rule
    try:
        return _Rule(re.compile(_python_pattern(match[2]), re.ASCII), match[4], match[6])
    except (re.error, ValueError) as error:
        raise InvalidSetting(f"{SETTING}: Invalid rule: `{text}`: {error}") from None


def _replaced(replacement: str, match: re.Match[str]) -> str:
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


def _python_pattern(pattern: str) -> str:
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

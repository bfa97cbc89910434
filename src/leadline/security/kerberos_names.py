"""sasl.kerberos.principal.to.local.rules: from the name of a Kerberos principal to the name of a user.

Pure: text in, text out.

    name        = component ["/" component] "@" realm           a name without a realm is taken as it is
    rule        = "DEFAULT" | "RULE:[" count ":" format "]" ["(" pattern ")"] ["s/" pattern "/" replacement "/" ["g"]]
                  ["/"] ["L" | "U"]

    the first rule that applies wins; a name to which none applies is nobody's
    DEFAULT applies to names of the default realm, and takes the first component
    a RULE applies to names with its number of components whose format matches the whole pattern; $0 is the realm,
    $1 the first component, $2 the second
    s/// replaces the first match, with g all of them; L and U change the case
    a result with a / or an @ in it is nobody's either: no later rule is tried

Patterns are Java's: see `security/java_patterns.py`.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leadline.config.values import InvalidSetting
from leadline.security.java_patterns import python_pattern, replaced

SETTING = "sasl.kerberos.principal.to.local.rules"
_NAME = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE = re.compile(
    r"(DEFAULT)|RULE:\[([0-9]*):([^\]]*)](?:\(([^)]*)\))?(?:s/([^/]*)/([^/]*)/(g)?)?/?(L|U)?",
)
_PARAMETER = re.compile(r"\$([0-9]*)")
_REFERENCE = re.compile(r"\\(.?)|\$([0-9]?)", re.DOTALL)  # in a replacement: an escaped character, or a group
_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper}


class NoUserName(Exception):
    """No user belongs to a name."""


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    is_default: bool
    count: int = 0
    format: str = ""
    pattern: re.Pattern[str] | None = None
    origin: re.Pattern[str] | None = None  # what is replaced
    replacement: str = ""
    replaces_all: bool = False
    case: str = ""

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """`parts`: the realm, then the components. None: it does not apply."""
        if self.is_default:
            name = parts[1] if parts[0] == default_realm else None
        else:
            name = self._translated(parts) if len(parts) - 1 == self.count else None
        if name is None:
            return None
        if "/" in name or "@" in name:
            raise NoUserName(f"Non-simple name {name} after auth_to_local rule {self.text}")
        return _CASES[self.case](name) if self.case else name

    def _translated(self, parts: Sequence[str]) -> str | None:
        name = _PARAMETER.sub(lambda match: self._parameter(match[1], parts), self.format)
        if self.pattern is not None and not self.pattern.fullmatch(name):
            return None
        if self.origin is None:
            return name
        return self.origin.sub(self._replaced, name, count=0 if self.replaces_all else 1)

    def _parameter(self, digits: str, parts: Sequence[str]) -> str:
        if not digits or int(digits) >= len(parts):
            raise NoUserName(f"{self.text}: ${digits} is outside of the valid range 0 to {len(parts) - 1}")
        return parts[int(digits)]

    def _replaced(self, match: re.Match[str]) -> str:
        for escaped, digit in _REFERENCE.findall(self.replacement):
            if not escaped and not (digit and int(digit) <= match.re.groups):
                raise NoUserName(f"{self.text}: illegal group reference")
        return replaced(self.replacement, match)


class ShortNames:
    """The rules of a listener. Raises InvalidSetting for rules that are none."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        self._rules, self._default_realm = [_parsed(rule) for rule in rules], default_realm

    def name_of(self, principal: str) -> str:
        """Raises NoUserName."""
        match = _NAME.fullmatch(principal)
        if match is None:
            if "@" in principal:
                raise NoUserName(f"Malformed Kerberos name: {principal}")
            return principal
        first, second, realm = match.groups()
        parts = (realm, first) if second is None else (realm, first, second)
        for rule in self._rules:
            name = rule.apply(parts, self._default_realm)
            if name is not None:
                return name
        raise NoUserName(f"No rules apply to {principal}, rules {', '.join(rule.text for rule in self._rules)}")


def _parsed(text: str) -> _Rule:
    match = _RULE.match(text)
    if match is None:
        raise InvalidSetting(f"{SETTING}: Invalid rule: {text}")
    if match.end() != len(text):
        raise InvalidSetting(f"{SETTING}: Invalid rule: `{text}`, unmatched substring: `{text[match.end() :]}`")
    default, count, format, pattern, origin, replacement, repeat, case = match.groups()
    if default is not None:
        return _Rule(text, is_default=True)
    try:
        return _Rule(
            text=text,
            is_default=False,
            count=int(count),
            format=format,
            pattern=_compiled(pattern),
            origin=_compiled(origin),
            replacement=replacement or "",
            replaces_all=repeat is not None,
            case=case or "",
        )
    except (re.error, ValueError) as error:
        raise InvalidSetting(f"{SETTING}: Invalid rule: `{text}`: {error}") from None


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    return None if pattern is None else re.compile(python_pattern(pattern), re.ASCII)

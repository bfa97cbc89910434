"""ssl.principal.mapping.rules: from the name in a certificate to the name of a principal.

Pure: text in, text out.

    rules       = rule ("," rule)*
    rule        = "DEFAULT" | "RULE:" pattern "/" replacement "/" ["L" | "U"]        a `/` within is written `\\/`

    the first rule whose pattern matches the whole name wins; DEFAULT takes the name as it is
    $1 is what a group matched; $n of a group that is not there stays as it is
    a connection whose name no rule matches is closed

Patterns are Java's: see `security/java_patterns.py`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from leadline.config.values import BLANK, InvalidSetting
from leadline.security.distinguished_name import subject_name
from leadline.security.java_patterns import python_pattern, replaced
from leadline.security.principal import ANONYMOUS, USER_TYPE, Principal

SETTING = "ssl.principal.mapping.rules"
_RULE = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE)
_CASES: dict[str, Callable[[str], str]] = {"L": str.lower, "U": str.upper}


class NoMatchingRule(ValueError):
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
        result = self.pattern.sub(lambda match: replaced(self.replacement, match), name)
        return _CASES[self.case](result) if self.case else result


class PrincipalMapping:
    """The rules of a listener. Raises InvalidSetting for text that is not a rule."""

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
    """The principal of a certificate in DER; without one, ANONYMOUS. Raises NoMatchingRule."""
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
        return _Rule(re.compile(python_pattern(match[2]), re.ASCII), match[4], match[6])
    except (re.error, ValueError) as error:
        raise InvalidSetting(f"{SETTING}: Invalid rule: `{text}`: {error}") from None

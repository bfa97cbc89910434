"""JAAS: the login modules of a listener, from a setting of one line or from a file.

Pure: text in, login modules out.

    line    <class> <required|requisite|sufficient|optional> (<option>=<value>)*;        exactly one module
    file    (<section> { <line>* };)*

Words consist of letters, digits and `- _ $ .` and begin with a letter, `_` or `$`. Values may be quoted with " or '; a
backslash within quotes escapes as in C, and quotes end with their line. Comments are // and / to the end of a line, and
/* */. All of this is java.io.StreamTokenizer, which Kafka reads the line with. In a file `*` counts as a letter.

    only the login modules that this broker knows are accepted: others could load classes or ask foreign servers
    (CVE-2023-25194, CVE-2025-27818, CVE-2025-27819)
    no error repeats a value, and references such as ${env:X} stay as they are (CVE-2024-31141)
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from leadline.config.values import InvalidSetting
from leadline.security.secret import Secret

_KAFKA = "org.apache.kafka.common.security."
PLAIN_LOGIN_MODULE = f"{_KAFKA}plain.PlainLoginModule"
SCRAM_LOGIN_MODULE = f"{_KAFKA}scram.ScramLoginModule"
OAUTHBEARER_LOGIN_MODULE = f"{_KAFKA}oauthbearer.OAuthBearerLoginModule"
KERBEROS_LOGIN_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
DIGEST_LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"  # of the section Client: towards ZooKeeper
LOGIN_MODULES = {
    "PLAIN": PLAIN_LOGIN_MODULE,
    "SCRAM-SHA-256": SCRAM_LOGIN_MODULE,
    "SCRAM-SHA-512": SCRAM_LOGIN_MODULE,
    "OAUTHBEARER": OAUTHBEARER_LOGIN_MODULE,
    "GSSAPI": KERBEROS_LOGIN_MODULE,
}
KNOWN_MODULES = frozenset({*LOGIN_MODULES.values(), DIGEST_LOGIN_MODULE})
SERVER_SECTION, CLIENT_SECTION = "KafkaServer", "Client"  # of this broker, and of its sessions with ZooKeeper

_CONTROL_FLAGS = {"required", "requisite", "sufficient", "optional"}
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{0,2}|[4-7][0-7]?)|(.))", re.DOTALL)
_TOKEN = r"""
      [\0-\x20]+                                                             # blanks
    | /\*.*?(?:\*/|\Z) | /[^\n\r]*                                           # comments
    | (?P<quote>["'])(?P<quoted>(?:\\.|(?!(?P=quote))[^\n\r\\])*)(?P=quote)?  # ends with its line at the latest
    | (?P<number>-?[0-9.][0-9]*\.?[0-9]*)
    | (?P<word>[a-zA-Z\xa0-\U0010ffff_$EXTRA][a-zA-Z\xa0-\U0010ffff_$EXTRA0-9.-]*)
    | (?P<sign>.)
    """
_LINE_TOKEN, _FILE_TOKEN = (re.compile(_TOKEN.replace("EXTRA", extra), re.VERBOSE | re.DOTALL) for extra in ("", "*"))


class InvalidJaas(ValueError):
    """A text that is no JAAS configuration, or names a login module that is not accepted."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    name: str  # of its Java class
    control_flag: str
    options: Mapping[str, Secret]


class _Token(NamedTuple):
    word: str | None  # a word or a quoted text; None: a number or a sign
    sign: str = ""


_END = _Token(None)


def parse_jaas_line(setting: str, value: Secret) -> LoginModule:
    """The login module of a setting sasl.jaas.config. Raises InvalidSetting."""
    try:
        tokens = _tokens(_LINE_TOKEN, value.reveal_text())
        modules = list(_modules(tokens, "Login module not specified in JAAS config"))
        if not modules:
            raise InvalidJaas("Login module not specified in JAAS config")
        if len(modules) != 1:
            raise InvalidJaas(f"JAAS config property contains {len(modules)} login modules, should be 1 module")
        return _accepted(modules[0])
    except InvalidJaas as error:
        raise InvalidSetting(f"{setting}=[hidden]: {error}") from None


def parse_jaas_file(text: str) -> dict[str, list[LoginModule]]:
    """The sections of a JAAS file. Whether a module is accepted is asked once a section is used."""
    tokens, sections = _tokens(_FILE_TOKEN, text), dict[str, list[LoginModule]]()
    for name in tokens:
        if name.word is None:
            raise InvalidJaas("a section of a JAAS file begins with its name")
        if name.word in sections:
            raise InvalidJaas(f"the section {name.word} of a JAAS file is there twice")
        _expect(tokens, "{", name.word)
        sections[name.word] = list(_modules(tokens, f"the section {name.word} of a JAAS file does not end", end="}"))
        _expect(tokens, ";", name.word)
    return sections


def server_login(listener: str, mechanism: str, sections: Mapping[str, list[LoginModule]]) -> LoginModule:
    """The login module of a mechanism from a file: in the listener's own section, else in KafkaServer."""
    own = f"{listener.lower()}.{SERVER_SECTION}"
    modules = sections.get(own, sections.get(SERVER_SECTION))
    if modules is None:
        raise InvalidJaas(
            f"Could not find a '{SERVER_SECTION}' or '{own}' entry in the JAAS configuration of listener {listener}"
        )
    for module in map(_accepted, modules):
        if module.name == LOGIN_MODULES[mechanism]:
            return module
    raise InvalidJaas(f"no login module of the JAAS configuration of listener {listener} is for {mechanism}")


def zookeeper_login(section: str, sections: Mapping[str, list[LoginModule]]) -> LoginModule | None:
    """The login module for ZooKeeper from a file. None: without such a section there is no login."""
    modules = sections.get(section)
    if modules is None:
        return None
    if [module.name for module in modules] != [DIGEST_LOGIN_MODULE]:
        raise InvalidJaas(f"the section {section} must have one login module, {DIGEST_LOGIN_MODULE}")
    if missing := [option for option in ("username", "password") if option not in modules[0].options]:
        raise InvalidJaas(f"the login module of the section {section} lacks {' and '.join(missing)}")
    return modules[0]


def check_mechanism(setting: str, mechanism: str, module: LoginModule) -> None:
    """Kafka starts with a module of another mechanism, and refuses every login."""
    if module.name != LOGIN_MODULES[mechanism]:
        raise InvalidSetting(f"{setting}=[hidden]: {module.name} is not for {mechanism}: {LOGIN_MODULES[mechanism]} is")


def _accepted(module: LoginModule) -> LoginModule:
    if module.name not in KNOWN_MODULES:
        raise InvalidJaas(f"{module.name} is not allowed: the login modules are {', '.join(sorted(KNOWN_MODULES))}")
    return module


def _modules(tokens: Iterator[_Token], unfinished: str, end: str = "") -> Iterator[LoginModule]:
    for token in tokens:
        if end and token.sign == end:
            return
        if token.word is None:
            raise InvalidJaas("Login module not specified in JAAS config")
        flag = next(tokens, _END).word
        if flag is None:
            raise InvalidJaas("Login module control flag not specified in JAAS config")
        if flag.lower() not in _CONTROL_FLAGS:
            raise InvalidJaas(f"Invalid login module control flag '{flag:.40}' in JAAS config")
        yield LoginModule(token.word, flag.lower(), dict(_options(tokens)))
    if end:
        raise InvalidJaas(unfinished)


def _options(tokens: Iterator[_Token]) -> Iterator[tuple[str, Secret]]:
    for token in tokens:
        if token.sign == ";":
            return
        if token.word is None:
            raise InvalidJaas("an option of a JAAS config begins with its name")
        equals, value = next(tokens, _END), next(tokens, _END)
        if equals.sign != "=" or value.word is None:
            raise InvalidJaas(f"Value not specified for key '{token.word:.100}' in JAAS config")
        yield token.word, Secret.of(value.word)
    raise InvalidJaas("JAAS config entry not terminated by semi-colon")


def _expect(tokens: Iterator[_Token], sign: str, section: str) -> None:
    if next(tokens, _END).sign != sign:
        raise InvalidJaas(f"the section {section} of a JAAS file lacks a {sign}")


def _tokens(pattern: re.Pattern[str], text: str) -> Iterator[_Token]:
    for match in pattern.finditer(text):
        if match["word"] is not None:
            yield _Token(match["word"])
        elif match["quote"] is not None:
            yield _Token(_ESCAPE.sub(_unescaped, match["quoted"]))
        elif match["number"] is not None:
            yield _Token(None)
        elif match["sign"] is not None:
            yield _Token(None, match["sign"])


def _unescaped(match: re.Match[str]) -> str:
    octal, character = match.groups()
    return chr(int(octal, 8)) if octal else _ESCAPES.get(character, character)

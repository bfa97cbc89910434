"""From the name of a Kerberos principal to that of a user: all pairs of these names and rules, by Kafka and by us."""

import functools
import subprocess

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.kerberos_names import NoUserName, ShortNames
from tests.conformance.kafka import jars

pytestmark = pytest.mark.conformance

REALM = "REALM"
NAMES = """
    alice alice@REALM Alice@REALM alice@OTHER kafka/host@REALM kafka/host@OTHER a/b/c@REALM a@b@REALM @REALM /@REALM / @
    a/@REALM App.x@REALM App.x/host.example@REALM aXbX@REALM a.b-c_d/e@REALM straße@REALM a\\/b@REALM
""".split()
FORMATS = ["$1", "$1@$0", "$2", "$1;$2", "$0", "", "x", "$", "$9", "$1$", "$01"]
PATTERNS = ["", "(.*)", "(alice.*)", "(^App\\..*$)", "([a-z]+@OTHER)", "()", "([)", "(x|alice)"]
REPLACEMENTS = ["", "s/a/b/", "s/a/b/g", "s/(.*)@.*/$1/", "s/^(App)\\.(.*)$/$2$1/", "s/a/$1/", "s/X*/-/g", "s/a/\\$/"]
REPLACEMENTS += ["s/(a)/$12/", "s/a/\\/", "s/@.*//", "s/a/b"]
ENDINGS = ["", "/L", "/U", "L", "/", "/LU"]
RULES: list[tuple[str, ...]] = [
    (f"RULE:[{count}:{format}]{pattern}{replacement}{ending}",)
    for count in "12"
    for format in FORMATS
    for pattern in PATTERNS
    for replacement in REPLACEMENTS
    for ending in (ENDINGS if format in ("$1", "$1@$0") and pattern in ("", "(.*)") else ENDINGS[:2])
]
RULES += [("DEFAULT",), ("default",), ("DEFAULT ",), ("RULE:[:$1]",), ("RULE:[0:$0]",), ("RULE:[3:$1]", "DEFAULT")]
RULES += [("RULE:[1:$1@$0](.*@OTHER)s/@.*//L", "RULE:[2:$1]", "DEFAULT"), ("RULE:[1:$1@$0]", "DEFAULT")]


@functools.cache
def names(rules: tuple[str, ...]) -> ShortNames | None:
    try:
        return ShortNames(rules, REALM)
    except InvalidSetting:
        return None


def ours(name: str, rules: tuple[str, ...]) -> str:
    short_names = names(rules)
    if short_names is None:
        return "invalid rules"
    try:
        return f"user {short_names.name_of(name)}"
    except NoUserName:
        return "nobody"


def test_names_become_the_same_users() -> None:
    cases = [(name, rules) for name in NAMES for rules in RULES]
    lines = "".join("\t".join((REALM, name, *rules)) + "\n" for name, rules in cases)
    classes = jars.compiled(jars.HERE / "java" / "ShortNames.java")
    command = jars.command("ShortNames", classes=classes, options=("-Dstdout.encoding=UTF-8",))
    done = subprocess.run(command, input=lines.encode(), capture_output=True, check=True)
    answers = done.stdout.decode().splitlines()
    differences = [
        (name, rules, answer, our_answer)
        for (name, rules), answer in zip(cases, answers, strict=True)
        if answer != (our_answer := ours(name, rules))
    ]
    assert differences == []
    assert len({answer.partition(" ")[0] for answer in answers}) == 3  # users, nobody, and rules that are none

"""Values of sasl.jaas.config, right, wrong and random: Kafka's parser and ours read the same out of each."""

import subprocess
from random import Random

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.jaas import PLAIN_LOGIN_MODULE, SCRAM_LOGIN_MODULE, parse_jaas_line
from leadline.security.secret import Secret
from tests.conformance.kafka import jars

pytestmark = pytest.mark.conformance

PIECES = [
    *(PLAIN_LOGIN_MODULE, " required ", "required", "OPTIONAL", ";", ";", "=", "=", " ", " ", "\n", "\t", "\r"),
    *("k", "user_a", "v", "a-b", "x.y", "$z", "_", "9", "12.5", "-", "-3", ".", "é", "\u20ac", "\x85", "*", "#", ","),
    *(
        '"',
        '"',
        "'",
        '"v w"',
        "'v;w'",
        '"\\"',
        "\\",
        "\\n",
        "\\101",
        "\\0",
        "\\400",
        "\\'",
        "/",
        "//",
        "/*",
        "*/",
        "{",
        "}",
    ),
    *("k=v", 'k="v"', "k='v'", 'k="a\\tb"', "k = v", 'user_a="p=q;r"', "k=5", "k=-", "k=.", "k=$", "k=/x"),
]
USUAL = [
    f'{PLAIN_LOGIN_MODULE} required username="a" password="b c" user_a="b c" user_x="";',
    f"{SCRAM_LOGIN_MODULE} required;",
    f"// comment\n{PLAIN_LOGIN_MODULE} /* c */ Required k=v // end\n;",
    f"{PLAIN_LOGIN_MODULE} required k=v",
    f"{PLAIN_LOGIN_MODULE} required; {SCRAM_LOGIN_MODULE} required;",
    "",
]


def random_line(chance: Random) -> str:
    pieces = chance.choices(PIECES, k=chance.randint(0, 9))
    if chance.random() < 0.8:
        return f"{PLAIN_LOGIN_MODULE} required {''.join(pieces)};"
    return "".join(pieces)


def ours(text: str) -> str:
    try:
        module = parse_jaas_line("sasl.jaas.config", Secret.of(text))
    except InvalidSetting:
        return "error"
    flag = f"LoginModuleControlFlag: {module.control_flag}"
    options = {f"{name.encode().hex()}={value.reveal().hex()}" for name, value in module.options.items()}
    return f"{module.name} {flag} {sorted(options)}"


def theirs(line: str) -> str:
    if line == "error":
        return line
    name, flag, *options = line.split(" ")
    if any(option.startswith("null=") for option in options):
        return "error"  # a number as the name of an option, which Kafka takes for none at all
    return f"{bytes.fromhex(name).decode()} {bytes.fromhex(flag).decode()} {sorted(options)}"


def test_kafkas_parser_and_ours_read_the_same() -> None:
    chance = Random(11)
    texts = USUAL + [random_line(chance) for _ in range(5000)]
    command = jars.command("JaasLines", classes=jars.compiled(jars.HERE / "java" / "JaasLines.java"))
    lines = "\n".join(text.encode().hex() for text in texts)
    done = subprocess.run(command, input=lines + "\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    parsed = [theirs(line) for line in done.stdout.splitlines()]
    differences = [
        (text, result, ours(text)) for text, result in zip(texts, parsed, strict=True) if result != ours(text)
    ]
    assert differences[:5] == []
    assert sum(result != "error" for result in parsed) > 500

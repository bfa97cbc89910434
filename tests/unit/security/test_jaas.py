"""JAAS, as java.io.StreamTokenizer cuts it."""

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.jaas import (
    KNOWN_MODULES,
    InvalidJaas,
    LoginModule,
    check_mechanism,
    parse_jaas_file,
    parse_jaas_line,
    server_login,
)
from leadline.security.secret import Secret

SETTING = "listener.name.sasl_ssl.plain.sasl.jaas.config"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def parse(text: str) -> LoginModule:
    return parse_jaas_line(SETTING, Secret.of(text))


def options(text: str) -> dict[str, str]:
    return {name: value.reveal_text() for name, value in parse(f"{PLAIN} required {text};").options.items()}


def test_a_module_its_flag_and_its_options() -> None:
    module = parse(f'{PLAIN} required username="a" password="b" user_a="b";')
    assert (module.name, module.control_flag, list(module.options)) == (
        PLAIN,
        "required",
        ["username", "password", "user_a"],
    )
    assert "b" not in repr(module.options["password"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("k=v", "v"),
        ("k = 'single'", "single"),
        ('k="a b;c=d"', "a b;c=d"),
        (r'k="say \"x\" \\ \t\101\7z"', 'say "x" \\ \tA\7z'),
        (r'k="\400"', " 0"),
        (r'k="\q"', "q"),
        ("k='it\"s'", 'it"s'),
        ("k=a-b_c$d.e9", "a-b_c$d.e9"),
        ('k="${env:HOME}"', "${env:HOME}"),
        ("k=ünï", "ünï"),
        ("k=\n  v // a comment\n", "v"),
        ("/* k=w; */ k=v", "v"),
        ("k=v / also a comment\n", "v"),
        ("k=a k=b", "b"),
        ('k=""', ""),
        ('k="// no comment"', "// no comment"),
    ],
)
def test_the_value_of_an_option_is_read_as_java_reads_it(text: str, value: str) -> None:
    assert options(text) == {"k": value}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Login module not specified in JAAS config"),
        ("  // nothing", "Login module not specified in JAAS config"),
        (PLAIN, "Login module control flag not specified in JAAS config"),
        (f"{PLAIN} maybe;", "Invalid login module control flag 'maybe' in JAAS config"),
        (f"{PLAIN} required", "JAAS config entry not terminated by semi-colon"),
        (f"{PLAIN} required k=v", "JAAS config entry not terminated by semi-colon"),
        (f"{PLAIN} required k;", "Value not specified for key 'k' in JAAS config"),
        (f"{PLAIN} required k=;", "Value not specified for key 'k' in JAAS config"),
        (f"{PLAIN} required k=5secret;", "Value not specified for key 'k' in JAAS config"),
        (f"{PLAIN} required k=-x;", "Value not specified for key 'k' in JAAS config"),
        (f"{PLAIN} required 5=x;", "an option of a JAAS config begins with its name"),
        (f"{PLAIN} required; {SCRAM} required;", "contains 2 login modules, should be 1 module"),
        (f'{PLAIN} required password="secret\n";', "JAAS config"),
    ],
)
def test_an_error_names_the_mistake_without_the_text(text: str, message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        parse(text)
    assert str(refused.value).startswith(f"{SETTING}=[hidden]: ")
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional"])
def test_flags_have_any_case(flag: str) -> None:
    assert parse(f"{PLAIN} {flag};").control_flag == flag.lower()


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        "com.sun.security.auth.module.NTLoginModule",
        "com.example.Mine",
        PLAIN.lower(),
    ],
)
def test_cve_2023_25194_2025_27818_2025_27819_only_known_login_modules_are_accepted(module: str) -> None:
    with pytest.raises(InvalidSetting, match="is not allowed"):
        parse(f'{module} required user.provider.url="ldap://evil";')
    sections = parse_jaas_file(f"KafkaServer {{ {module} required; }};")
    with pytest.raises(InvalidJaas, match="is not allowed"):
        server_login("SSL", "PLAIN", sections)


@pytest.mark.parametrize("reference", ["${env:HOME}", "${file:/etc/passwd:x}", "${sys:user.name}"])
def test_cve_2024_31141_references_in_values_stay_as_they_are(reference: str) -> None:
    assert options(f'password="{reference}"') == {"password": reference}
    sections = parse_jaas_file(f'KafkaServer {{ {PLAIN} required password="{reference}"; }};')
    assert server_login("X", "PLAIN", sections).options["password"].reveal_text() == reference


@pytest.mark.parametrize("module", sorted(KNOWN_MODULES))
def test_known_modules_are_accepted(module: str) -> None:
    assert parse(f"{module} required;").name == module


FILE = f"""
// as for -Djava.security.auth.login.config
KafkaServer {{
    {PLAIN} required user_all="1";
    {SCRAM} required;
}};
sasl_ssl.KafkaServer {{ {PLAIN} required user_own="2"; }};
Client {{ org.apache.zookeeper.server.auth.DigestLoginModule required username="z" password="w"; }};
KafkaClient {{ com.example.Unused required; }};
"""


@pytest.mark.parametrize(
    ("listener", "mechanism", "names"),
    [("SASL_SSL", "PLAIN", ["user_own"]), ("OTHER", "PLAIN", ["user_all"]), ("OTHER", "SCRAM-SHA-512", [])],
)
def test_a_listeners_own_section_comes_first(listener: str, mechanism: str, names: list[str]) -> None:
    assert list(server_login(listener, mechanism, parse_jaas_file(FILE)).options) == names


def test_a_section_or_a_module_that_is_missing_is_named() -> None:
    with pytest.raises(InvalidJaas, match=r"no login module .* is for SCRAM-SHA-256"):
        server_login("SASL_SSL", "SCRAM-SHA-256", parse_jaas_file(FILE))
    with pytest.raises(InvalidJaas, match=r"'KafkaServer' or 'x\.KafkaServer'"):
        server_login("X", "PLAIN", {})


@pytest.mark.parametrize(
    "text",
    [
        "KafkaServer",
        "KafkaServer {",
        "KafkaServer { }",
        f"KafkaServer {{ {PLAIN} required; }}",
        f"KafkaServer {{ {PLAIN} required }};",
        "{ };",
        "A { }; A { };",
    ],
)
def test_a_file_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidJaas):
        parse_jaas_file(text)


def test_a_module_of_another_mechanism_is_refused_by_name() -> None:
    check_mechanism(SETTING, "PLAIN", parse(f"{PLAIN} required;"))
    with pytest.raises(InvalidSetting, match="is not for PLAIN"):
        check_mechanism(SETTING, "PLAIN", parse(f"{SCRAM} required;"))

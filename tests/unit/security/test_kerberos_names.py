"""sasl.kerberos.principal.to.local.rules: Kafka's own examples, and names that are nobody's."""

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.kerberos_names import NoUserName, ShortNames

REALM = "REALM.COM"
DOCUMENTED = (
    "RULE:[1:$1](App\\..*)s/App\\.(.*)/$1/g",
    "RULE:[2:$1](App\\..*)s/App\\.(.*)/$1/g",
    "DEFAULT",
)


def user(principal: str, *rules: str) -> str:
    return ShortNames(rules or ("DEFAULT",), REALM).name_of(principal)


@pytest.mark.parametrize(
    ("principal", "name"),
    [
        ("App.service-name/example.com@REALM.COM", "service-name"),
        ("App.service-name@REALM.COM", "service-name"),
        ("user/host@REALM.COM", "user"),
        ("alice@REALM.COM", "alice"),
        ("alice", "alice"),
    ],
)
def test_the_rules_of_the_documentation_give_its_names(principal: str, name: str) -> None:
    assert user(principal, *DOCUMENTED) == name


@pytest.mark.parametrize(
    ("rule", "principal", "name"),
    [
        ("RULE:[1:$1@$0](.*@OTHER)s/@.*//", "alice@OTHER", "alice"),
        ("RULE:[1:$1]/L", "Alice@OTHER", "alice"),
        ("RULE:[1:$1]/U", "Alice@OTHER", "ALICE"),
        ("RULE:[1:$1]L", "Alice@OTHER", "alice"),
        ("RULE:[1:$1]s/A/b//L", "AA@OTHER", "ba"),
        ("RULE:[1:$1]s/A/b/g/L", "AA@OTHER", "bb"),
        ("RULE:[2:$2-$1]", "kafka/host@OTHER", "host-kafka"),
        ("RULE:[1:user]", "alice@OTHER", "user"),
        ("RULE:[2:$1](admin)s/.*/root$0/", "admin/x@OTHER", "rootadmin"),
    ],
)
def test_a_rule_and_what_it_makes_of_a_name(rule: str, principal: str, name: str) -> None:
    assert user(principal, rule) == name


@pytest.mark.parametrize(
    ("principal", "rules", "reason"),
    [
        ("alice@OTHER", ("DEFAULT",), "No rules apply to alice@OTHER, rules DEFAULT"),
        ("a/b/c@REALM.COM", ("DEFAULT",), "Malformed Kerberos name"),
        ("a@b@REALM.COM", ("DEFAULT",), "Malformed Kerberos name"),
        ("alice@REALM.COM", (), "No rules apply"),
        ("alice@OTHER", ("RULE:[2:$1]",), "No rules apply"),
        ("alice@OTHER", ("RULE:[1:$1](bob)",), "No rules apply"),
        ("alice@OTHER", ("RULE:[1:$1@$0]", "RULE:[1:$1]"), "Non-simple name alice@OTHER"),
        ("alice@OTHER", ("RULE:[1:$2]", "DEFAULT"), "$2 is outside of the valid range 0 to 1"),
        ("alice@OTHER", ("RULE:[1:$]",), "outside of the valid range"),
        ("alice@OTHER", ("RULE:[1:$1]s/a/$1/",), "illegal group reference"),
        ("alice@OTHER", ("RULE:[1:$1]s/a/b\\/",), "illegal group reference"),
    ],
)
def test_a_name_that_is_nobodys_is_refused_with_the_reason(principal: str, rules: tuple[str, ...], reason: str) -> None:
    with pytest.raises(NoUserName) as refused:
        ShortNames(rules, REALM).name_of(principal)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    "rule",
    [
        *("default", "DEFAULT/L", "", "RULE:[1:$1", "RULE:[:$1]", "RULE:[n:$1]", "RULE:[1:$1](.*", "RULE:[1:$1]s/a/b"),
        *("RULE:[1:$1]/LU", "RULE:[1:$1]([)", r"RULE:[1:$1](\p{Alpha})"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_name(rule: str) -> None:
    with pytest.raises(InvalidSetting, match=r"sasl\.kerberos\.principal\.to\.local\.rules: Invalid rule: "):
        ShortNames((rule,), REALM)

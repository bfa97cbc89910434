"""ssl.principal.mapping.rules: Kafka's own examples, and where Java's patterns differ from Python's."""

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.principal_mapping import NoMatchingRule, PrincipalMapping

DOCUMENTED = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=JavaSoft,o=Sun Microsystems", "duke"),
        ("OU=JavaSoft,O=Sun", "OU=JavaSoft,O=Sun"),
    ],
)
def test_the_rules_of_the_documentation_give_its_names(name: str, principal: str) -> None:
    assert PrincipalMapping(DOCUMENTED).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name", "principal"),
    [
        ("DEFAULT", "CN=a", "CN=a"),
        (" RULE:^CN=(.*)$/$1/U ", "CN=a", "A"),
        ("RULE:^CN=(.*)$/$1@$4/", "CN=a", "a@$4"),
        ("RULE:^CN=(.*)$/$12/", "CN=a", "a2"),
        ("RULE:^CN=(.*)$/$0!/", "CN=a", "CN=a!"),
        (r"RULE:^CN=(.*)\/(.*)$/$2\/$1/", "CN=a/b", "b/a"),
        (r"RULE:^CN=(.*)$/\$1/", "CN=a", "$1"),
        ("RULE:.*/x/", "CN=a", "xx"),
        ("RULE:^CN=(x)?(.*)$/[$1]$2/", "CN=a", "[]a"),
        (r"RULE:^CN=(?<who>\w+)$/$1/", "CN=a", "a"),
        (r"RULE:^\QCN=\E(.*)\z/$1/", "CN=a", "a"),
        ("RULE:^CN=a,O=b$/comma/,DEFAULT", "CN=a,O=b", "comma"),
        ("RULE:^X$/x/,RULE:^CN=(.*)$/$1/", "CN=a", "a"),
        ("RULE:^CN=([^,.]*).*$/$1/", "CN=a.b,O=c", "a"),
        (",,DEFAULT,", "CN=a", "CN=a"),
        ("RULE:^CN=(.*)$/straße $1/U", "CN=a", "STRASSE A"),
    ],
)
def test_a_rule_and_what_it_makes_of_a_name(rules: str, name: str, principal: str) -> None:
    assert PrincipalMapping(rules).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("RULE:^CN=a$/x/", "CN=ab"),
        ("RULE:CN=a/x/", "O=b,CN=a"),
        ("", "CN=a"),
        ("RULE:^CN=(.*)$/$1/", "CN=admin\rX"),
        ("RULE:^CN=(.*)$/$1/", "CN=a\u2028"),
        (r"RULE:^CN=\d$/x/", "CN=\u0663"),
    ],
)
def test_a_name_that_no_rule_matches_as_a_whole_is_refused(rules: str, name: str) -> None:
    with pytest.raises(NoMatchingRule, match="No rules apply to"):
        PrincipalMapping(rules).name_of(name)


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L,RULE:^CN=(.*?),OU=(.*?)/$1@$2",
        "RULE:^CN=(.*?)$/$1/LU",
        "RULE:^CN=([$/x/",
        r"RULE:^\p{Alpha}$/x/",
        "RULE:^[a-z&&[^x]]$/x/",
        "x",
    ],
)
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(InvalidSetting, match=r"ssl\.principal\.mapping\.rules: Invalid rule"):
        PrincipalMapping(rules)

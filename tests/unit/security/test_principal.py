"""Principals and super.users, as Kafka reads them."""

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.principal import ANONYMOUS, Principal, parse_principal, parse_super_users


def test_a_token_login_has_the_principal_of_its_owner() -> None:
    assert Principal("User", "alice", token_authenticated=True) == Principal("User", "alice")
    assert len({Principal("User", "alice", token_authenticated=True), Principal("User", "alice")}) == 1


@pytest.mark.parametrize("other", [Principal("user", "alice"), Principal("User", "Alice"), Principal("User", "alice ")])
def test_types_and_names_are_case_sensitive(other: Principal) -> None:
    assert other != Principal("User", "alice")


@pytest.mark.parametrize(
    ("text", "principal"),
    [
        ("User:alice", Principal("User", "alice")),
        ("User:CN=a:b,O=c", Principal("User", "CN=a:b,O=c")),
        ("User:", Principal("User", "")),
        (":x", Principal("", "x")),
        ("User:ANONYMOUS", ANONYMOUS),
    ],
)
def test_a_text_and_its_principal(text: str, principal: Principal) -> None:
    assert parse_principal(text) == principal
    assert str(principal) == text


@pytest.mark.parametrize("text", ["", "alice", "User"])
def test_a_text_without_a_colon_is_no_principal(text: str) -> None:
    with pytest.raises(ValueError, match="expected a string in format principalType:principalName but got"):
        parse_principal(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        (";", []),
        ("User:a", ["User:a"]),
        ("User:a;User:b;;", ["User:a", "User:b"]),
        (" User:a\t; User:CN=x,O=y ", ["User:a", "User:CN=x,O=y"]),
    ],
)
def test_super_users_are_separated_by_semicolons(text: str, names: list[str]) -> None:
    assert {str(principal) for principal in parse_super_users(text)} == set(names)


@pytest.mark.parametrize("text", ["alice", "User:a;;User:b", ";User:a", "User:a; "])
def test_a_part_that_is_no_principal_stops_the_broker(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"super\.users=.*expected a string in format"):
        parse_super_users(text)

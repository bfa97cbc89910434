"""Whose quotas, and which: what is wrong is said before a broker is asked."""

import pytest

from leadline.admin.errors import Failure
from leadline.cli import main, parse
from leadline.cli.quotas import as_json, number_text, target_of


def target(*arguments: str) -> str:
    return str(target_of(parse(["quotas", "list", *arguments])))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--user", "alice"), "user alice"),
        (("--user-default", "--client-id", "etl"), "user <default>, client id etl"),
        (("--client-id-default",), "client id <default>"),
        (("--ip", "10.0.0.7"), "address 10.0.0.7"),
        ((), "None"),
    ],
)
def test_entities_are_named(arguments: tuple[str, ...], text: str) -> None:
    assert target(*arguments) == text


def test_an_address_has_quotas_of_its_own() -> None:
    with pytest.raises(Failure, match="cannot be combined"):
        target("--ip", "10.0.0.7", "--user", "alice")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("producer_byte_rate=1",), "whose quotas?"),
        (
            ("--user", "a", "producer_bite_rate=1"),
            "there is no quota producer_bite_rate (did you mean producer_byte_rate?)",
        ),
        (
            ("--user", "a", "connection_creation_rate=1"),
            "connection_creation_rate is not a quota of users and client ids",
        ),
        (("--ip", "::1", "producer_byte_rate=1"), "producer_byte_rate is not a quota of an address"),
        (("--user", "a", "producer_byte_rate=fast"), "producer_byte_rate=fast: expected a number"),
        (("--user", "a", "producer_byte_rate=-1"), "expected a number of at least 0"),
        (("--user", "a", "producer_byte_rate=inf"), "expected a number of at least 0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quotas", "set", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_quotas_are_shown_as_numbers_and_as_json() -> None:
    assert [number_text(value) for value in (1048576.0, 50.5, 0.0)] == ["1,048,576", "50.5", "0"]
    entity = target_of(parse(["quotas", "list", "--user", "a", "--client-id-default"]))
    assert entity is not None
    assert as_json(entity, {"x": 1.0}) == {"entity": {"user": "a", "client-id": None}, "quotas": {"x": 1.0}}

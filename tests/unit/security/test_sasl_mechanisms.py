"""The mechanisms of a listener, as clients get them listed."""

import pytest

from leadline.security.plain import PlainExchange
from leadline.security.sasl_mechanisms import EnabledMechanisms, mechanism_names

ALL = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize("names", [ALL, ALL + ALL[::-1], ALL[1:] + ALL])
def test_mechanisms_are_listed_in_the_order_of_a_java_hash_set(names: list[str]) -> None:
    listed = ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256", "OAUTHBEARER"]
    if names.index("SCRAM-SHA-512") < names.index("PLAIN"):  # they share a slot, in which the first stays first
        listed[:2] = reversed(listed[:2])
    assert mechanism_names(names) == listed


def test_names_are_case_sensitive_and_each_login_has_its_own_exchange() -> None:
    mechanisms = EnabledMechanisms({"PLAIN": lambda: PlainExchange(lambda _: None)})
    assert "plain" not in mechanisms
    assert list(mechanisms) == ["PLAIN"]
    assert mechanisms.new_exchange("PLAIN") is not mechanisms.new_exchange("PLAIN")

"""Rates of connections: to the broker, to a listener, from an address."""

import pytest

from leadline.security.connection_rates import ConnectionRates

NOW = 1_794_778_757_210
HOST = "10.0.0.1"


def rates(*listeners: str) -> ConnectionRates:
    return ConnectionRates(listeners or ("PLAINTEXT",), "PLAINTEXT")


def test_without_limits_no_connection_waits() -> None:
    unlimited = rates()
    assert all(unlimited.listener_delay_ms("PLAINTEXT", NOW) == 0 for _ in range(1000))
    assert unlimited.address_delay_ms("PLAINTEXT", HOST, NOW) == 0
    assert unlimited._addresses == {}


def test_the_acceptor_waits_once_the_broker_has_its_rate() -> None:
    limited = rates()
    limited.broker_limit = 10
    assert [limited.listener_delay_ms("PLAINTEXT", NOW) for _ in range(100)] == [0] * 100
    assert limited.listener_delay_ms("PLAINTEXT", NOW) == 100
    assert [limited.listener_delay_ms("PLAINTEXT", NOW) for _ in range(20)][-1] == 1000


def test_the_longer_delay_of_broker_and_listener_counts() -> None:
    limited = rates("PLAINTEXT", "CLIENTS")
    limited.broker_limit, limited.listener_limits["CLIENTS"] = 10, 5
    delays = [limited.listener_delay_ms("CLIENTS", NOW) for _ in range(51)]
    assert delays[49:] == [0, 200]


def test_the_listener_between_brokers_does_not_count_towards_the_brokers_rate() -> None:
    limited = rates("PLAINTEXT", "CLIENTS")
    limited.broker_limit = 1
    assert all(limited.listener_delay_ms("PLAINTEXT", NOW) == 0 for _ in range(100))
    assert limited.listener_delay_ms("CLIENTS", NOW) == 0
    limited.listener_limits["PLAINTEXT"] = 1
    assert limited.listener_delay_ms("PLAINTEXT", NOW) > 0


def test_the_only_listener_counts_even_if_brokers_use_it() -> None:
    limited = rates()
    limited.broker_limit = 1
    assert [limited.listener_delay_ms("PLAINTEXT", NOW) for _ in range(11)][-1] == 1000


def test_an_address_beyond_its_rate_is_refused_and_counts_nowhere() -> None:
    limited = rates()
    limited.broker_limit = 10
    limited.address_limits[HOST] = 1
    for _ in range(10):
        assert limited.listener_delay_ms("PLAINTEXT", NOW) == 0
        assert limited.address_delay_ms("PLAINTEXT", HOST, NOW) == 0
    for _ in range(1000):
        assert limited.listener_delay_ms("PLAINTEXT", NOW) == 0
        assert limited.address_delay_ms("PLAINTEXT", HOST, NOW) == 1000
    assert limited.address_delay_ms("PLAINTEXT", "10.0.0.2", NOW) == 0
    assert limited.address_delay_ms("PLAINTEXT", HOST, NOW + 11_000) == 0


def test_the_default_holds_for_all_addresses_without_a_limit_of_their_own() -> None:
    limited = rates()
    limited.default_address_limit, limited.address_limits[HOST] = 1, 2
    assert [limited.address_delay_ms("PLAINTEXT", "10.0.0.2", NOW) > 0 for _ in range(11)] == [False] * 10 + [True]
    assert [limited.address_delay_ms("PLAINTEXT", HOST, NOW) > 0 for _ in range(21)] == [False] * 20 + [True]


def test_a_limit_of_zero_admits_no_connection() -> None:
    limited = rates()
    limited.address_limits[HOST] = 0
    assert limited.address_delay_ms("PLAINTEXT", HOST, NOW) == 1000


def test_a_limit_that_changes_counts_for_what_was_recorded() -> None:
    limited = rates()
    limited.address_limits[HOST] = 100
    for _ in range(100):
        limited.address_delay_ms("PLAINTEXT", HOST, NOW)
    limited.address_limits[HOST] = 5
    assert limited.address_delay_ms("PLAINTEXT", HOST, NOW) == 1000
    del limited.address_limits[HOST]
    assert limited.address_delay_ms("PLAINTEXT", HOST, NOW) == 0


def test_addresses_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.security.connection_rates.MOST_ADDRESSES", 50)
    limited = rates()
    limited.default_address_limit = 1
    for n in range(500):
        limited.address_delay_ms("PLAINTEXT", f"10.0.{n // 250}.{n % 250}", NOW + n * 1000)
    assert len(limited._addresses) <= 50

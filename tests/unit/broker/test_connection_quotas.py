"""How many connections there may be is counted in all, by listener and by address."""

import pytest

from leadline.broker.connection_quotas import ConnectionLimits, ConnectionQuotas
from leadline.broker.reconfiguration import limits_of
from leadline.config.broker import broker_settings


def test_there_is_room_until_max_connections_are_open() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connections=2))
    quotas.opened("L", "a")
    assert quotas.has_room("L")
    quotas.opened("M", "b")
    assert not quotas.has_room("L")
    quotas.closed("L", "a")
    assert quotas.has_room("L")


def test_a_listener_has_its_own_limit() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connections=9, max_connections_of_listeners=(("L", 1),)))
    quotas.opened("L", "a")
    assert (quotas.has_room("L"), quotas.has_room("M")) == (False, True)
    assert quotas.reached("L") == "max.connections=1 of listener L"


def test_max_connections_does_not_hold_up_the_protected_listener_and_others_give_way() -> None:
    limits = ConnectionLimits(max_connections=2, protected_listener="BROKERS", capacity=4)
    quotas = ConnectionQuotas(limits)
    for listener in ("CLIENTS", "CLIENTS", "BROKERS"):
        quotas.opened(listener, "a")
    assert (quotas.has_room("CLIENTS"), quotas.has_room("BROKERS"), quotas.excess) == (False, True, 1)
    quotas.opened("BROKERS", "a")
    assert not quotas.has_room("BROKERS")  # there is no descriptor left for it
    assert quotas.excess == 2
    quotas.closed("CLIENTS", "a")
    quotas.closed("CLIENTS", "a")
    quotas.opened("BROKERS", "a")
    assert quotas.excess == 0  # its own connections stay


@pytest.mark.parametrize(
    ("descriptors", "text"),
    [(0, "max.connections=2"), (1024, "the share of ulimit -n=1024, 2 connections,")],
)
def test_the_limit_that_is_reached_is_named(descriptors: int, text: str) -> None:
    assert ConnectionQuotas(ConnectionLimits(max_connections=2, descriptor_limit=descriptors)).reached("L") == text


def test_an_address_has_its_own_limit() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connections_per_ip=1, max_connections_per_ip_overrides=(("b", 2),)))
    for host in ("a", "b"):
        quotas.opened("L", host)
    assert [quotas.admits(host) for host in ("a", "b", "c")] == [False, True, True]
    quotas.closed("L", "a")
    quotas.opened("L", "b")
    assert [quotas.admits(host) for host in ("a", "b", "c")] == [True, False, True]


def test_a_listener_has_the_limits_of_the_broker_unless_it_has_its_own() -> None:
    limits = limits_of(
        broker_settings(
            {
                "listeners": "CLIENTS://:0,BROKERS://:0",
                "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT",
                "inter.broker.listener.name": "BROKERS",
                "max.connections": "70",
                "max.connection.creation.rate": "30",
                "listener.name.clients.max.connections": "5",
                "listener.name.brokers.max.connection.creation.rate": "9",
            }
        ),
        per_address=(),
    )
    assert limits.max_connections_of_listeners == (("CLIENTS", 5), ("BROKERS", 70))
    assert limits.creation_rates_of_listeners == (("CLIENTS", 30), ("BROKERS", 9))
    assert limits.protected_listener == "BROKERS"
    assert limits_of(broker_settings({}), ()).protected_listener is None

"""How many connections there may be is counted in all, by address and by second."""

import pytest

from leadline.broker.connection_quotas import ConnectionLimits, ConnectionQuotas


def test_there_is_room_until_max_connections_are_open() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connections=2))
    quotas.opened("a")
    assert quotas.has_room
    quotas.opened("b")
    assert not quotas.has_room
    quotas.closed("a")
    assert quotas.has_room


@pytest.mark.parametrize(
    ("descriptors", "text"),
    [(0, "max.connections=2"), (1024, "the share of ulimit -n=1024, 2 connections,")],
)
def test_the_limit_that_is_reached_is_named(descriptors: int, text: str) -> None:
    assert ConnectionQuotas(ConnectionLimits(max_connections=2, descriptor_limit=descriptors)).reached() == text


def test_an_address_has_its_own_limit() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connections_per_ip=1, max_connections_per_ip_overrides=(("b", 2),)))
    for host in ("a", "b"):
        quotas.opened(host)
    assert [quotas.admits(host) for host in ("a", "b", "c")] == [False, True, True]
    quotas.closed("a")
    quotas.opened("b")
    assert [quotas.admits(host) for host in ("a", "b", "c")] == [True, False, True]


def test_so_many_are_created_in_a_second() -> None:
    quotas = ConnectionQuotas(ConnectionLimits(max_connection_creation_rate=2))
    assert quotas.seconds_to_wait(10.0) == 0
    quotas.created()
    quotas.created()
    assert quotas.seconds_to_wait(10.25) == pytest.approx(0.75)
    assert quotas.seconds_to_wait(11.0) == 0

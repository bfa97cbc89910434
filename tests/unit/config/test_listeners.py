"""Addresses as text, and as values."""

import pytest

from leadline.config.listeners import Listener, Listeners, SecurityProtocol, parse_listeners
from leadline.config.values import InvalidSetting

MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,INSIDE:SASL_SSL"


def parse(
    listeners: str, advertised: str | None = None, inter_broker: str | None = None, protocol: str | None = None
) -> Listeners:
    return parse_listeners(listeners, advertised, MAP, inter_broker, protocol)


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "", 9092)),
        ("plaintext://[::1]:9092", Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "::1", 9092)),
        ("PLAINTEXT://[fe80::1%eth0]:0", Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "fe80::1%eth0", 0)),
        ("PLAINTEXT://a.b-c.d:1", Listener("PLAINTEXT", SecurityProtocol.PLAINTEXT, "a.b-c.d", 1)),
    ],
)
def test_an_address_is_read_and_written(text: str, listener: Listener) -> None:
    (parsed,) = parse(text).bound
    assert parsed == listener
    assert str(parsed).lower() == text.lower()


def test_listeners_have_the_protocol_of_their_name() -> None:
    listeners = parse("PLAINTEXT://:1, INSIDE://:2", inter_broker="inside")
    assert listeners.named("INSIDE").protocol is SecurityProtocol.SASL_SSL
    assert listeners.inter_broker.name == "INSIDE"
    assert (listeners.inter_broker.protocol.tls, listeners.inter_broker.protocol.sasl) == (True, True)


def test_advertised_listeners_default_to_the_bound_ones() -> None:
    assert [str(listener) for listener in parse("PLAINTEXT://0.0.0.0:1", "PLAINTEXT://there:2").advertised] == [
        "PLAINTEXT://there:2"
    ]
    assert parse("PLAINTEXT://here:1").advertised == parse("PLAINTEXT://here:1").bound


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("",), "must name at least one"),
        (("here:1",), "here:1 must be NAME://host:port"),
        (("PLAINTEXT://here",), "must be NAME://host:port"),
        (("PLAINTEXT://here:65536",), "port 65536 must be between 0 and 65535"),
        (("OTHER://here:1",), "OTHER has no protocol in listener.security.protocol.map"),
        (("PLAINTEXT://:1,plaintext://:2",), "PLAINTEXT must occur only once"),
        (("PLAINTEXT://:1,SSL://:1",), "port 1 must occur only once"),
        (("PLAINTEXT://127.0.0.1:1,SSL://127.0.0.2:1",), "one IPv4 and one IPv6"),
        (("PLAINTEXT://0.0.0.0:1",), "clients cannot connect to 0.0.0.0"),
        (("PLAINTEXT://:1", "SSL://there:1"), "SSL must be one of listeners: PLAINTEXT"),
        (("SSL://:1",), "security.inter.broker.protocol=PLAINTEXT: must be the name of an advertised listener: SSL"),
        (("SSL://:1", None, "OTHER"), "inter.broker.listener.name=OTHER: has no protocol"),
        (("SSL://:1", None, "SSL", "SSL"), "must not be set together with security.inter.broker.protocol=SSL"),
    ],
)
def test_addresses_that_do_not_fit_are_refused(arguments: tuple[str, ...], error: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        parse(*arguments)
    assert error in str(refused.value)


@pytest.mark.parametrize("text", ["PLAINTEXT://127.0.0.1:1,SSL://[::1]:1", "PLAINTEXT://:0,SSL://:0"])
def test_two_listeners_may_share_a_port_as_ipv4_and_ipv6_or_if_any_will_do(text: str) -> None:
    assert len(parse(text).bound) == 2


@pytest.mark.parametrize("protocols", ["PLAINTEXT", "PLAINTEXT:CLEAR"])
def test_an_unknown_protocol_is_refused(protocols: str) -> None:
    with pytest.raises(InvalidSetting, match=r"listener\.security\.protocol\.map="):
        parse_listeners("PLAINTEXT://:1", None, protocols, None, None)

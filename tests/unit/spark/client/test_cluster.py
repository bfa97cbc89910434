"""Addresses of brokers, and what is said when one refuses."""

import pytest

from leadline.security.client_properties import ClientLogin
from leadline.spark.client.cluster import addresses
from leadline.spark.client.connection import AccessRefused, BrokerAddress, ClientSecurity
from leadline.spark.client.failures import RequestFailed


def test_addresses_are_read_with_protocols_and_ipv6() -> None:
    parsed = list(addresses("a:1, PLAINTEXT://b:2,[::1]:3,"))
    assert parsed == [BrokerAddress("a", 1), BrokerAddress("b", 2), BrokerAddress("::1", 3)]


@pytest.mark.parametrize("servers", ["host", "host:", ":9092", "host:port", "host:99999"])
def test_what_is_no_address_is_refused(servers: str) -> None:
    with pytest.raises(AccessRefused, match="is not host:port"):
        list(addresses(servers))


def test_a_failed_request_is_named_by_its_error() -> None:
    assert str(RequestFailed("orders-0", 6)) == "orders-0: NotLeaderOrFollower (6)"
    assert str(RequestFailed("orders-0", 30, "no")) == "orders-0: GroupAuthorizationFailed (30): no"
    assert str(RequestFailed("orders-0", 999, "no")) == "orders-0: error 999 (999): no"
    assert RequestFailed("orders-0", 6).retriable
    assert not RequestFailed("orders-0", 30).retriable


SCRAM = {"security.protocol": "sasl_ssl", "sasl.mechanism": "scram-sha-256", "request.timeout.ms": "500"}


def test_client_security_is_read_from_settings() -> None:
    access = ClientSecurity.of({**SCRAM, "sasl.username": "ada", "sasl.password": "x"})
    assert access.context is not None
    assert (access.mechanism, access.timeout_s) == ("SCRAM-SHA-256", 0.5)
    assert isinstance(access.login, ClientLogin)
    assert (access.login.username, access.login.password.reveal_text()) == ("ada", "x")
    with pytest.raises(AccessRefused, match="it is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"):
        ClientSecurity.of({"security.protocol": "TLS"})


def test_credentials_are_found_in_a_jaas_line() -> None:
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="ada" password="s=1";'
    access = ClientSecurity.of({**SCRAM, "sasl.jaas.config": jaas})
    assert isinstance(access.login, ClientLogin)
    assert (access.login.username, access.login.password.reveal_text()) == ("ada", "s=1")


def test_host_names_are_checked_by_default() -> None:
    checked = ClientSecurity.of({"security.protocol": "SSL"}).context
    unchecked = ClientSecurity.of({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}).context
    assert checked is not None
    assert unchecked is not None
    assert checked.check_hostname
    assert not unchecked.check_hostname

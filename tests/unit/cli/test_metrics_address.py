"""Addresses to listen on, as options."""

import argparse

import pytest

from leadline.cli.metrics_address import MetricsAddress, metrics_address, metrics_url


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:9404", "127.0.0.1", 9404),
        ("localhost:0", "localhost", 0),
        ("9404", "127.0.0.1", 9404),
        (":9404", "", 9404),
        ("[::1]:9404", "::1", 9404),
    ],
)
def test_an_address_has_a_host_and_a_port(text: str, host: str, port: int) -> None:
    assert metrics_address(text) == (host, port)
    assert metrics_address(str(metrics_address(text))) == (host, port)


@pytest.mark.parametrize("text", ["", "localhost", "localhost:", "a:b", "a:65536", "::1:9404", "1:2:3", "a:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        metrics_address(text)


def test_the_next_brokers_use_the_next_ports_unless_any_will_do() -> None:
    assert MetricsAddress("a", 9404).shifted(2) == ("a", 9406)
    assert MetricsAddress("a", 0).shifted(2) == ("a", 0)


@pytest.mark.parametrize(("host", "url"), [("", "127.0.0.1:1"), ("0.0.0.0", "127.0.0.1:1"), ("::1", "[::1]:1")])
def test_the_url_is_one_that_works_on_this_machine(host: str, url: str) -> None:
    assert metrics_url(MetricsAddress(host, 1)) == f"http://{url}/metrics"

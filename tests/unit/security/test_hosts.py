"""Addresses as Java prints them. Those of connections were read off an NIO server channel of Java 17."""

import pytest

from leadline.security.hosts import host_address, unnamed_address


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "/127.0.0.1"),
        ("::1", "/0:0:0:0:0:0:0:1"),
        ("2001:db8::1:0:0:ff", "/2001:db8:0:0:1:0:0:ff"),
        ("fe80::a00:27ff:fe8e:1%eth0", "/fe80:0:0:0:a00:27ff:fe8e:1%eth0"),
        ("::ffff:10.0.0.1", "/10.0.0.1"),
        ("::", "/0:0:0:0:0:0:0:0"),
        ("somewhere", "/somewhere"),
    ],
)
def test_addresses_look_as_java_writes_them(host: str, address: str) -> None:
    assert unnamed_address(host) == address
    assert host_address(host) == address[1:]


def test_a_link_local_peer_has_the_number_of_its_interface() -> None:
    assert host_address("fe80::fc:ff:fe00:1", 4) == "fe80:0:0:0:fc:ff:fe00:1%4"
    assert unnamed_address("fe80::1", 4) == "/fe80:0:0:0:0:0:0:1%4"
    assert host_address("10.0.0.1", 4) == "10.0.0.1"

"""The value of zookeeper.connect. The session itself is tested on a real ZooKeeper, in `test_client`."""

import pytest

from leadline.config.values import InvalidSetting
from leadline.coordination.zookeeper.session import ConnectString


@pytest.mark.parametrize(
    ("connect", "parsed"),
    [
        ("z", ConnectString("z", 1, "")),
        ("z:2181", ConnectString("z:2181", 1, "")),
        ("a:1,b:2,c:3", ConnectString("a:1,b:2,c:3", 3, "")),
        ("a:1,b:2/kafka", ConnectString("a:1,b:2", 2, "/kafka")),
        ("a:1/kafka/one/", ConnectString("a:1", 1, "/kafka/one")),
        ("a:1/", ConnectString("a:1", 1, "")),
        ("[::1]:2181/k", ConnectString("[::1]:2181", 1, "/k")),
    ],
)
def test_hosts_and_chroot_are_separated(connect: str, parsed: ConnectString) -> None:
    assert ConnectString.parse(connect) == parsed


@pytest.mark.parametrize("connect", ["", "a:port", "a:1//b", "a:1/b/../c", "a:1/b//c"])
def test_a_malformed_value_is_refused_with_the_form_that_is_expected(connect: str) -> None:
    with pytest.raises(InvalidSetting, match=r"expected host:port,host:port/path$"):
        ConnectString.parse(connect)

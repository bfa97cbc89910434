"""Key stores, JAAS lines and the way to ZooKeeper, before a migration."""

import pytest

from leadline.cli.migrate.finding import Severity
from leadline.cli.migrate.listener_findings import judge_protection
from leadline.config.broker import broker_settings

PLAIN = {"listeners": "PLAINTEXT://localhost:9092", "zookeeper.connect": "localhost:2181", "log.dirs": "/data"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";'
SASL = {
    "listeners": "SASL_PLAINTEXT://localhost:9092",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
}


def missing(path: str) -> bytes:
    raise FileNotFoundError(2, "No such file or directory", path)


def findings(settings: dict[str, str], options: str = "") -> list[tuple[Severity, str]]:
    protection = judge_protection(broker_settings(PLAIN | settings), {"KAFKA_OPTS": options}, missing, "file")
    return [(finding.severity, finding.what) for finding in protection]


def test_plain_listeners_raise_no_finding() -> None:
    assert findings({}) == []


def test_a_login_module_in_the_settings_raises_no_finding() -> None:
    assert findings(SASL | {"listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS}) == []


def test_a_listener_without_a_login_module_blocks() -> None:
    ((severity, what),) = findings(SASL)
    assert severity is Severity.BLOCKS
    assert "jaas" in what.lower()


def test_a_file_that_is_not_on_this_machine_is_a_warning() -> None:
    stores = {"listeners": "SSL://localhost:9092", "security.inter.broker.protocol": "SSL"}
    stores |= {"ssl.keystore.location": "/etc/keys.p12", "ssl.keystore.password": "x", "ssl.keystore.type": "PKCS12"}
    assert findings(stores) == [
        (Severity.WARNS, "/etc/keys.p12 is not on this machine, and what depends on it was not checked")
    ]


@pytest.mark.parametrize("settings", [SASL, {"zookeeper.set.acl": "true"}])
def test_a_jaas_file_that_is_not_on_this_machine_is_a_warning(settings: dict[str, str]) -> None:
    lines = findings(settings, "-Djava.security.auth.login.config=/etc/jaas")
    assert {severity for severity, _ in lines} == {Severity.WARNS}
    assert all("/etc/jaas is not on this machine" in what for _, what in lines)

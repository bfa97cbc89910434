"""How ZooKeeper is reached, from settings and Java's options: what is obeyed, and what stops the start."""

import os
import ssl
from pathlib import Path

import pytest

from leadline.broker.zookeeper_access import zookeeper_access
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.coordination.zookeeper.access import PLAIN_ACCESS, ZooKeeperAccess
from leadline.log.files import read_file
from leadline.runtime.ports import OsFiles
from tests.support.certificates import authority

DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule required"
CLIENT = f'Client {{ {DIGEST} username="kafka" password="hush-hush"; }};'
TLS = {"ssl.client.enable": "true", "clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty"}


def access(settings: dict[str, str], **properties: str) -> ZooKeeperAccess:
    named = {f"zookeeper.{name}": text for name, text in settings.items()}
    java = {name.replace("_", "."): text for name, text in properties.items()}
    config = broker_settings(named | {"zookeeper.connect": "localhost"}).broker
    return zookeeper_access(config, java, lambda path: read_file(OsFiles(), path), os.urandom)


def stores(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "ca.pem").write_text(authority().pem)
    location = authority().issue("broker").write(tmp_path / "broker.pem")
    return TLS | {"ssl.keystore.location": str(location), "ssl.truststore.location": str(tmp_path / "ca.pem")}


def test_without_settings_the_connection_is_plain() -> None:
    assert access({}) == PLAIN_ACCESS


def test_tls_has_the_protocols_the_names_and_the_stores_of_the_settings(tmp_path: Path) -> None:
    tls = access(stores(tmp_path)).tls
    assert tls is not None
    assert (tls.minimum_version, tls.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert [certificate["subject"][-1] for certificate in tls.get_ca_certs()] == [(("commonName", "Test CA"),)]
    other = access(
        stores(tmp_path)
        | {
            "ssl.enabled.protocols": "TLSv1.3,TLSv1.2",
            "ssl.endpoint.identification.algorithm": "",
            "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        }
    ).tls
    assert other is not None
    assert (other.maximum_version, other.check_hostname) == (ssl.TLSVersion.TLSv1_3, False)
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in {cipher["name"] for cipher in other.get_ciphers()}
    assert "ECDHE-ECDSA-AES256-GCM-SHA384" not in {cipher["name"] for cipher in other.get_ciphers()}


def test_the_login_is_that_of_the_section_client_of_the_jaas_file(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(CLIENT + f'Mine {{ {DIGEST} username="me" password="x"; }};')
    login = access({}, java_security_auth_login_config=str(file)).login
    assert login is not None
    assert (login.username, login.password.value) == ("kafka", "hush-hush")
    mine = access({}, java_security_auth_login_config=str(file), zookeeper_sasl_clientconfig="Mine").login
    assert mine is not None
    assert mine.username == "me"
    assert access({}, java_security_auth_login_config=str(file), zookeeper_sasl_clientconfig="None").login is None


@pytest.mark.parametrize("by", ["a login", "a certificate"])
def test_acls_of_nodes_need_an_owner(tmp_path: Path, by: str) -> None:
    (tmp_path / "jaas.conf").write_text(CLIENT)
    with pytest.raises(InvalidSetting, match=r"zookeeper\.set\.acl=true: nodes need an owner"):
        access({"set.acl": "true"})
    if by == "a login":
        assert access({"set.acl": "true"}, java_security_auth_login_config=str(tmp_path / "jaas.conf")).set_acl
    else:
        assert access(stores(tmp_path) | {"set.acl": "true"}).set_acl


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ssl.client.enable": "true"}, "zookeeper.clientCnxnSocket=: must be org.apache.zookeeper.ClientCnxnSocketNe"),
        (TLS | {"clientCnxnSocket": "ClientCnxnSocketNIO"}, "zookeeper.clientCnxnSocket=ClientCnxnSocketNIO: must be"),
        (TLS | {"ssl.keystore.location": "/x/store"}, "set zookeeper.ssl.keystore.type, as the name ends in none of"),
        (TLS | {"ssl.truststore.location": "/no/such.jks"}, "TLS to ZooKeeper (zookeeper.ssl.*): Failed to load SSL"),
        (TLS | {"ssl.keystore.location": "/x.p12", "ssl.keystore.type": "bcfks"}, "must be JKS, PKCS12 or PEM"),
        (TLS | {"ssl.protocol": "SSLv3"}, "must be TLSv1.2, TLSv1.3 or both"),
        (TLS | {"ssl.crl.enable": "true"}, "zookeeper.ssl.crl.enable=true: not supported"),
        (TLS | {"ssl.ocsp.enable": "true"}, "zookeeper.ssl.ocsp.enable=true: not supported"),
    ],
)
def test_a_connection_that_cannot_be_protected_as_set_stops_the_start(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        access(settings)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file or directory"),
        ("Client { com.sun.security.auth.module.Krb5LoginModule required; };", "must have one login module"),
        (f"Client {{ {DIGEST} username=kafka; }};", "of the section Client lacks password"),
        ("Client {", "the section Client of a JAAS file does not end"),
        ("Client { };", "must have one login module"),
    ],
)
def test_a_jaas_file_that_is_none_stops_the_start(tmp_path: Path, text: str | None, message: str) -> None:
    file = tmp_path / "jaas.conf"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidSetting) as refused:
        access({}, java_security_auth_login_config=str(file))
    assert str(refused.value).startswith(f"java.security.auth.login.config={file}: ")
    assert message in str(refused.value)


def test_a_section_that_may_not_log_in_stops_the_start_as_in_kafka(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(CLIENT)
    with pytest.raises(InvalidSetting, match=r"-Dzookeeper\.sasl\.client forbids the login") as refused:
        access({}, java_security_auth_login_config=str(tmp_path / "jaas.conf"), zookeeper_sasl_client="false")
    assert "hush-hush" not in str(refused.value)

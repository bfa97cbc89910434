"""The security properties of Kafka's clients, for librdkafka and for our own client."""

import ssl
from pathlib import Path

import pytest

from leadline.config.values import InvalidSetting
from leadline.security.client_properties import NAMES, ClientStores, SecurityProperties, librdkafka_stores
from tests.support.certificates import issued, new_authority
from tests.support.java_stores import jks

CA = new_authority()
CLIENT = issued(CA, "client")
PASSWORD = "store-secret"
LOGIN = "org.apache.kafka.common.security"
SCRAM = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
TLS = {"security.protocol": "SSL"}
FILES = {
    "trust.jks": jks(PASSWORD, {}, {"ca": CA}),
    "trust.p12": CA.pkcs12(PASSWORD),
    "trust.pem": CA.certificate_pem.encode(),
    "me.jks": jks(PASSWORD, {"me": CLIENT}, {}),
    "me.p12": CLIENT.pkcs12(PASSWORD),
    "me.pem": (CLIENT.key_pem() + CLIENT.chain_pem).encode(),
    "locked.pem": (CLIENT.key_pem("key-secret") + CLIENT.chain_pem).encode(),
}


def read(path: str) -> bytes:
    return FILES[path]


def scram(options: str) -> dict[str, str]:
    return {**SCRAM, "sasl.jaas.config": f"{LOGIN}.scram.ScramLoginModule required {options};"}


@pytest.mark.parametrize(
    ("options", "username", "password"),
    [
        ('username="me" password="a=b"', "me", "a=b"),
        ("username='me' password='a\"b'", "me", 'a"b'),
        ('username=me password="a\\"b;c"', "me", 'a"b;c'),
        ('/* old */ username="me"\n  password="p" // mine\n', "me", "p"),
    ],
)
def test_a_jaas_line_is_read_in_all_quotings(options: str, username: str, password: str) -> None:
    assert SecurityProperties.of(scram(options)).librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": username,
        "sasl.password": password,
    }


@pytest.mark.parametrize(
    ("kafka", "librdkafka"),
    [
        ({}, {}),
        ({**TLS, "ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        ({**TLS, "ssl.truststore.location": "trust.jks", "ssl.truststore.password": "x"}, {}),
        ({**TLS, "ssl.ca.location": "ca.pem"}, {"ssl.ca.location": "ca.pem"}),
        (
            {**TLS, "ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_CBC_SHA"},
            {"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384:AES128-SHA"},
        ),
        (
            {
                **SCRAM,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.login.callback.handler.class": f"{LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.jaas.config": f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required clientId=me clientSecret=s;",
            },
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
                "sasl.oauthbearer.client.id": "me",
                "sasl.oauthbearer.client.secret": "s",
            },
        ),
    ],
)
def test_kafkas_own_client_properties_are_translated_for_librdkafka(
    kafka: dict[str, str], librdkafka: dict[str, str]
) -> None:
    protocol = {name: value for name, value in kafka.items() if name == "security.protocol"}
    assert SecurityProperties.of(kafka).librdkafka() == {**protocol, **librdkafka}


def test_kafkas_name_counts_where_both_are_set() -> None:
    both = {**scram('username="me" password="a"'), "sasl.username": "other", "sasl.password": "b"}
    assert SecurityProperties.of(both).librdkafka()["sasl.username"] == "me"


@pytest.mark.parametrize(
    "kafka",
    [
        {"ssl.truststore.location": "trust.jks", "ssl.truststore.password": PASSWORD},
        {"ssl.truststore.location": "trust.p12", "ssl.truststore.password": PASSWORD},
        {
            "ssl.truststore.location": "trust.p12",
            "ssl.truststore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.keystore.location": "me.p12",
            "ssl.keystore.password": PASSWORD,
            "ssl.keystore.type": "pkcs12",
        },
        {
            "ssl.truststore.location": "trust.jks",
            "ssl.keystore.location": "me.jks",
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        },
        {
            "ssl.truststore.location": "trust.pem",
            "ssl.truststore.type": "PEM",
            "ssl.keystore.location": "locked.pem",
            "ssl.keystore.type": "PEM",
            "ssl.key.password": "key-secret",
        },
        {
            "ssl.truststore.certificates": CA.certificate_pem,
            "ssl.keystore.key": CLIENT.key_pem(),
            "ssl.keystore.certificate.chain": CLIENT.chain_pem,
        },
    ],
)
def test_stores_of_every_kind_become_pem_in_memory_and_a_context(kafka: dict[str, str]) -> None:
    properties = SecurityProperties.of({**TLS, **kafka})
    stores = properties.stores(read)
    with librdkafka_stores(stores) as paths:
        contents = {name: Path(path).read_text() for name, path in paths.items()}
        locations = list(paths.values())
    assert not any(Path(path).exists() for path in locations)
    assert contents["ssl.ca.location"].count("BEGIN CERTIFICATE") == 1
    if "ssl.keystore.location" in kafka or "ssl.keystore.key" in kafka:
        assert contents["ssl.certificate.location"].count("BEGIN CERTIFICATE") == len(CLIENT.chain)
        assert contents["ssl.key.location"].count("BEGIN PRIVATE KEY") == 1
    context = properties.ssl_context(read)
    assert context.check_hostname
    assert context.get_ca_certs(binary_form=True) == CA.chain


def test_pem_under_librdkafkas_names_becomes_a_context_that_trusts_only_it() -> None:
    names = {
        "ssl.ca.pem": CA.certificate_pem,
        "ssl.certificate.location": "me.pem",
        "ssl.key.location": "me.pem",
        "enable.ssl.certificate.verification": "false",
    }
    context = SecurityProperties.of({**TLS, **names}).ssl_context(read)
    assert context.get_ca_certs(binary_form=True) == CA.chain
    assert context.verify_mode is ssl.CERT_NONE
    inline = {"ssl.certificate.pem": CLIENT.chain_pem, "ssl.key.pem": CLIENT.key_pem()}
    assert SecurityProperties.of({**TLS, **inline}).ssl_context(read).check_hostname


def test_without_a_store_there_is_none() -> None:
    assert SecurityProperties.of(TLS).stores(read) == ClientStores(None, None)


def test_older_versions_of_tls_are_left_out() -> None:
    context = SecurityProperties.of({**TLS, "ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1"}).ssl_context(read)
    assert context.maximum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("kafka", "message"),
    [
        (
            {**TLS, "ssl.trustore.location": "x", "ssl.client.auth": "required", "retries": "3"},
            "there is no property ssl.client.auth, ssl.trustore.location (did you mean ssl.truststore.location?)",
        ),
        (
            {"ssl.truststore.location": "x", "ssl.truststore.password": "hunter2"},
            "ssl.truststore.location, ssl.truststore.password have no effect with security.protocol=PLAINTEXT: "
            "set it to SSL or SASL_SSL",
        ),
        (
            {**TLS, "sasl.jaas.config": "hunter2"},
            "sasl.jaas.config has no effect with security.protocol=SSL: set it to SASL_SSL",
        ),
        (
            {**TLS, "ssl.engine.factory.class": "my.Engine", "ssl.provider": "BC"},
            "ssl.engine.factory.class, ssl.provider: classes and providers of Java cannot be used here",
        ),
        ({"security.protocol": "TLS"}, "security.protocol=TLS: it is PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        (
            {"security.protocol": "SASL_SSL"},
            "sasl.mechanism is missing: it is PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI",
        ),
        ({**SCRAM, "sasl.mechanism": "NTLM"}, "sasl.mechanism=NTLM: it is PLAIN"),
        (SCRAM, "sasl.jaas.config is missing, or sasl.username and sasl.password: SCRAM-SHA-512 needs a user"),
        (scram('username="me"'), "sasl.jaas.config: password missing"),
        ({**SCRAM, "sasl.jaas.config": 'x.Evil required password="hunter2";'}, "x.Evil is not allowed"),
        (
            {**SCRAM, "sasl.jaas.config": f'{LOGIN}.plain.PlainLoginModule required password="hunter2";'},
            "PlainLoginModule is not for SCRAM-SHA-512",
        ),
        (scram('username="me" password="hunter2"') | {"sasl.mechanism": "GSSAPI"}, "of GSSAPI it cannot be used here"),
    ],
)
def test_what_is_wrong_is_named_in_one_error_without_a_secret(kafka: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting) as error:
        SecurityProperties.of(kafka)
    assert message in str(error.value)
    assert "hunter2" not in str(error.value)


def test_a_login_by_token_is_for_our_own_client_alone() -> None:
    properties = SecurityProperties.of(scram('username="id" password="hmac" tokenauth="true"'))
    properties.check_own()
    assert properties.login is not None
    assert properties.login.by_token
    with pytest.raises(InvalidSetting, match="librdkafka cannot log in with a delegation token"):
        properties.librdkafka()


@pytest.mark.parametrize(
    "kafka",
    [
        {**TLS, "ssl.engine.id": "dynamic"},
        {**SCRAM, "sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"},
        {**SCRAM, "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": "principal=me"},
    ],
)
def test_what_only_librdkafka_can_do_is_refused_by_name_elsewhere(kafka: dict[str, str]) -> None:
    SecurityProperties.of(kafka).librdkafka()
    with pytest.raises(InvalidSetting, match=r"this command (cannot use|has)"):
        SecurityProperties.of(kafka).check_own()


def test_a_store_that_cannot_be_read_is_named_without_its_password() -> None:
    wrong = {**TLS, "ssl.truststore.location": "trust.jks", "ssl.truststore.password": "hunter2"}
    with pytest.raises(InvalidSetting, match=r"trust\.jks.*wrong password") as error:
        SecurityProperties.of(wrong).stores(read)
    assert "hunter2" not in str(error.value)


def test_no_name_is_listed_twice() -> None:
    assert len(NAMES) == len(set(NAMES))

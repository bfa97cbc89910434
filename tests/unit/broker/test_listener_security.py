"""How listeners are protected, from their settings: what stops a start, and what changes while a broker runs."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from leadline.broker.authentication import ListenerSecurity
from leadline.broker.broker import Broker
from leadline.broker.kerberos_logins import KerberosLogins
from leadline.broker.listener_security import (
    Credentials,
    ListenerSecurities,
    ProtectionChange,
    decoy_key,
    login_module,
)
from leadline.broker.oauth_tokens import OAuthTokens
from leadline.broker.ports import Ports
from leadline.config.broker import broker_settings
from leadline.config.security import SIGNED_HANDLER, UNSECURED_HANDLER
from leadline.config.values import InvalidSetting
from leadline.log.files import read_file
from leadline.runtime.documents import fetch_document
from leadline.runtime.ports import OsFiles, SystemChance, SystemTime
from leadline.security.client_quotas import QuotaEntity
from leadline.security.gssapi import GssapiExchange
from leadline.security.jaas import parse_jaas_file
from leadline.security.principal import ANONYMOUS, Principal
from leadline.security.principal_mapping import PrincipalMapping, certificate_principal
from leadline.security.sasl_authenticator import SaslAuthenticator
from leadline.security.sasl_client_authenticator import (
    ClientLoginStep,
    LoginComplete,
    LoginRefused,
    LoginRequest,
    SaslClientAuthenticator,
)
from leadline.security.sasl_mechanisms import Authenticated
from leadline.security.scram_credentials import (
    KAFKAS_FORM,
    CredentialForm,
    ScramMechanism,
    credential_of_password,
    credential_text,
)
from leadline.security.scram_users import ScramUserCredentials
from leadline.security.secret import Secret
from leadline.wire.frames import SIZE
from tests.support.certificates import CertificateAuthority, Identity, authority
from tests.support.sasl_listeners import received
from tests.support.scripted_kerberos import REALM, ScriptedKerberos

PLAIN_LINE = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=wonderland;"
SCRAM_LINE = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def securities(**settings: str) -> ListenerSecurities:
    properties = {name.replace("__", "."): text for name, text in settings.items()}
    properties.setdefault("inter.broker.listener.name", "PLAINTEXT")
    properties["listeners"] = f"PLAINTEXT://:9092,{properties['listeners']}"
    oauth = OAuthTokens(fetch_document, read, SystemTime(), SystemChance())
    kerberos = KerberosLogins(ScriptedKerberos(KAFKA), read, {})
    credentials = Credentials(ScramUserCredentials(), oauth, kerberos, SystemChance())
    return ListenerSecurities(broker_settings(properties), credentials, read)


def read(path: str) -> bytes:
    return read_file(OsFiles(), path)


def security(**settings: str) -> ListenerSecurity:
    (only,) = securities(**settings).by_listener.values()
    return only


SASL = {"listeners": "SASL_PLAINTEXT://:9093", "sasl__enabled__mechanisms": "PLAIN"}
SSL = {"listeners": "SSL://:9093", "ssl__keystore__type": "PEM", "ssl__truststore__type": "PEM"}
JAAS = "listener__name__sasl_plaintext__plain__sasl__jaas__config"

OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
OAUTH_LINE = f"{OAUTH_MODULE} required;"
OAUTH = {"listeners": "SASL_PLAINTEXT://:9093", "sasl__enabled__mechanisms": "OAUTHBEARER"}
OAUTH_JAAS = "listener__name__sasl_plaintext__oauthbearer__sasl__jaas__config"
HANDLER = "listener__name__sasl_plaintext__oauthbearer__sasl__server__callback__handler__class"
URL = {"sasl__oauthbearer__jwks__endpoint__url": "https://127.0.0.1:1/keys"}
SIGNED = OAUTH | URL | {OAUTH_JAAS: OAUTH_LINE, HANDLER: SIGNED_HANDLER}


KAFKA = f"kafka/host@{REALM}"
KERBEROS_MODULE = "com.sun.security.auth.module.Krb5LoginModule"
GSSAPI_JAAS = "listener__name__sasl_plaintext__gssapi__sasl__jaas__config"
RULES = "sasl__kerberos__principal__to__local__rules"


GSSAPI = {
    "listeners": "SASL_PLAINTEXT://:9093",
    "sasl__kerberos__service__name": "kafka",
    GSSAPI_JAAS: f"{KERBEROS_MODULE} required useKeyTab=true storeKey=true keyTab='{__file__}' principal='{KAFKA}';",
}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"listeners": "SASL_PLAINTEXT://:9093"},
            "gssapi.sasl.jaas.config is not set: GSSAPI on listener SASL_PLAINTE",
        ),
        (
            {"listeners": "SASL_PLAINTEXT://:9093"},
            "Where there is no Kerberos, set them to SCRAM-SHA-512 for passwords",
        ),
        (GSSAPI | {GSSAPI_JAAS: f"{KERBEROS_MODULE} required;"}, "useKeyTab=true, storeKey=true missing: a broker has"),
        (OAUTH, "oauthbearer.sasl.jaas.config is not set: OAUTHBEARER on listener SASL_PLAINTEXT needs it"),
        (
            OAUTH | {OAUTH_JAAS: OAUTH_LINE},
            "sasl.server.callback.handler.class is not set: Kafka would acc",
        ),
        (OAUTH | {OAUTH_JAAS: OAUTH_LINE, HANDLER: SIGNED_HANDLER}, "sasl.oauthbearer.jwks.endpoint.url is not set"),
        (
            SIGNED | {"sasl__oauthbearer__jwks__endpoint__url": "http://127.0.0.1/keys"},
            "must be an https URL",
        ),
        (SIGNED | {"sasl__oauthbearer__jwks__endpoint__url": "file:///no/such/file"}, "No such file"),
        (SIGNED | {OAUTH_JAAS: f"{OAUTH_MODULE} required ssl.truststore.location='/no/such';"}, "/no/such"),
        (
            OAUTH
            | {OAUTH_JAAS: f"{OAUTH_MODULE} required unsecuredValidatorAllowableClockSkewMs='-1';"}
            | {HANDLER: UNSECURED_HANDLER},
            "unsecuredValidatorAllowableClockSkewMs must be a number",
        ),
        (
            SASL | {JAAS: PLAIN_LINE, HANDLER.replace("oauthbearer", "plain"): SIGNED_HANDLER},
            "only OAUTHBEARER takes a handler",
        ),
        (SASL | {"sasl__enabled__mechanisms": "PLAIN,KERBEROS", JAAS: PLAIN_LINE}, "SASL_PLAINTEXT: KERBEROS; PLAIN"),
        (SASL | {"sasl__enabled__mechanisms": ""}, "listener SASL_PLAINTEXT needs at least one"),
        (SASL, "listener.name.sasl_plaintext.plain.sasl.jaas.config is not set: PLAIN on listener SASL_PLAINTEXT need"),
        (SASL | {JAAS: SCRAM_LINE}, "ScramLoginModule is not for PLAIN"),
        (SASL | {JAAS: "com.evil.JndiLoginModule required;"}, "com.evil.JndiLoginModule is not allowed"),
        (SSL, "listener SSL: a listener with TLS has a key store"),
        (SSL | {"ssl__keystore__location": "/no/such/file"}, "listener SSL: Failed to load SSL keystore /no/such/file"),
        (SSL | {"ssl__keystore__type": "BKS", "ssl__keystore__location": "/x"}, "listener SSL: "),
    ],
)
def test_a_listener_that_cannot_be_protected_as_set_stops_the_start(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        securities(**settings)
    assert message in str(refused.value)
    assert "wonderland" not in str(refused.value)


def test_a_listener_takes_tickets_and_its_broker_shows_them_to_the_host_of_another() -> None:
    between = {"inter__broker__listener__name": "SASL_PLAINTEXT", "zookeeper__connect": "localhost"}
    listeners = securities(**GSSAPI | between | {RULES: "RULE:[1:$1]/U,DEFAULT"})
    sasl = listeners.by_listener["SASL_PLAINTEXT"].sasl
    assert sasl is not None
    exchange = sasl.mechanisms.new_exchange("GSSAPI")
    assert isinstance(exchange, GssapiExchange)
    exchange.evaluate(f"ticket alice@{REALM} for kafka@host".encode(), 0).run()
    outcome = exchange.evaluate(b"wrapped \1\0\0\0", 0).run()
    assert isinstance(outcome, Authenticated)
    assert outcome.principal == Principal("User", "ALICE")
    new_login = listeners.between_brokers["SASL_PLAINTEXT"].new_login
    assert new_login is not None
    server, login = SaslAuthenticator(sasl), new_login("host")
    step: ClientLoginStep = login.begin()
    while not isinstance(step, LoginComplete):
        if isinstance(step, LoginRequest):
            step = login.receive(received(server, bytes(step.encode(1, "me"))[SIZE.size :], 0, 0).send[SIZE.size :])
        else:
            step = login.resume(step.run())
    assert server.session is not None
    assert server.session.principal == Principal("User", "kafka")


def test_scram_needs_no_login_module() -> None:
    listener = security(**SASL | {"sasl__enabled__mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256"})
    assert listener.sasl is not None
    assert set(listener.sasl.mechanisms) == {"SCRAM-SHA-512", "SCRAM-SHA-256"}


def test_a_login_lasts_as_long_as_mechanism_listener_or_broker_say() -> None:
    settings = SASL | {"sasl__enabled__mechanisms": "PLAIN,SCRAM-SHA-256", JAAS: PLAIN_LINE}
    lifetimes = {
        "connections__max__reauth__ms": "1000",
        "listener__name__sasl_plaintext__plain__connections__max__reauth__ms": "3000",
    }
    listener = security(**settings, **lifetimes)
    assert listener.sasl is not None
    assert listener.sasl.max_reauth_ms == {"PLAIN": 3000, "SCRAM-SHA-256": 1000}


def test_a_certificate_names_a_user_by_the_rules_of_its_listener() -> None:
    mapping = PrincipalMapping("RULE:^CN=(.*)$/$1/U")
    der = authority().issue("alice").certificate.public_bytes(Encoding.DER)
    assert certificate_principal(der, mapping) == Principal("User", "ALICE")
    assert certificate_principal(None, mapping) == ANONYMOUS
    with pytest.raises(ValueError, match="CN=alice"):
        certificate_principal(der, PrincipalMapping("RULE:^nobody$/x/"))


def test_the_key_of_decoys_is_that_of_the_cluster_and_its_passwords() -> None:
    def key(cluster: str, line: str) -> Secret:
        return decoy_key(cluster, broker_settings({"listener.name.x.plain.sasl.jaas.config": line}), {})

    assert key("one", PLAIN_LINE) == key("one", PLAIN_LINE)
    assert key("one", PLAIN_LINE) != key("two", PLAIN_LINE)
    assert key("one", PLAIN_LINE) != key("one", SCRAM_LINE)


@pytest.mark.parametrize("name", ["delegation.token.secret.key", "delegation.token.master.key"])
def test_the_key_of_decoys_is_secret_where_only_tokens_have_a_secret(name: str) -> None:
    """A line for SCRAM needs no password, and clients can know the cluster id."""
    properties = {"listener.name.x.scram-sha-256.sasl.jaas.config": SCRAM_LINE}
    keys = {decoy_key("one", broker_settings(properties | more), {}) for more in ({}, {name: "a"}, {name: "b"})}
    assert len(keys) == 3


FILE = f"""
KafkaServer {{ {PLAIN_LINE} }};
sasl_plaintext.KafkaServer {{ {PLAIN_LINE.replace("alice", "bob")} {SCRAM_LINE.replace(";", " username=me;")} }};
"""


@pytest.mark.parametrize(
    ("text", "line", "user"),
    [
        (FILE, None, "bob"),
        (FILE.partition("sasl_plaintext")[0], None, "alice"),
        (FILE, PLAIN_LINE.replace("alice", "carol"), "carol"),
    ],
    ids=["the listener's section", "the common section", "the listener's own line"],
)
def test_a_jaas_file_has_the_login_modules_of_listeners_without_a_line(text: str, line: str | None, user: str) -> None:
    own = {} if line is None else {"plain.sasl.jaas.config": line}
    module = login_module("SASL_PLAINTEXT", "PLAIN", own, parse_jaas_file(text))
    assert module is not None
    assert list(module.options) == [f"user_{user}"]


def test_the_key_of_decoys_is_that_of_the_jaas_file_too() -> None:
    settings = broker_settings({})
    keys = {decoy_key("one", settings, parse_jaas_file(text)) for text in (FILE, FILE.replace("wonderland", "x"))}
    assert len(keys | {decoy_key("one", settings, {})}) == 3


def test_a_broker_reads_the_jaas_file_of_kafka_opts(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(FILE)
    properties = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "log.dirs": str(tmp_path / "data"),
    }

    async def main() -> None:
        options = f"-Xmx1G -Djava.security.auth.login.config={tmp_path / 'jaas.conf'}"
        broker = Broker(broker_settings(properties), Ports(environment={"KAFKA_OPTS": options}))
        await broker.start()
        sasl = broker.securities.by_listener["SASL_PLAINTEXT"].sasl
        await broker.stop()
        assert sasl is not None
        assert set(sasl.mechanisms) == {"PLAIN", "SCRAM-SHA-256"}
        missing = Ports(environment={"KAFKA_OPTS": f"-Djava.security.auth.login.config={tmp_path / 'none'}"})
        with pytest.raises(InvalidSetting, match=r"java\.security\.auth\.login\.config=.*none: No such file"):
            Broker(broker_settings(properties), missing)

    asyncio.run(main())


# Users


def test_a_user_has_the_credentials_that_its_node_has() -> None:
    users, mechanism = ScramUserCredentials(), ScramMechanism.SCRAM_SHA_256
    credential = credential_of_password(mechanism, Secret.of("wonderland"), b"salt")
    users.put(QuotaEntity("alice"), {"SCRAM-SHA-256": credential_text(credential), "producer_byte_rate": "5"})
    users.put(QuotaEntity("bob"), {"producer_byte_rate": "5"})
    users.put(QuotaEntity("alice", "client"), {})
    assert users.users == ["alice"]
    assert users.credential_of(mechanism, "alice") == credential
    assert users.credential_of(ScramMechanism.SCRAM_SHA_512, "alice") is None
    users.put(QuotaEntity("alice"), {})
    assert users.credential_of(mechanism, "alice") is None


def test_a_credential_that_is_none_is_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    users = ScramUserCredentials()
    users.put(QuotaEntity("alice"), {"SCRAM-SHA-256": "salt=secret"})
    assert users.users == []
    assert "ignoring an unreadable SCRAM-SHA-256 credential of user alice" in caplog.text
    assert "secret" not in caplog.text


def test_the_forms_of_a_mechanism_are_those_by_which_users_can_log_in() -> None:
    users, mechanism = ScramUserCredentials(), ScramMechanism.SCRAM_SHA_256

    def put(user: str, salt: bytes, iterations: int) -> None:
        credential = credential_of_password(mechanism, Secret.of("wonderland"), salt, iterations)
        users.put(QuotaEntity(user), {"SCRAM-SHA-256": credential_text(credential)})

    for user in ("alice", "bob"):
        put(user, bytes(32), 8192)
    put("carol", b"sljczh9kbt6v9rurt3ivvhpa2", 4096)  # by Kafka's tool
    put("weak", b"salt", 4095)
    assert set(users.forms_of(mechanism)) == {CredentialForm(8192, 32), KAFKAS_FORM}
    assert users.forms_of(ScramMechanism.SCRAM_SHA_512) == []
    put("alice", b"sljczh9kbt6v9rurt3ivvhpa2", 4096)
    assert set(users.forms_of(mechanism)) == {CredentialForm(8192, 32), KAFKAS_FORM}
    users.put(QuotaEntity("bob"), {})
    assert users.forms_of(mechanism) == [KAFKAS_FORM]


# Certificates that change while the broker runs


def write(path: Path, identity: Identity, seconds: int = 0) -> None:
    identity.write(path)
    os.utime(path, (path.stat().st_atime, path.stat().st_mtime + seconds))


def tls_settings(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "ca.pem").write_text(authority().pem)
    write(tmp_path / "server.pem", authority().issue("localhost"))
    return SSL | {
        "ssl__keystore__location": str(tmp_path / "server.pem"),
        "ssl__truststore__location": str(tmp_path / "ca.pem"),
    }


def test_stores_are_read_again_and_new_connections_get_them(tmp_path: Path) -> None:
    listeners = securities(**tls_settings(tmp_path))
    before = listeners.by_listener["SSL"].tls
    write(tmp_path / "server.pem", authority().issue("localhost"), 5)
    assert listeners.by_listener["SSL"].tls is before
    listeners.read_again()
    assert listeners.by_listener["SSL"].tls is not before


def test_only_listeners_whose_settings_change_get_other_stores(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path)
    listeners = securities(**settings)
    before = listeners.by_listener["SSL"].tls
    properties = {name.replace("__", "."): text for name, text in settings.items()}
    properties["listeners"] = f"PLAINTEXT://:9092,{properties['listeners']}"
    assert listeners.change(broker_settings(properties)) == ProtectionChange({})
    write(tmp_path / "other.pem", authority().issue("localhost"))
    properties["listener.name.ssl.ssl.keystore.location"] = str(tmp_path / "other.pem")
    change = listeners.change(broker_settings(properties))
    assert listeners.by_listener["SSL"].tls is before
    listeners.use(change)
    assert listeners.by_listener["SSL"].tls is change.stores["SSL"].server_context


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        (lambda: authority().issue("another"), "DistinguishedName does not match"),
        (lambda: None, "Failed to load SSL keystore"),
    ],
)
def test_a_store_that_does_not_fit_changes_nothing(
    tmp_path: Path, identity: Callable[[], Identity | None], message: str
) -> None:
    listeners = securities(**tls_settings(tmp_path))
    before = listeners.by_listener["SSL"].tls
    if (successor := identity()) is None:
        (tmp_path / "server.pem").write_text("no key")
    else:
        write(tmp_path / "server.pem", successor, 5)
    with pytest.raises(InvalidSetting, match=message):
        listeners.read_again()
    assert listeners.by_listener["SSL"].tls is before


# Between brokers

OWN_LINE = PLAIN_LINE.replace("user_alice", 'username=broker password="broker-secret" user_alice')
BROKERS = SASL | {
    "inter__broker__listener__name": "SASL_PLAINTEXT",
    "zookeeper__connect": "localhost",
    "sasl__mechanism__inter__broker__protocol": "PLAIN",
}


def test_brokers_of_a_cluster_log_in_as_their_listener_demands(tmp_path: Path) -> None:
    between = securities(**BROKERS, **{JAAS: OWN_LINE}).between_brokers
    assert list(between) == ["SASL_PLAINTEXT"]
    assert between["SASL_PLAINTEXT"].tls is None
    assert between["SASL_PLAINTEXT"].new_login is not None
    assert 0.6 <= between["SASL_PLAINTEXT"].login_share() <= 0.8
    tls = tls_settings(tmp_path) | {"inter__broker__listener__name": "SSL", "zookeeper__connect": "localhost"}
    between = securities(**tls).between_brokers
    assert between["SSL"].tls is not None
    assert between["SSL"].tls.check_hostname
    assert between["SSL"].new_login is None
    names = tls | {"listener__name__ssl__ssl__endpoint__identification__algorithm": ""}
    unchecked = securities(**names).between_brokers["SSL"].tls
    assert unchecked is not None
    assert not unchecked.check_hostname


UNSECURED_LINE = f"{OAUTH_MODULE} required unsecuredLoginStringClaim_sub=broker;"
SECURED_LINE = f"{OAUTH_MODULE} required clientId=broker clientSecret=broker-secret;"
LOGIN = "listener__name__sasl_plaintext__oauthbearer__sasl__login__callback__handler__class"
TOKEN_URL = "sasl__oauthbearer__token__endpoint__url"
ENDPOINT_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
BEARERS = SIGNED | {
    "inter__broker__listener__name": "SASL_PLAINTEXT",
    "zookeeper__connect": "localhost",
    "sasl__mechanism__inter__broker__protocol": "OAUTHBEARER",
}


def test_a_broker_shows_a_token_of_its_own_or_one_of_a_server() -> None:
    unsecured = securities(**BEARERS | {OAUTH_JAAS: UNSECURED_LINE}).between_brokers["SASL_PLAINTEXT"].new_login
    assert unsecured is not None
    assert isinstance(unsecured("other"), SaslClientAuthenticator)
    changes = {OAUTH_JAAS: SECURED_LINE, LOGIN: ENDPOINT_HANDLER, TOKEN_URL: "https://127.0.0.1:1/token"}
    secured = securities(**BEARERS | changes).between_brokers["SASL_PLAINTEXT"].new_login
    assert secured is not None
    with pytest.raises(LoginRefused, match="this broker has no token: it was not asked for yet"):
        secured("other")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "sasl.jaas.config: unsecuredLoginStringClaim_sub is missing"),
        ({LOGIN: ENDPOINT_HANDLER}, "sasl.oauthbearer.token.endpoint.url is not set: a login by OAUTHBEARER needs"),
        ({LOGIN: ENDPOINT_HANDLER, TOKEN_URL: "http://x/"}, "sasl.oauthbearer.token.endpoint.url=http://x/: must be"),
        ({LOGIN: ENDPOINT_HANDLER, TOKEN_URL: "https://x/"}, "sasl.jaas.config: clientId and clientSecret are missing"),
        ({LOGIN: ENDPOINT_HANDLER, TOKEN_URL: "file:///no/such"}, "token.endpoint.url=file:///no/such: "),
        ({LOGIN: "com.example.Login"}, "Java classes cannot be loaded; must be one of"),
    ],
)
def test_a_broker_that_could_get_no_token_does_not_start(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        securities(**BEARERS | changes)
    assert message in str(refused.value)


def test_a_single_node_and_brokers_on_plaintext_log_in_nowhere(tmp_path: Path) -> None:
    alone = {name: text for name, text in BROKERS.items() if name != "zookeeper__connect"}
    assert securities(**alone, **{JAAS: PLAIN_LINE}).between_brokers == {}
    assert securities(**tls_settings(tmp_path), zookeeper__connect="localhost").between_brokers == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({JAAS: PLAIN_LINE}, f"{JAAS.replace('__', '.')}: username and password are missing"),
        ({JAAS: OWN_LINE.replace("password=", "passwort=")}, "username and password are missing"),
        (
            {
                "sasl__enabled__mechanisms": "SCRAM-SHA-256",
                "sasl__mechanism__inter__broker__protocol": "SCRAM-SHA-256",
            },
            "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config: username and password are missing",
        ),
        (
            {JAAS: OWN_LINE, "sasl__mechanism__inter__broker__protocol": "GSSAPI"},
            "sasl.mechanism.inter.broker.protocol=GSSAPI: must be one of sasl.enabled.mechanisms=PLAIN",
        ),
    ],
)
def test_brokers_that_could_not_log_in_do_not_start(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        securities(**BROKERS | changes)
    assert message in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_broker_accepts_its_own_certificate_on_the_listener_of_brokers(tmp_path: Path) -> None:
    """As Kafka does: what it could not say to itself, it could not say to others."""
    settings = tls_settings(tmp_path)
    (tmp_path / "ca.pem").write_text(CertificateAuthority("Another").pem)
    securities(**settings)
    with pytest.raises(InvalidSetting, match="listener SSL: A client SSLEngine created with the provided settings"):
        securities(**settings, inter__broker__listener__name="SSL")


def test_stores_that_are_read_again_are_those_of_new_connections_to_brokers(tmp_path: Path) -> None:
    settings = tls_settings(tmp_path) | {"inter__broker__listener__name": "SSL", "zookeeper__connect": "localhost"}
    listeners = securities(**settings)
    before = listeners.between_brokers["SSL"].tls
    write(tmp_path / "server.pem", authority().issue("localhost"), 5)
    listeners.read_again()
    assert listeners.between_brokers["SSL"].tls is not before
    another = CertificateAuthority("Another")
    write(tmp_path / "server.pem", another.issue("localhost"), 10)
    with pytest.raises(InvalidSetting, match="can't connect to a server SSLEngine"):
        listeners.read_again()

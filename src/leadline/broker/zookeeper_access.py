"""How this broker reaches ZooKeeper, by its settings and Java's options: TLS, a login, ACLs on nodes.

a connection that cannot be protected as set stops the start
zookeeper.set.acl needs a login or a certificate: an ACL names the creator of the node
"""

import ssl
from collections.abc import Callable, Mapping

from leadline.broker.jaas_file import jaas_sections
from leadline.config.broker import BrokerConfig
from leadline.config.java_options import LOGIN_CONFIG, SASL_CLIENT, SASL_SECTION
from leadline.config.values import InvalidSetting, Password
from leadline.coordination.zookeeper.access import ZooKeeperAccess
from leadline.coordination.zookeeper.digest_md5 import DigestLogin
from leadline.security.jaas import CLIENT_SECTION, InvalidJaas, zookeeper_login
from leadline.security.key_stores import (
    JKS,
    PEM,
    PKCS12,
    KeyStoreSettings,
    ReadFile,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings

_NETTY = "org.apache.zookeeper.ClientCnxnSocketNetty"
_TYPES = {".jks": JKS, ".p12": PKCS12, ".pem": PEM}
_KEY_STORE, _TRUST_STORE = "zookeeper.ssl.keystore", "zookeeper.ssl.truststore"


def zookeeper_access(
    config: BrokerConfig, properties: Mapping[str, str], read: ReadFile, random: Callable[[int], bytes]
) -> ZooKeeperAccess:
    """`properties`: Java's, from KAFKA_OPTS. Raises InvalidSetting."""
    _check_socket(config)
    tls = _tls(config, read) if config.zookeeper_ssl_client_enable else None
    login = _login(properties, read, random)
    has_certificate = tls is not None and config.zookeeper_ssl_keystore_location is not None
    if config.zookeeper_set_acl and login is None and not has_certificate:
        raise InvalidSetting(
            "zookeeper.set.acl=true: nodes need an owner: set zookeeper.ssl.client.enable, "
            "zookeeper.clientCnxnSocket and zookeeper.ssl.keystore.location, or log in by a JAAS file with the section "
            f"{CLIENT_SECTION} (KAFKA_OPTS=-D{LOGIN_CONFIG}=FILE)"
        )
    return ZooKeeperAccess(tls, login, config.zookeeper_set_acl)


def _check_socket(config: BrokerConfig) -> None:
    """With another class, or without one, Kafka connects without TLS. Here a connection never has less than was set."""
    if config.zookeeper_ssl_client_enable and config.zookeeper_clientCnxnSocket not in (_NETTY, _NETTY.split(".")[-1]):
        raise InvalidSetting(
            f"zookeeper.clientCnxnSocket={config.zookeeper_clientCnxnSocket or ''}: must be {_NETTY} with "
            "zookeeper.ssl.client.enable=true, as in Kafka"
        )


# TLS


def _tls(config: BrokerConfig, read: ReadFile) -> ssl.SSLContext:
    settings = TlsSettings(
        key_store=_key_store(config),
        trust_store=_trust_store(config),
        enabled_protocols=config.zookeeper_ssl_enabled_protocols or (config.zookeeper_ssl_protocol,),
        cipher_suites=config.zookeeper_ssl_cipher_suites or (),
        endpoint_identification_algorithm=(
            "https" if config.zookeeper_ssl_endpoint_identification_algorithm.upper() == "HTTPS" else ""
        ),
    )
    try:
        key_store, trust_store = load_key_store(settings.key_store, read), load_trust_store(settings.trust_store, read)
        return ListenerTls(settings, key_store, trust_store).client_context
    except InvalidSetting as error:
        raise InvalidSetting(f"TLS to ZooKeeper (zookeeper.ssl.*): {error}") from None


def _key_store(config: BrokerConfig) -> KeyStoreSettings:
    """The password of a file in PEM is that of its key."""
    location = config.zookeeper_ssl_keystore_location
    if location is None:
        return KeyStoreSettings()
    type_ = _type(_KEY_STORE, config.zookeeper_ssl_keystore_type, location)
    password = _secret(config.zookeeper_ssl_keystore_password)
    if type_ == PEM:
        return KeyStoreSettings(PEM, location, key_password=password)
    return KeyStoreSettings(type_, location, password or Secret(b""))


def _trust_store(config: BrokerConfig) -> TrustStoreSettings:
    location = config.zookeeper_ssl_truststore_location
    if location is None:
        return TrustStoreSettings()
    type_ = _type(_TRUST_STORE, config.zookeeper_ssl_truststore_type, location)
    password = None if type_ == PEM else _secret(config.zookeeper_ssl_truststore_password)
    return TrustStoreSettings(type_, location, password)


def _type(setting: str, type_: str | None, location: str) -> str:
    """The type, which ZooKeeper derives from the name of the file."""
    if type_ is not None:
        return type_.upper()
    for ending, of_ending in _TYPES.items():
        if location.endswith(ending):
            return of_ending
    raise InvalidSetting(
        f"{setting}.location={location}: set {setting}.type, as the name ends in none of {', '.join(_TYPES)}"
    )


def _secret(password: Password | None) -> Secret | None:
    return None if password is None else Secret.of(password.value)


# The login


def _login(properties: Mapping[str, str], read: ReadFile, random: Callable[[int], bytes]) -> DigestLogin | None:
    section = properties.get(SASL_SECTION, CLIENT_SECTION)
    try:
        module = zookeeper_login(section, jaas_sections(properties, read))
    except InvalidJaas as error:
        raise InvalidSetting(f"{LOGIN_CONFIG}={properties[LOGIN_CONFIG]}: {error}") from None
    if module is None:
        return None
    if properties.get(SASL_CLIENT, "true").lower() != "true":
        raise InvalidSetting(
            f"{LOGIN_CONFIG}={properties[LOGIN_CONFIG]}: it has the section {section}, but -D{SASL_CLIENT} forbids the "
            "login"
        )
    username, password = (module.options[name].reveal_text() for name in ("username", "password"))
    return DigestLogin(username, Password(password), random)

"""The settings of TLS and SASL, which this broker does not have. `unsupported` explains the two kinds.

    a setting that protects is refused: a certificate, a login
    a parameter of such a protection is accepted: it has no effect by itself, in Kafka too

Pure: a table.
"""

from collections.abc import Iterator

from leadline.config.checks import at_least, one_of
from leadline.config.settings import Importance, Mode, SettingRow, accepted, refused
from leadline.config.values import ConfigType

BOOLEAN, INT, LIST, LONG, PASSWORD, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.LONG,
    ConfigType.PASSWORD,
    ConfigType.STRING,
)
LOW, MEDIUM = Importance.LOW, Importance.MEDIUM
PER_BROKER = Mode.PER_BROKER


def rows() -> Iterator[SettingRow]:
    for group in (_tls, _tls_parameters, _sasl):
        yield from group()


def _tls() -> Iterator[SettingRow]:
    row = refused("this broker has no TLS, so nothing would be encrypted; leave it out and use PLAINTEXT listeners")
    client_auth = one_of("required", "requested", "none")
    yield row(
        "ssl.client.auth", STRING, "none", "whether clients must present a certificate", client_auth, mode=PER_BROKER
    )
    for name, kind, meaning in (
        ("keystore.location", STRING, "the file with key and certificate"),
        ("keystore.password", PASSWORD, "the password of that file"),
        ("key.password", PASSWORD, "the password of the key within it"),
        ("keystore.key", PASSWORD, "the key itself, in PEM"),
        ("keystore.certificate.chain", PASSWORD, "the certificates that belong to it, in PEM"),
        ("truststore.location", STRING, "the file of trusted certificates"),
        ("truststore.password", PASSWORD, "the password of that file"),
        ("truststore.certificates", PASSWORD, "the trusted certificates themselves, in PEM"),
    ):
        yield row(f"ssl.{name}", kind, None, meaning, mode=PER_BROKER)
    yield row(
        "ssl.principal.mapping.rules",
        STRING,
        "DEFAULT",
        "rules that turn the name in a certificate into a user's",
        importance=LOW,
    )


def _tls_parameters() -> Iterator[SettingRow]:
    row = accepted("this broker has no TLS")
    for name, kind, default, importance, meaning in (
        ("protocol", STRING, "TLSv1.3", MEDIUM, "the newest TLS to offer"),
        ("enabled.protocols", LIST, ("TLSv1.2", "TLSv1.3"), MEDIUM, "the versions of TLS in use"),
        ("cipher.suites", LIST, (), MEDIUM, "the cipher suites in use; none: all that are safe"),
        ("keystore.type", STRING, "JKS", MEDIUM, "the format of the key store"),
        ("truststore.type", STRING, "JKS", MEDIUM, "the format of the trust store"),
        (
            "endpoint.identification.algorithm",
            STRING,
            "https",
            LOW,
            "how a server's name is compared with its certificate; empty: not at all",
        ),
    ):
        yield row(f"ssl.{name}", kind, default, meaning, importance=importance, mode=PER_BROKER)
    for name, meaning in (
        ("dn", "whether a new certificate may have another name than the one it replaces"),
        ("san", "whether a new certificate may lack alternative names of the one it replaces"),
    ):
        yield row(f"ssl.allow.{name}.changes", BOOLEAN, False, meaning, importance=LOW)


def _sasl() -> Iterator[SettingRow]:
    row = refused(
        "this broker has no SASL, so clients would not have to log in; leave it out and use PLAINTEXT listeners"
    )
    mechanisms = "the mechanisms that clients may choose from"
    yield row("sasl.enabled.mechanisms", LIST, ("GSSAPI",), mechanisms, mode=PER_BROKER)
    between = "the mechanism between brokers"
    yield row("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", between, mode=PER_BROKER)
    login = "the login module of a listener with its options, users among them"
    yield row("sasl.jaas.config", PASSWORD, None, login, mode=PER_BROKER)
    yield row("connections.max.reauth.ms", LONG, 0, "how long a login lasts; 0: as long as its connection")
    row = accepted("this broker has no SASL")
    yield row("sasl.server.max.receive.size", INT, 524_288, "the largest message of a login")
    delay = "how long a connection that failed to authenticate waits before it is closed"
    yield row("connection.failed.authentication.delay.ms", INT, 100, delay, at_least(0), importance=LOW)

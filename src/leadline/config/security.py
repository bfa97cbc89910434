"""The settings of TLS, SASL and the authorizer, none of which this broker has. See `unobeyed` for what becomes of each.

    what protects is refused: a certificate, a login, a rule
    what only shapes such a protection is accepted: it does nothing by itself, in Kafka either

Pure: a table.
"""

from collections.abc import Iterator

from leadline.config.checks import anything, at_least, one_of
from leadline.config.settings import Importance, Mode, Row, accepted, refused
from leadline.config.values import Kind

BOOLEAN, INT, LIST, LONG, PASSWORD, STRING = Kind.BOOLEAN, Kind.INT, Kind.LIST, Kind.LONG, Kind.PASSWORD, Kind.STRING
LOW, MEDIUM = Importance.LOW, Importance.MEDIUM
PER_BROKER = Mode.PER_BROKER


def rows() -> Iterator[Row]:
    for group in (_tls, _tls_parameters, _sasl, _authorizer):
        yield from group()


def _tls() -> Iterator[Row]:
    row = refused("this broker has no TLS, so nothing would be encrypted; leave it out and use PLAINTEXT listeners")
    client_auth = one_of("required", "requested", "none")
    yield row("ssl.client.auth", STRING, "none", MEDIUM, "must clients show a certificate", client_auth, PER_BROKER)
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
        yield row(f"ssl.{name}", kind, None, MEDIUM, meaning, mode=PER_BROKER)
    yield row(
        "ssl.principal.mapping.rules", STRING, "DEFAULT", LOW, "rules that turn the name in a certificate into a user's"
    )


def _tls_parameters() -> Iterator[Row]:
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
        yield row(f"ssl.{name}", kind, default, importance, meaning, mode=PER_BROKER)
    for name, meaning in (
        ("dn", "may a new certificate carry another name than the one it replaces"),
        ("san", "may a new certificate lack alternative names of the one it replaces"),
    ):
        yield row(f"ssl.allow.{name}.changes", BOOLEAN, False, LOW, meaning)


def _sasl() -> Iterator[Row]:
    row = refused("this broker has no SASL, so nobody would have to log in; leave it out and use PLAINTEXT listeners")
    mechanisms = "the mechanisms that clients may choose from"
    yield row("sasl.enabled.mechanisms", LIST, ("GSSAPI",), MEDIUM, mechanisms, mode=PER_BROKER)
    between = "the mechanism between brokers"
    yield row("sasl.mechanism.inter.broker.protocol", STRING, "GSSAPI", MEDIUM, between, mode=PER_BROKER)
    login = "the login module of a listener with its options, users among them"
    yield row("sasl.jaas.config", PASSWORD, None, MEDIUM, login, mode=PER_BROKER)
    yield row("connections.max.reauth.ms", LONG, 0, MEDIUM, "how long a login lasts; 0: as long as its connection")
    row = accepted("this broker has no SASL")
    yield row("sasl.server.max.receive.size", INT, 524_288, MEDIUM, "the largest message of a login")
    delay = "how long a connection that failed to authenticate waits before it is closed"
    yield row("connection.failed.authentication.delay.ms", INT, 100, LOW, delay, at_least(0))


def _authorizer() -> Iterator[Row]:
    row = refused("this broker has no authorizer, so everybody may do everything; leave it out")
    decides = "what decides who may do what; empty: everybody may do everything"
    yield row("authorizer.class.name", STRING, "", LOW, decides, anything)
    row = accepted("this broker has no authorizer")
    yield row("super.users", STRING, "", MEDIUM, "users, cut at semicolons, who may do everything", beyond=True)
    everybody = "may everybody do what no rule speaks of"
    yield row("allow.everyone.if.no.acl.found", BOOLEAN, False, MEDIUM, everybody, beyond=True)

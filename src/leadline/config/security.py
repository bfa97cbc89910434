"""The settings of TLS, SASL and the authorizer. Those of TLS and SASL may differ from listener to listener.

Pure: a table.
"""
# ruff: noqa: RUF009 - setting() makes a field, and a Password is as immutable as a str

from dataclasses import dataclass

from leadline.config.checks import anything, one_of
from leadline.config.settings import Importance, Mode, Settings, setting
from leadline.config.values import Kind, Password

BOOLEAN, INT, LIST, LONG, PASSWORD, STRING = Kind.BOOLEAN, Kind.INT, Kind.LIST, Kind.LONG, Kind.PASSWORD, Kind.STRING
LOW = Importance.LOW
PER_BROKER = Mode.PER_BROKER
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
STORES = ("JKS", "PKCS12", "PEM")


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SecurityConfig(Settings):
    """Who may connect, who they are, and what they may do."""

    __slots__ = ()

    ssl_protocol: str = setting("TLSv1.3", STRING, "the newest TLS to offer", mode=PER_BROKER)
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"), LIST, "the versions of TLS in use", mode=PER_BROKER
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (), LIST, "the cipher suites in use; none: all that are safe", mode=PER_BROKER
    )
    ssl_client_auth: str = setting(
        "none", STRING, "must clients show a certificate", one_of("required", "requested", "none"), mode=PER_BROKER
    )
    ssl_keystore_type: str = setting(
        "JKS",
        STRING,
        "the format of the key store",
        only=STORES,
        why=f"use one of {', '.join(STORES)}",
        mode=PER_BROKER,
    )
    ssl_keystore_location: str | None = setting(None, STRING, "the file with key and certificate", mode=PER_BROKER)
    ssl_keystore_password: Password | None = setting(None, PASSWORD, "the password of that file", mode=PER_BROKER)
    ssl_key_password: Password | None = setting(None, PASSWORD, "the password of the key within it", mode=PER_BROKER)
    ssl_keystore_key: Password | None = setting(None, PASSWORD, "the key itself, in PEM", mode=PER_BROKER)
    ssl_keystore_certificate_chain: Password | None = setting(
        None, PASSWORD, "the certificates that belong to it, in PEM", mode=PER_BROKER
    )
    ssl_truststore_type: str = setting(
        "JKS",
        STRING,
        "the format of the trust store",
        only=STORES,
        why=f"use one of {', '.join(STORES)}",
        mode=PER_BROKER,
    )
    ssl_truststore_location: str | None = setting(None, STRING, "the file of trusted certificates", mode=PER_BROKER)
    ssl_truststore_password: Password | None = setting(None, PASSWORD, "the password of that file", mode=PER_BROKER)
    ssl_truststore_certificates: Password | None = setting(
        None, PASSWORD, "the trusted certificates themselves, in PEM", mode=PER_BROKER
    )
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        STRING,
        "how a server's name is held against its certificate; empty: not at all",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", STRING, "rules that turn the name in a certificate into a user's", importance=LOW
    )
    ssl_allow_dn_changes: bool = setting(
        False, BOOLEAN, "may a new certificate carry another name than the one it replaces", importance=LOW
    )
    ssl_allow_san_changes: bool = setting(
        False, BOOLEAN, "may a new certificate lack alternative names of the one it replaces", importance=LOW
    )

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("GSSAPI",),
        LIST,
        "the mechanisms that clients may choose from",
        only=("GSSAPI", *MECHANISMS),
        why=f"use some of {', '.join(MECHANISMS)}",
        mode=PER_BROKER,
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "GSSAPI",
        STRING,
        "the mechanism between brokers",
        only=MECHANISMS,
        why=f"use one of {', '.join(MECHANISMS)}",
        mode=PER_BROKER,
    )
    sasl_jaas_config: Password | None = setting(
        None, PASSWORD, "the login module of a listener with its options, users among them", mode=PER_BROKER
    )
    sasl_server_max_receive_size: int = setting(524_288, INT, "the largest message of a login")
    connections_max_reauth_ms: int = setting(0, LONG, "how long a login lasts; 0: as long as its connection")

    authorizer_class_name: str = setting(
        "",
        STRING,
        "what decides who may do what; empty: everybody may do everything",
        anything,
        importance=LOW,
        only=(ACL_AUTHORIZER,),
        why=f"use {ACL_AUTHORIZER}, whose rules lie in ZooKeeper",
    )
    super_users: str = setting("", STRING, "users, cut at semicolons, who may do everything", beyond=True)
    allow_everyone_if_no_acl_found: bool = setting(
        False, BOOLEAN, "may everybody do what no rule speaks of", beyond=True
    )

"""The settings of the connection to ZooKeeper, of the nodes' ACLs there, and of the passwords that are kept in it.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least, without_credentials
from leadline.config.settings import Importance, Settings, setting
from leadline.config.values import ConfigType, Password

BOOLEAN, INT, LIST, PASSWORD, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.PASSWORD,
    ConfigType.STRING,
)
HIGH, LOW = Importance.HIGH, Importance.LOW


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ZooKeeperConfig(Settings):
    """How a broker reaches ZooKeeper, and how it protects its nodes."""

    __slots__ = ()

    zookeeper_connect: str | None = setting(
        None,
        STRING,
        "hosts of ZooKeeper and the root path; not set: a single node without ZooKeeper",
        without_credentials,
        importance=HIGH,
    )
    zookeeper_session_timeout_ms: int = setting(
        18_000, INT, "how long ZooKeeper waits for a silent broker before it ends its session", importance=HIGH
    )
    zookeeper_connection_timeout_ms: int = setting(
        18_000,
        INT,
        "how long the first connection to ZooKeeper may take; unset: zookeeper.session.timeout.ms",
        importance=HIGH,
        declared=None,
    )
    zookeeper_max_in_flight_requests: int = setting(
        10, INT, "how many requests to ZooKeeper may be unanswered at a time", at_least(1), importance=HIGH
    )
    zookeeper_set_acl: bool = setting(
        False, BOOLEAN, "whether only brokers may change nodes in ZooKeeper", importance=HIGH
    )

    zookeeper_ssl_client_enable: bool = setting(False, BOOLEAN, "whether connections to ZooKeeper use TLS")
    zookeeper_clientCnxnSocket: str | None = setting(
        None, STRING, "the class that connects to ZooKeeper; with TLS it is Netty's"
    )
    zookeeper_ssl_keystore_location: str | None = setting(None, STRING, "the file with the key for ZooKeeper")
    zookeeper_ssl_keystore_password: Password | None = setting(None, PASSWORD, "the password of that file")
    zookeeper_ssl_keystore_type: str | None = setting(
        None, STRING, "the format of the file with the key; unset: derived from its name"
    )
    zookeeper_ssl_truststore_location: str | None = setting(None, STRING, "file of certificates trusted for ZooKeeper")
    zookeeper_ssl_truststore_password: Password | None = setting(None, PASSWORD, "the password of that file")
    zookeeper_ssl_truststore_type: str | None = setting(
        None, STRING, "the format of the file of trusted certificates; unset: derived from its name"
    )
    zookeeper_ssl_protocol: str = setting(
        "TLSv1.2", STRING, "the version of TLS, if zookeeper.ssl.enabled.protocols is not set", importance=LOW
    )
    zookeeper_ssl_enabled_protocols: tuple[str, ...] | None = setting(
        None, LIST, "the versions of TLS in use with ZooKeeper", importance=LOW
    )
    zookeeper_ssl_cipher_suites: tuple[str, ...] | None = setting(
        None, LIST, "the cipher suites in use with ZooKeeper", importance=LOW
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = setting(
        "HTTPS",
        STRING,
        "how ZooKeeper's name is compared with its certificate; empty: not at all",
        importance=LOW,
    )

    password_encoder_secret: Password | None = setting(
        None, PASSWORD, "the secret that encrypts passwords in ZooKeeper"
    )
    password_encoder_old_secret: Password | None = setting(None, PASSWORD, "the previous secret")
    password_encoder_keyfactory_algorithm: str | None = setting(
        None, STRING, "how the key is derived from the secret", importance=LOW
    )
    password_encoder_cipher_algorithm: str = setting("AES/CBC/PKCS5Padding", STRING, "the cipher", importance=LOW)
    password_encoder_key_length: int = setting(128, INT, "bits of its key", at_least(8), importance=LOW)
    password_encoder_iterations: int = setting(
        4096, INT, "iterations that derive the key", at_least(1024), importance=LOW
    )

"""The settings of the connection to ZooKeeper, and of the passwords that are kept in it.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least
from leadline.config.settings import Importance, Settings, setting
from leadline.config.values import ConfigType, Password

INT, PASSWORD, STRING = ConfigType.INT, ConfigType.PASSWORD, ConfigType.STRING
HIGH, LOW = Importance.HIGH, Importance.LOW


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ZooKeeperConfig(Settings):
    """How a broker reaches ZooKeeper, and what it protects there."""

    __slots__ = ()

    zookeeper_connect: str | None = setting(
        None,
        STRING,
        "hosts of ZooKeeper and the root path; not set: a single node without ZooKeeper",
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

"""The JAAS file that users of Kafka name in KAFKA_OPTS: logins to ZooKeeper, and the login modules of listeners.

A listener's own setting `sasl.jaas.config` takes precedence over the file, as in Kafka.
"""

from collections.abc import Mapping

from leadline.config.java_options import LOGIN_CONFIG
from leadline.config.values import InvalidSetting
from leadline.security.jaas import InvalidJaas, LoginModule, parse_jaas_file
from leadline.security.key_stores import ReadFile

JaasSections = Mapping[str, list[LoginModule]]


def jaas_sections(properties: Mapping[str, str], read: ReadFile) -> JaasSections:
    """The sections of the file that Java's properties name; none without a file. Raises InvalidSetting."""
    path = properties.get(LOGIN_CONFIG)
    if path is None:
        return {}
    try:
        return parse_jaas_file(read(path).decode())
    except (OSError, UnicodeDecodeError, InvalidJaas) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSetting(f"{LOGIN_CONFIG}={path}: {reason}") from None

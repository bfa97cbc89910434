"""Java's system properties, as users of Kafka pass them: in the environment, `KAFKA_OPTS=-Dname=value ...`.

Pure: text in, values out.

    java.security.auth.login.config      the JAAS file: Client logs in to ZooKeeper, KafkaServer serves listeners
    zookeeper.sasl.client                false: no login, and then no such section either
    zookeeper.sasl.clientconfig          the section, if it is not Client
    java.security.krb5.conf              the file krb5.conf, for logins by GSSAPI

Kafka reads further ones that protect the connection to ZooKeeper. They are refused: each has a name of its own in
server.properties, or asks for Kerberos. So are those that take the place of a krb5.conf. All others concern the JVM and
are ignored.
"""

from collections.abc import Mapping

from leadline.config.values import InvalidSetting

KAFKA_OPTS = "KAFKA_OPTS"
LOGIN_CONFIG = "java.security.auth.login.config"
SASL_CLIENT, SASL_SECTION = "zookeeper.sasl.client", "zookeeper.sasl.clientconfig"
KRB5_CONF = "java.security.krb5.conf"
_OBEYED = (LOGIN_CONFIG, SASL_CLIENT, SASL_SECTION, KRB5_CONF)
_INSTEAD_OF_KRB5_CONF = ("java.security.krb5.realm", "java.security.krb5.kdc")
_REFUSED = (
    "zookeeper.ssl.",
    "zookeeper.client.secure",
    "zookeeper.clientCnxnSocket",
    "zookeeper.sasl.",
    "zookeeper.server.principal",
    "zookeeper.server.realm",
)


def system_properties(environment: Mapping[str, str]) -> dict[str, str]:
    """The obeyed properties. The shell splits the text at blanks, and quotes nothing. Raises InvalidSetting."""
    properties = {}
    for word in environment.get(KAFKA_OPTS, "").split():
        name, _, value = word.removeprefix("-D").partition("=")
        if not word.startswith("-D"):
            continue
        if name in _OBEYED:
            properties[name] = value
        elif name in _INSTEAD_OF_KRB5_CONF:
            raise InvalidSetting(f"{KAFKA_OPTS}: -D{name} is not supported: use -D{KRB5_CONF}")
        elif name.startswith(_REFUSED):
            raise InvalidSetting(
                f"{KAFKA_OPTS}: -D{name} is not supported: use the settings zookeeper.* of server.properties, and "
                f"-D{LOGIN_CONFIG} for a login by DIGEST-MD5"
            )
    return properties

"""Client properties: Kafka's names for logins and certificates, translated to librdkafka's.

Kafka has the user in a JAAS line and certificates in stores. librdkafka has a property for each part. If both names are
set, Kafka's takes precedence. All clients read PEM files; librdkafka also reads PKCS12.

Pure: properties in, properties out.
"""

import re
from collections.abc import Mapping

from leadline.config.values import InvalidSetting

HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
_LOGIN = re.compile(r'(username|password)\s*=\s*"([^"]*)"')
_STORES: Mapping[str, Mapping[str, tuple[str, ...]]] = {  # the parts of each store: Kafka's name, librdkafka's names
    "truststore": {"location": ("ssl.ca.location",), "certificates": ("ssl.ca.pem",)},
    "keystore": {
        "location": ("ssl.certificate.location", "ssl.key.location"),
        "certificate.chain": ("ssl.certificate.pem",),
        "key": ("ssl.key.pem",),
    },
}


def librdkafka_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """All properties under librdkafka's names. InvalidSetting for a property that cannot be translated."""
    return translate_tls(translate_login(properties))


def translate_login(properties: Mapping[str, str]) -> dict[str, str]:
    """The user and the password of sasl.jaas.config as sasl.username and sasl.password."""
    translated = dict(properties)
    jaas = translated.pop("sasl.jaas.config", None)
    if jaas is None:
        return translated
    login = dict(_LOGIN.findall(jaas))
    if login.keys() != {"username", "password"}:
        raise InvalidSetting("sasl.jaas.config: it must have a username and a password (PLAIN, SCRAM)")
    return translated | {f"sasl.{name}": value for name, value in login.items()}


def translate_tls(properties: Mapping[str, str]) -> dict[str, str]:
    """The parts of ssl.truststore and ssl.keystore under librdkafka's names."""
    translated = dict(properties)
    if translated.get(HOSTNAME_CHECK) == "":
        translated[HOSTNAME_CHECK] = "none"
    for store in _STORES:
        _translate_store(translated, store)
    return translated


def _translate_store(translated: dict[str, str], store: str) -> None:
    default = "JKS" if f"ssl.{store}.location" in translated else "PEM"
    kind = translated.pop(f"ssl.{store}.type", default).upper()
    if kind == "PKCS12" and store == "keystore":
        return  # librdkafka has the same names
    for part, names in _STORES[store].items():
        value = translated.pop(f"ssl.{store}.{part}", None)
        if value is None:
            continue
        if kind != "PEM":
            raise InvalidSetting(
                f"ssl.{store}.location: {value} is a {kind} store; this client reads PEM: ssl.{store}.type=PEM"
            )
        translated |= dict.fromkeys(names, value)
    translated.pop(f"ssl.{store}.password", None)

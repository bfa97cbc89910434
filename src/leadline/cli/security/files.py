"""The files that `leadline security init` writes: settings of the broker, and properties of clients.

Pure: names and passwords in, texts out.

    SSL         clients show a certificate; the name in it is the user: CN=admin is User:admin
    SASL_SSL    clients log in by SCRAM-SHA-512
"""

import json
from collections.abc import Mapping
from typing import NamedTuple

from leadline.admin.json_values import Json
from leadline.config.authorizer import ACL_AUTHORIZER
from leadline.config.properties import property_text
from leadline.security.jaas import SCRAM_LOGIN_MODULE
from leadline.security.secret import Secret

ADMIN, BROKER = "admin", "broker"
MECHANISM = "SCRAM-SHA-512"
AUTHORITY_FILE, AUTHORITY_KEY_FILE, TRUST_STORE_FILE = "ca.pem", "ca.key", "trust.p12"
SETTINGS_FILE, DATA_FOLDER = "server.properties", "data"
MAPPING_RULE = "RULE:^CN=([^,]+).*$/$1/, DEFAULT"


class SecureListeners(NamedTuple):
    host: str
    tls_port: int
    login_port: int

    @property
    def tls(self) -> str:
        return f"{self.host}:{self.tls_port}"

    @property
    def login(self) -> str:
        return f"{self.host}:{self.login_port}"


def pem_file(name: str) -> str:
    return f"{name}.pem"


def key_store_file(name: str) -> str:
    return f"{name}.p12"


def server_settings(folder: str, listeners: SecureListeners, token_key: Secret) -> str:
    settings = {
        "listeners": f"SSL://{listeners.tls},SASL_SSL://{listeners.login}",
        "security.inter.broker.protocol": "SSL",
        "log.dirs": f"{folder}/{DATA_FOLDER}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/{pem_file(BROKER)}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/{AUTHORITY_FILE}",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": MAPPING_RULE,
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_LOGIN_MODULE} required;",
        "authorizer.class.name": ACL_AUTHORIZER,
        "super.users": f"User:{ADMIN};User:{BROKER}",
        "delegation.token.secret.key": token_key.reveal_text(),
    }
    return _properties("a development broker: mTLS on SSL, SCRAM on SASL_SSL, ACLs for all but super users", settings)


def client_files(
    folder: str, listeners: SecureListeners, user: str, password: Secret, store_password: Secret
) -> dict[str, str]:
    """Properties of the administrator, who shows a certificate, and of the user, who logs in: for three clients."""
    admin_pem, authority = f"{folder}/{pem_file(ADMIN)}", f"{folder}/{AUTHORITY_FILE}"
    trust = {
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": f"{folder}/{TRUST_STORE_FILE}",
        "ssl.truststore.password": store_password.reveal_text(),
    }
    certificate = {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": f"{folder}/{key_store_file(ADMIN)}",
        "ssl.keystore.password": store_password.reveal_text(),
    }
    jaas = f'{SCRAM_LOGIN_MODULE} required username="{user}" password="{password.reveal_text()}";'
    tls = {"bootstrap.servers": listeners.tls, "security.protocol": "SSL"}
    login = {"bootstrap.servers": listeners.login, "security.protocol": "SASL_SSL"}
    scram = {"sasl.username": user, "sasl.password": password.reveal_text()}
    pem = {"ssl.certificate.location": admin_pem, "ssl.key.location": admin_pem}
    librdkafka, java = "librdkafka, kcat -F", "Kafka's Java clients, and --command-config"
    return {
        f"{ADMIN}.properties": _properties(f"{java}: User:{ADMIN}", tls | trust | certificate),
        f"{ADMIN}.librdkafka.properties": _properties(
            f"{librdkafka}: User:{ADMIN}", tls | {"ssl.ca.location": authority} | pem
        ),
        f"{ADMIN}.kafka-python.json": _json(
            {
                "bootstrap_servers": listeners.tls,
                "security_protocol": "SSL",
                "ssl_cafile": authority,
                "ssl_certfile": admin_pem,
                "ssl_keyfile": admin_pem,
            }
        ),
        f"{user}.properties": _properties(
            f"{java}: User:{user}", login | {"sasl.mechanism": MECHANISM, "sasl.jaas.config": jaas} | trust
        ),
        f"{user}.librdkafka.properties": _properties(
            f"{librdkafka}: User:{user}", login | {"sasl.mechanism": MECHANISM} | scram | {"ssl.ca.location": authority}
        ),
        f"{user}.kafka-python.json": _json(
            {
                "bootstrap_servers": listeners.login,
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": MECHANISM,
                "sasl_plain_username": user,
                "sasl_plain_password": password.reveal_text(),
                "ssl_cafile": authority,
            }
        ),
    }


def _properties(title: str, values: Mapping[str, str]) -> str:
    return f"# {title}\n" + "".join(f"{name}={property_text(value)}\n" for name, value in values.items())


def _json(values: Mapping[str, Json]) -> str:
    return json.dumps(values, indent=2) + "\n"

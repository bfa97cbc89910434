"""The properties of a cluster, for the client that asks what librdkafka cannot."""

import ssl

import pytest

from leadline.admin.kafka_python.admin import admin_properties
from leadline.config.values import InvalidSetting
from leadline.security.client_properties import SecurityProperties
from tests.support.certificates import new_authority
from tests.support.java_stores import jks

LOGIN = {
    "security.protocol": "sasl_ssl",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "me",
    "sasl.password": "secret",
}


def translated(properties: dict[str, str]) -> dict[str, object]:
    store = jks("store-secret", {}, {"ca": new_authority()})
    return admin_properties(SecurityProperties.of(properties), "me", lambda path: store)


def test_what_reaches_a_secure_cluster_is_translated_and_what_tunes_librdkafka_is_not() -> None:
    names = {
        "bootstrap.servers": "a:1",
        "socket.timeout.ms": "9",
        "ssl.truststore.location": "ca.jks",
        "ssl.endpoint.identification.algorithm": "none",
    }
    properties = translated({**LOGIN, **names})
    context = properties.pop("ssl_context")
    assert isinstance(context, ssl.SSLContext)
    assert not context.check_hostname
    assert len(context.get_ca_certs()) == 1
    assert properties == {
        "client_id": "me",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize("name", ["ssl.engine.id", "sasl.oauthbearer.config", "ssl.providers"])
def test_security_that_it_cannot_do_is_refused_by_name(name: str) -> None:
    with pytest.raises(InvalidSetting, match=f"{name}: this command cannot use it"):
        translated({**LOGIN, name: "x"})

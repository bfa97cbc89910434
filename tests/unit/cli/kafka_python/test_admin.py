"""The properties of a cluster, for the client that asks what librdkafka cannot."""

import pytest

from leadline.cli.errors import Failure
from leadline.cli.kafka_python.admin import admin_properties


def test_what_reaches_a_secure_cluster_is_translated_and_what_tunes_librdkafka_is_not() -> None:
    properties = {
        "bootstrap.servers": "a:1",
        "client.id": "me",
        "log_level": "0",
        "socket.timeout.ms": "9",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "secret",
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert admin_properties(properties) == {
        "client_id": "me",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": "secret",
        "ssl_cafile": "ca.pem",
        "ssl_check_hostname": False,
    }


@pytest.mark.parametrize("name", ["ssl.ca.pem", "sasl.oauthbearer.config", "enable.ssl.certificate.verification"])
def test_security_that_it_cannot_do_is_refused_by_name(name: str) -> None:
    with pytest.raises(Failure, match=f"{name}: this command cannot use it"):
        admin_properties({name: "x"})

"""Kafka's own client properties, under librdkafka's names."""

import pytest

from leadline.config.client_properties import librdkafka_properties
from leadline.config.values import InvalidSetting


@pytest.mark.parametrize(
    ("kafka", "librdkafka"),
    [
        (
            {"sasl.jaas.config": 'x.PlainLoginModule required username="me" password="a=b";'},
            {"sasl.username": "me", "sasl.password": "a=b"},
        ),
        ({"ssl.endpoint.identification.algorithm": ""}, {"ssl.endpoint.identification.algorithm": "none"}),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.pem", "ssl.truststore.password": "x"},
            {"ssl.ca.location": "ca.pem"},
        ),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.location": "me.pem"},
            {"ssl.certificate.location": "me.pem", "ssl.key.location": "me.pem"},
        ),
        (
            {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"},
            {"ssl.keystore.location": "me.p12", "ssl.keystore.password": "x"},
        ),
        ({"security.protocol": "SASL_SSL", "retries": "3"}, {"security.protocol": "SASL_SSL", "retries": "3"}),
    ],
)
def test_kafkas_own_client_properties_are_understood(kafka: dict[str, str], librdkafka: dict[str, str]) -> None:
    assert librdkafka_properties(kafka) == librdkafka


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ({"ssl.truststore.location": "trust.jks"}, "trust.jks is a JKS store"),
        ({"sasl.jaas.config": "x.Krb5LoginModule required useKeyTab=true;"}, "it must have a username and a password"),
    ],
)
def test_what_the_client_cannot_use_is_refused_by_name(kafka: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidSetting, match=said):
        librdkafka_properties(kafka)


def test_a_translation_can_be_translated_again() -> None:
    kafka = {
        "sasl.jaas.config": 'x.PlainLoginModule required username="me" password="a=b";',
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "me.pem",
    }
    once = librdkafka_properties(kafka)
    assert librdkafka_properties(once) == once


def test_kafkas_name_counts_where_both_are_set() -> None:
    kafka = {"sasl.jaas.config": 'x username="me" password="a";', "sasl.username": "other"}
    assert librdkafka_properties(kafka)["sasl.username"] == "me"

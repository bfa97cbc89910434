"""Passwords among dynamic settings: which they are, when they are refused, and what a change of the secret does."""

import os

import pytest

from leadline.config.alter import NotApplicable
from leadline.config.broker import broker_settings
from leadline.config.values import InvalidSetting
from leadline.security.dynamic_passwords import DynamicPasswords, is_password

LISTENER = "listener.name.ssl."
CONFIG = {
    f"{LISTENER}ssl.keystore.location": "/etc/server.jks",
    f"{LISTENER}ssl.keystore.password": "keystore-pass",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": 'x.PlainLoginModule required user_a="b,c:d";',
}


def passwords(**settings: str) -> DynamicPasswords:
    properties = {f"password.encoder.{name.replace('_', '.')}": text for name, text in settings.items()}
    return DynamicPasswords.of(broker_settings(properties).broker, os.urandom)


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"{LISTENER}ssl.{name}"
            for name in ("keystore.password", "key.password", "truststore.password", "keystore.key")
        ),
        *(f"{LISTENER}ssl.{name}" for name in ("keystore.certificate.chain", "truststore.certificates")),
        "listener.name.x.scram-sha-256.sasl.jaas.config",
        "sasl.jaas.config",
        "plugins.own.ssl.key.password",
    ],
)
def test_names_that_end_like_a_dynamic_password_are_passwords(name: str) -> None:
    assert is_password(name)


@pytest.mark.parametrize("name", [f"{LISTENER}ssl.keystore.location", "password.encoder.secret", "log.retention.ms"])
def test_other_names_are_not(name: str) -> None:
    assert not is_password(name)


@pytest.mark.parametrize("cipher", ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"])
def test_a_password_is_encoded_in_the_tree_and_plain_again_after(cipher: str) -> None:
    both = passwords(secret="s", cipher_algorithm=cipher, key_length="256", iterations="1024")
    encoded = both.encoded(CONFIG, of_all=False)
    assert encoded[f"{LISTENER}ssl.keystore.location"] == "/etc/server.jks"
    assert f"cipherAlgorithm:{cipher}" in encoded[f"{LISTENER}ssl.keystore.password"]
    assert not any(secret in str(encoded) for secret in ("keystore-pass", "b,c:d"))
    assert both.decoded(encoded) == (CONFIG, ())


def test_a_password_needs_a_secret_and_is_of_one_broker() -> None:
    with pytest.raises(NotApplicable, match="Password encoder secret not configured"):
        passwords().encoded(CONFIG, of_all=False)
    with pytest.raises(NotApplicable, match="Password config can be defined only at broker level"):
        passwords(secret="s").encoded(CONFIG, of_all=True)
    assert passwords().encoded({"log.retention.ms": "5"}, of_all=True) == {"log.retention.ms": "5"}


@pytest.mark.parametrize("settings", [{}, {"secret": "another"}])
def test_a_password_that_cannot_be_decoded_is_left_out_and_named(settings: dict[str, str]) -> None:
    encoded = passwords(secret="s", iterations="1024").encoded(CONFIG, of_all=False)
    config, unreadable = passwords(**settings).decoded(encoded)
    assert config == {f"{LISTENER}ssl.keystore.location": "/etc/server.jks"}
    assert set(unreadable) == CONFIG.keys() - config.keys()


def test_passwords_of_the_old_secret_are_encoded_with_the_new_one() -> None:
    old, new = passwords(secret="old", iterations="1024"), passwords(secret="new", old_secret="old", iterations="1024")
    before = old.encoded(CONFIG, of_all=False) | {"listener.name.y.ssl.key.password": "garbage"}
    after = new.reencoded(before)
    assert after is not None
    assert after["listener.name.y.ssl.key.password"] == "garbage"
    assert new.decoded(after) == (CONFIG, ("listener.name.y.ssl.key.password",))
    assert new.reencoded(after) is None
    assert old.reencoded(before) is None


def test_an_old_secret_without_a_new_one_stops_the_start() -> None:
    before = passwords(secret="old", iterations="1024").encoded(CONFIG, of_all=False)
    with pytest.raises(InvalidSetting, match="Password encoder secret not configured"):
        passwords(old_secret="old").reencoded(before)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"keyfactory_algorithm": "PBKDF2WithMD5"}, r"password\.encoder\.keyfactory\.algorithm=PBKDF2WithMD5"),
        ({"cipher_algorithm": "DES"}, r"password\.encoder\.cipher\.algorithm=DES"),
        ({"key_length": "100"}, r"password\.encoder\.key\.length=100: must be 128, 192 or 256"),
    ],
)
def test_an_unknown_encoding_is_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        passwords(secret="s", **settings)

"""Encoded passwords: there and back, and nothing of them in an error. Kafka's own are in tests/conformance."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.config.values import InvalidSetting
from leadline.security.password_encoder import PasswordEncoder, PasswordNotDecoded, decode_password
from leadline.security.secret import Secret

SECRET = Secret.of("secret")
CIPHERS = ["AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"]
ORDER = [
    *("initializationVector", "keyLength", "salt", "keyFactoryAlgorithm"),
    *("cipherAlgorithm", "iterations", "passwordLength", "encryptedPassword"),
]


def encoder(cipher: str = CIPHERS[0], iterations: int = 10) -> PasswordEncoder:
    return PasswordEncoder(SECRET, os.urandom, cipher_algorithm=cipher, iterations=iterations)


@given(st.text(), st.sampled_from(CIPHERS))
def test_a_password_comes_back(password: str, cipher: str) -> None:
    encoded = encoder(cipher).encode(Secret.of(password))
    assert decode_password(SECRET, encoded) == Secret.of(password)
    assert decode_password(SECRET, ",".join(reversed(encoded.split(",")))) == Secret.of(password)


def test_pairs_have_kafkas_order_and_defaults() -> None:
    encoded = PasswordEncoder(SECRET, os.urandom).encode(Secret.of("seven77"))
    pairs = dict(pair.split(":") for pair in encoded.split(","))
    assert list(pairs) == ORDER
    assert (pairs["keyLength"], pairs["iterations"], pairs["passwordLength"]) == ("128", "4096", "7")
    assert (pairs["keyFactoryAlgorithm"], pairs["cipherAlgorithm"]) == ("PBKDF2WithHmacSHA512", CIPHERS[0])


def test_the_same_password_is_never_encoded_alike() -> None:
    assert encoder().encode(Secret.of("x")) != encoder().encode(Secret.of("x"))


@pytest.mark.parametrize("cipher", CIPHERS)
def test_another_secret_does_not_decode(cipher: str) -> None:
    encoded = encoder(cipher).encode(Secret.of("hunter2"))
    for other in ("Secret", "", "secret2"):
        with pytest.raises(PasswordNotDecoded, match="Password could not be decoded"):
            decode_password(Secret.of(other), encoded)


GOOD = encoder().encode(Secret.of("hunter2"))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "hunter2",
        GOOD.replace("iterations:10", "iterations:0"),
        GOOD.replace("iterations:10", "iterations:2000000000"),
        GOOD.replace("keyLength:128", "keyLength:7"),
        GOOD.replace("passwordLength:7", "passwordLength:8"),
        GOOD.replace("SHA512", "MD5"),
        GOOD.replace("AES/CBC/PKCS5Padding", "DES/CBC/PKCS5Padding"),
        GOOD.replace("AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"),
        GOOD.replace("salt:", "salt:!"),
        GOOD.replace("initializationVector:", "initializationVector:AAAA"),
        GOOD.replace("encryptedPassword:", "encryptedPassword:AAAA"),
    ],
)
def test_a_value_that_is_damaged_is_refused_without_being_repeated(encoded: str) -> None:
    with pytest.raises(PasswordNotDecoded) as refused:
        decode_password(SECRET, encoded)
    assert str(refused.value) in (
        "Password could not be decoded",
        "Password could not be decoded, sanity check of length failed",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"key_factory_algorithm": "MD5"}, "password.encoder.keyfactory.algorithm=MD5"),
        ({"cipher_algorithm": "AES"}, "password.encoder.cipher.algorithm=AES"),
        ({"key_length": 64}, "password.encoder.key.length=64"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        PasswordEncoder(SECRET, os.urandom, **settings)  # type: ignore[arg-type]


def test_no_repr_shows_the_secret() -> None:
    assert "Secret.of" not in repr(encoder())
    assert "[hidden]" in repr(encoder())

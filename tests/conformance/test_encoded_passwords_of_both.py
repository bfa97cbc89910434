"""Passwords among the dynamic settings: what Kafka encodes we decode, and the other way round."""

import os
import re
import subprocess

import pytest

from leadline.security.password_encoder import PasswordEncoder, decode_password
from leadline.security.secret import Secret
from tests.conformance.kafka import jars

pytestmark = pytest.mark.conformance

SECRET = Secret.of("encoder-secret é")
PASSWORDS = ["x", "pässwörd", "exactly sixteen!", "\U0001f600 and more", 'org.x required user_a="b,c:d";', "p" * 300]
FORMS = [
    ("PBKDF2WithHmacSHA512", 128, 4096, "AES/CBC/PKCS5Padding"),
    ("PBKDF2WithHmacSHA1", 256, 1024, "AES/CBC/PKCS5Padding"),
    ("PBKDF2WithHmacSHA256", 192, 1000, "AES/GCM/NoPadding"),
]


def kafka(lines: list[str]) -> list[str]:
    classes = jars.compiled(jars.HERE / "java" / "Passwords.java")
    command = jars.command("Passwords", SECRET.reveal_text(), classes=classes)
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def names(encoded: str) -> list[str]:
    return re.findall(r"(?:^|,)([a-zA-Z]+):", encoded)


def test_what_kafka_encodes_is_decoded() -> None:
    cases = [(form, password) for form in FORMS for password in PASSWORDS]
    lines = [f"encode {' '.join(map(str, form))} {password.encode().hex()}" for form, password in cases]
    for encoded, (_, password) in zip(kafka(lines), cases, strict=True):
        assert decode_password(SECRET, encoded) == Secret.of(password)


def test_kafka_decodes_what_is_encoded_here_and_writes_it_in_the_same_order() -> None:
    cases = [(form, password) for form in FORMS for password in PASSWORDS]
    encoded = [
        PasswordEncoder(SECRET, os.urandom, algorithm, cipher, length, iterations).encode(Secret.of(password))
        for (algorithm, length, iterations, cipher), password in cases
    ]
    lines = [f"decode {form[3]} {text}" for (form, _), text in zip(cases, encoded, strict=True)]
    assert kafka(lines) == [password.encode().hex() for _, password in cases]
    theirs = kafka([f"encode {' '.join(map(str, form))} 78" for form in FORMS])
    assert [names(text) for text in theirs] == [names(text) for text in encoded[:: len(PASSWORDS)]]

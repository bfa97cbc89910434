"""SCRAM credentials: Kafka's own values, there and back."""

import base64

import pytest

from leadline.security.scram_credentials import (
    SCRAM_MECHANISMS,
    InvalidCredential,
    ScramMechanism,
    credential_of,
    credential_of_password,
    credential_text,
    parse_credential,
    random_text,
    salted_password,
)
from leadline.security.secret import Secret

# What Kafka 3.8 wrote into /config/users for the password alice-secret and this salt.
KAFKAS = (
    "salt=MDEyMzQ1Njc4OWFiY2RlZg==,stored_key=m8lGoSUhzwi9YHfc8DS3Ek3NZenZ+UGZOFtUTYgeVr4=,"
    "server_key=v+oJ1PNoIs9QFCpX/eZFaqojJhVr8JWoRFaLmDK/bvk=,iterations=4096"
)
SHA_256, SHA_512 = ScramMechanism


def test_what_kafka_wrote_is_read_and_written_back() -> None:
    credential = parse_credential(KAFKAS)
    assert credential.salt == b"0123456789abcdef"
    assert credential.iterations == 4096
    assert credential_text(credential) == KAFKAS
    assert credential_of_password(SHA_256, Secret.of("alice-secret"), credential.salt) == credential


def test_the_keys_of_rfc_7677() -> None:
    """Its example: the password pencil."""
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of_password(SHA_256, Secret.of("pencil"), salt)
    assert credential_text(credential) == (
        "salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=,"
        "server_key=wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=,iterations=4096"
    )


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_a_salted_password_is_enough(mechanism: ScramMechanism) -> None:
    password = Secret.of("p")
    salted = salted_password(mechanism, password, b"salt", 5000)
    assert credential_of(mechanism, salted, b"salt", 5000) == credential_of_password(mechanism, password, b"salt", 5000)


def test_keys_may_come_in_any_order() -> None:
    assert parse_credential(",".join(reversed(KAFKAS.split(",")))) == parse_credential(KAFKAS)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "=x",
        KAFKAS + ",more=1",
        KAFKAS.replace("salt=", "salz="),
        KAFKAS.replace(",iterations=4096", ""),
        KAFKAS.replace("4096", "many"),
        KAFKAS.replace("4096", ""),
        KAFKAS.replace("m8lG", "m8l"),
        KAFKAS.replace("m8lG", "m8l!"),
    ],
)
def test_another_text_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(InvalidCredential) as refused:
        parse_credential(text)
    assert "v+oJ1PNo" not in str(refused.value)


def test_mechanisms_have_kafkas_names_and_types() -> None:
    assert {name: mechanism.value for name, mechanism in SCRAM_MECHANISMS.items()} == {
        "SCRAM-SHA-256": 1,
        "SCRAM-SHA-512": 2,
    }


@pytest.mark.parametrize(
    ("random", "text"),
    [(bytes(17), "0"), (b"\xff" * 17, "1omfro7zwmumr3umxudzyj6scf"), (b"\0" * 16 + b"\x40", "1")],
)
def test_a_random_text_is_130_bits_in_base_36(random: bytes, text: str) -> None:
    number = int.from_bytes(random, "big") >> 6
    assert int(random_text(random), 36) == number
    assert random_text(random) == text


def test_no_repr_shows_a_key() -> None:
    assert "m8lG" not in repr(parse_credential(KAFKAS))
    assert repr(parse_credential(KAFKAS)).count("[hidden]") == 2

"""SCRAM credentials: what a broker keeps of a password, and its text in the node of a user.

Pure: bytes and texts in and out.

    salt=<base64>,stored_key=<base64>,server_key=<base64>,iterations=<number>        in any order when read

    salted password = PBKDF2-HMAC-H(password as UTF-8, salt, iterations)
    client key      = HMAC(salted password, "Client Key")       stored key = H(client key)
    server key      = HMAC(salted password, "Server Key")

    the password cannot be computed from a credential, but its keys are enough to pose as the broker
    a login is refused below 4096 iterations; a request may ask for at most 16384
    passwords are taken as they are: no SASLprep, as in Kafka
"""

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from leadline.security.secret import Secret

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384  # on request: the rounds that a login costs the client
MOST_CLIENT_ITERATIONS = 1_000_000  # that we do ourselves, whatever another broker asks for (CVE-2026-10143)
RANDOM_BYTES = 17  # what a random text is made from
_RANDOM_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_KEYS = {"salt", "stored_key", "server_key", "iterations"}
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)
_KAFKAS_SALT = re.compile(rb"[0-9a-z]{20,26}")


class ScramMechanism(Enum):
    """The number is the mechanism's type in requests."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism_name(self) -> str:
        return self.name.replace("_", "-")

    @property
    def hash(self) -> str:
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"


SCRAM_MECHANISMS = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}


class InvalidCredential(ValueError):
    """A text in a user's node that is no credential. The message does not repeat it."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: Secret
    server_key: Secret
    iterations: int


class CredentialForm(NamedTuple):
    """What a login shows of a credential to a client that has proven nothing yet."""

    iterations: int
    salt_bytes: int | None  # None: a text, as Kafka makes them

    @classmethod
    def of(cls, credential: ScramCredential) -> "CredentialForm":
        is_kafkas = _KAFKAS_SALT.fullmatch(credential.salt) is not None
        return cls(credential.iterations, None if is_kafkas else len(credential.salt))


KAFKAS_FORM = CredentialForm(MIN_ITERATIONS, None)  # Kafka's default, also for delegation tokens


def salted_password(mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int) -> Secret:
    """A thousandth of a second and more: for a thread, unless it is rare."""
    return Secret(hashlib.pbkdf2_hmac(mechanism.hash, password.reveal(), salt, iterations))


def credential_of(mechanism: ScramMechanism, salted: Secret, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password, which is what AlterUserScramCredentials carries."""
    stored_key = Secret(hashlib.new(mechanism.hash, client_key(mechanism, salted).reveal()).digest())
    return ScramCredential(salt, stored_key, server_key(mechanism, salted), iterations)


def credential_of_password(
    mechanism: ScramMechanism, password: Secret, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def client_key(mechanism: ScramMechanism, salted: Secret) -> Secret:
    return Secret(hmac.digest(salted.reveal(), b"Client Key", mechanism.hash))


def server_key(mechanism: ScramMechanism, salted: Secret) -> Secret:
    return Secret(hmac.digest(salted.reveal(), b"Server Key", mechanism.hash))


def credential_text(credential: ScramCredential) -> str:
    salt, stored, server = (
        base64.b64encode(data).decode()
        for data in (credential.salt, credential.stored_key.reveal(), credential.server_key.reveal())
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={credential.iterations}"


def parse_credential(text: str) -> ScramCredential:
    """Raises InvalidCredential."""
    pairs = [part.partition("=") for part in text.rstrip(",").split(",")]
    values = {name: value for name, _, value in pairs}
    if not all(name and equals for name, equals, _ in pairs) or values.keys() != _KEYS:
        raise InvalidCredential(f"a SCRAM credential has the keys {', '.join(sorted(_KEYS))} and no others")
    if not _INTEGER.fullmatch(values["iterations"]):
        raise InvalidCredential("the iterations of a SCRAM credential are not a number")
    try:
        salt, stored, server = (
            base64.b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
    except (binascii.Error, ValueError):
        raise InvalidCredential("a key of a SCRAM credential is not base64") from None
    return ScramCredential(salt, Secret(stored), Secret(server), int(values["iterations"]))


def random_text(random: bytes) -> str:
    """130 bits in base 36, as Kafka makes its nonces and salts, out of RANDOM_BYTES random bytes or more."""
    assert len(random) >= RANDOM_BYTES
    number, text = int.from_bytes(random[:RANDOM_BYTES], "big") >> (8 * RANDOM_BYTES - _RANDOM_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        text = _DIGITS[digit] + text
    return text or "0"

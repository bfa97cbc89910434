"""Passwords among the dynamic settings, as Kafka keeps them in ZooKeeper: encrypted with password.encoder.secret.

Pure: text in, text out. Random bytes are passed in.

    keyFactoryAlgorithm, keyLength, salt, iterations      key = PBKDF2(secret, salt, iterations, keyLength bits)
    cipherAlgorithm, initializationVector                 AES/CBC/PKCS5Padding, or AES/GCM/NoPadding with
    authenticationTagLength                               the length of its tag in bits
    passwordLength                                        of the password in UTF-16 units, to check the result
    encryptedPassword

Pairs of `key:value` joined by `,`, in the order of a Java HashMap when written, in any order when read.
    what decodes a value is in the value itself; the settings count only for what is encoded from now on
    an error about a value that cannot be decoded repeats neither the value nor its parts
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.config.values import InvalidSetting
from leadline.hash_order import java_map, string_hash
from leadline.security.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM

_SALT_BYTES, _BLOCK_BYTES, _GCM_IV_BYTES, _TAG_BITS = 256, 16, 12, 128
_KEY_FACTORY = re.compile(r"PBKDF2WithHmac(SHA(?:1|224|256|384|512))")
_CBC, _GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
_KEY_BITS = (128, 192, 256)
_MOST_ITERATIONS = 10_000_000  # a value in ZooKeeper must not keep the broker busy for hours

KEY_FACTORY_ALGORITHM, CIPHER_ALGORITHM, KEY_LENGTH, ITERATIONS = "PBKDF2WithHmacSHA512", _CBC, 128, 4096


class PasswordNotDecoded(Exception):
    """A value that is not an encoded password, or one of another secret."""


@dataclass(frozen=True, slots=True)
class PasswordEncoder:
    """password.encoder.*: how passwords are encoded from now on."""

    secret: Secret
    random: Callable[[int], bytes]
    key_factory_algorithm: str = KEY_FACTORY_ALGORITHM
    cipher_algorithm: str = CIPHER_ALGORITHM
    key_length: int = KEY_LENGTH
    iterations: int = ITERATIONS

    def __post_init__(self) -> None:
        if not _KEY_FACTORY.fullmatch(self.key_factory_algorithm):
            raise InvalidSetting(
                f"password.encoder.keyfactory.algorithm={self.key_factory_algorithm}: must be PBKDF2WithHmac and a SHA"
            )
        if self.cipher_algorithm not in (_CBC, _GCM):
            raise InvalidSetting(f"password.encoder.cipher.algorithm={self.cipher_algorithm}: must be {_CBC} or {_GCM}")
        if self.key_length not in _KEY_BITS:
            raise InvalidSetting(f"password.encoder.key.length={self.key_length}: must be 128, 192 or 256")

    def encode(self, password: Secret) -> str:
        is_gcm = self.cipher_algorithm == _GCM
        salt, vector = self.random(_SALT_BYTES), self.random(_GCM_IV_BYTES if is_gcm else _BLOCK_BYTES)
        key = _key(self.secret, self.key_factory_algorithm, salt, self.iterations, self.key_length)
        encryptor = _cipher(key, self.cipher_algorithm, vector, None).encryptor()
        plain = password.reveal()
        encrypted = encryptor.update(plain if is_gcm else _padded(plain)) + encryptor.finalize()
        values = {
            "keyFactoryAlgorithm": self.key_factory_algorithm,
            "cipherAlgorithm": self.cipher_algorithm,
            "keyLength": str(self.key_length),
            "salt": _base64(salt),
            "iterations": str(self.iterations),
            "encryptedPassword": _base64(encrypted + (encryptor.tag if is_gcm else b"")),  # type: ignore[attr-defined]
            "passwordLength": str(_utf16_units(password)),
            "initializationVector": _base64(vector),
        }
        if is_gcm:
            values["authenticationTagLength"] = str(_TAG_BITS)
        return ",".join(f"{name}:{values[name]}" for name in java_map(values, string_hash))


def decode_password(secret: Secret, encoded: str) -> Secret:
    """Raises PasswordNotDecoded."""
    values = dict(part.split(":", 1) for part in encoded.split(",") if ":" in part)
    try:
        return _decoded(secret, values)
    except (KeyError, ValueError, binascii.Error):
        raise PasswordNotDecoded("Password could not be decoded") from None


def _decoded(secret: Secret, values: Mapping[str, str]) -> Secret:
    from cryptography.exceptions import InvalidTag

    iterations, key_length = int(values["iterations"]), int(values["keyLength"])
    if not 0 < iterations <= _MOST_ITERATIONS or key_length not in _KEY_BITS:
        raise ValueError("parameters beyond reason")
    salt, vector = _from_base64(values["salt"]), _from_base64(values["initializationVector"])
    encrypted, algorithm = _from_base64(values["encryptedPassword"]), values["cipherAlgorithm"]
    tag = None
    if algorithm == _GCM:
        at = len(encrypted) - int(values["authenticationTagLength"]) // 8
        encrypted, tag = encrypted[:at], encrypted[at:]
    key = _key(secret, values["keyFactoryAlgorithm"], salt, iterations, key_length)
    decryptor = _cipher(key, algorithm, vector, tag).decryptor()
    try:
        plain = decryptor.update(encrypted) + decryptor.finalize()
    except InvalidTag:
        raise ValueError("wrong tag") from None
    password = Secret(plain if tag is not None else _unpadded(plain))
    if _utf16_units(password) != int(values["passwordLength"]):
        raise PasswordNotDecoded("Password could not be decoded, sanity check of length failed")
    return password


def _key(secret: Secret, algorithm: str, salt: bytes, iterations: int, bits: int) -> bytes:
    match = _KEY_FACTORY.fullmatch(algorithm)
    if match is None:
        raise ValueError("unknown key factory")
    return hashlib.pbkdf2_hmac(match[1].lower(), secret.reveal(), salt, iterations, bits // 8)


def _cipher(key: bytes, algorithm: str, vector: bytes, tag: bytes | None) -> "Cipher[CBC] | Cipher[GCM]":
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import AES
    from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM

    if algorithm == _CBC:
        return Cipher(AES(key), CBC(vector))
    if algorithm == _GCM:
        return Cipher(AES(key), GCM(vector, tag))
    raise ValueError("unknown cipher")


def _padded(data: bytes) -> bytes:
    missing = _BLOCK_BYTES - len(data) % _BLOCK_BYTES
    return data + bytes([missing]) * missing


def _unpadded(data: bytes) -> bytes:
    count = data[-1] if data else 0
    if not 1 <= count <= _BLOCK_BYTES or data[-count:] != bytes([count]) * count:
        raise ValueError("wrong padding")
    return data[:-count]


def _utf16_units(password: Secret) -> int:
    return len(password.reveal_text().encode("utf-16-be", "surrogatepass")) // 2


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

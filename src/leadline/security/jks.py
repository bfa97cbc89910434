"""Java's own key stores, JKS: the entries of one, and the keys within. They were the default until Java 8.

Pure: bytes in, entries and keys out.

FEEDFEED  version (4: 1 or 2)  count (4)  entries  SHA-1(password as UTF-16 + "Mighty Aphrodite" + all before)
entry     tag (4: 1 key, 2 certificate)  alias (UTF)  date (8)  then
    key           length (4)  EncryptedPrivateKeyInfo  chain length (4)  certificates
    certificate   [type (UTF), in version 2]  length (4)  DER
UTF       length (2)  bytes
A key is encrypted by Sun's own method (OID 1.3.6.1.4.1.42.2.17.1.1): salt (20), data, check (20). The stream of the
method is W0 = salt, Wi = SHA-1(password + Wi-1); check = SHA-1(password + plain text). The plain text is PKCS#8.

    everything is big-endian; without a password the digest at the end is not checked, as in Java
    no error contains a key or a password
"""

import hashlib
from hmac import compare_digest
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from leadline.security.secret import Secret

MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_WHITENER = b"Mighty Aphrodite"
_SUN_PROTECTION = bytes.fromhex("060a2b060104012a02110101")  # the OID in DER
_KEY_TAG, _CERTIFICATE_TAG = 1, 2
_SHORT, _INT = Struct(">H"), Struct(">I")
_DIGEST_BYTES = 20
_MOST_CHAIN = 100  # certificates in a chain: no real one has ten


class InvalidJks(Exception):
    """A store that cannot be read. The message has the reason, never the contents."""


class JksEntry(NamedTuple):
    alias: str
    protected: bytes | None  # the encrypted key; None: a trusted certificate
    chain: tuple[bytes, ...]


def jks_entries(data: bytes, password: Secret | None) -> list[JksEntry]:
    if data.startswith(_JCEKS_MAGIC):
        raise InvalidJks("it is a JCEKS store: convert it to PKCS12 with keytool -importkeystore")
    if not data.startswith(MAGIC):
        raise InvalidJks("it is not a JKS store")
    if password is not None:
        digest = hashlib.sha1(_utf16(password) + _WHITENER + data[:-_DIGEST_BYTES]).digest()
        if not compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise InvalidJks("wrong password, or the store was changed")
    try:
        return _JksReader(data).entries()
    except (StructError, IndexError, UnicodeDecodeError):
        raise InvalidJks("the store is cut off or damaged") from None


class _JksReader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, len(MAGIC)

    def entries(self) -> list[JksEntry]:
        self._version = self._number(_INT)
        if self._version not in (1, 2):
            raise InvalidJks(f"a JKS store of version {self._version}")
        return [self._entry() for _ in range(min(self._number(_INT), len(self._data)))]

    def _entry(self) -> JksEntry:
        tag, alias, _ = self._number(_INT), self._bytes(self._number(_SHORT)).decode(), self._bytes(8)
        if tag == _CERTIFICATE_TAG:
            return JksEntry(alias, None, (self._certificate(),))
        if tag != _KEY_TAG:
            raise InvalidJks(f"an entry of the unknown type {tag}")
        protected, count = self._bytes(self._number(_INT)), self._number(_INT)
        if count > _MOST_CHAIN:
            raise InvalidJks(f"a chain of {count} certificates")
        return JksEntry(alias, protected, tuple(self._certificate() for _ in range(count)))

    def _certificate(self) -> bytes:
        if self._version == 2:
            self._bytes(self._number(_SHORT))
        return self._bytes(self._number(_INT))

    def _number(self, struct: Struct) -> int:
        number: int = struct.unpack_from(self._data, self._at)[0]
        self._at += struct.size
        return number

    def _bytes(self, length: int) -> bytes:
        start, self._at = self._at, self._at + length
        if self._at > len(self._data):
            raise InvalidJks("the store is cut off or damaged")
        return self._data[start : self._at]


def unprotected(protected: bytes, password: Secret) -> Secret:
    at = protected.find(_SUN_PROTECTION)
    header = at + len(_SUN_PROTECTION) + 2  # and NULL
    data = _octets(protected[header:]) if at >= 0 else b""
    if len(data) < 2 * _DIGEST_BYTES:
        raise InvalidJks("a key that is not protected by Sun's method")
    salt, encrypted, check = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    key, word, stream = _utf16(password), salt, bytearray()
    while len(stream) < len(encrypted):
        word = hashlib.sha1(key + word).digest()
        stream += word
    plain = bytes(one ^ other for one, other in zip(encrypted, stream, strict=False))
    if not compare_digest(hashlib.sha1(key + plain).digest(), check):
        raise InvalidJks("wrong key password")
    return Secret(plain)


def _octets(data: bytes) -> bytes:
    """The content of an OCTET STRING in DER."""
    if data[:1] != b"\x04" or len(data) < 2:
        return b""
    size = data[1] & 0x7F if data[1] & 0x80 else 0
    length = int.from_bytes(data[2 : 2 + size], "big") if size else data[1]
    return data[2 + size : 2 + size + length]


def _utf16(password: Secret) -> bytes:
    return password.reveal_text().encode("utf-16-be", "surrogatepass")

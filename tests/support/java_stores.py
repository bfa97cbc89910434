"""JKS, as Java writes it, without a tool. `certificates` has the keys and the chains that go into it."""

import hashlib
import os
from struct import pack

from tests.support.certificates import Identity

_SUN_HEADER = bytes.fromhex("300e060a2b060104012a021101010500")


def jks(
    password: str,
    keys: dict[str, Identity],
    trusted: dict[str, Identity],
    key_password: str = "",
    version: int = 2,
) -> bytes:
    entries = [_jks_trusted(alias, identity, version) for alias, identity in trusted.items()]
    entries += [_jks_key(alias, identity, key_password or password, version) for alias, identity in keys.items()]
    data = b"\xfe\xed\xfe\xed" + pack(">II", version, len(entries)) + b"".join(entries)
    return data + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


def _jks_trusted(alias: str, identity: Identity, version: int) -> bytes:
    return pack(">I", 2) + _utf(alias) + bytes(8) + _jks_certificate(identity.chain[0], version)


def _jks_key(alias: str, identity: Identity, password: str, version: int) -> bytes:
    secret, salt = password.encode("utf-16-be"), os.urandom(20)
    plain, word, stream = identity.der, salt, b""
    while len(stream) < len(plain):
        word = hashlib.sha1(secret + word).digest()
        stream += word
    encrypted = bytes(one ^ other for one, other in zip(plain, stream, strict=False))
    octets = salt + encrypted + hashlib.sha1(secret + plain).digest()
    protected = der(0x30, _SUN_HEADER + der(0x04, octets))
    certificates = b"".join(_jks_certificate(part, version) for part in identity.chain)
    head = pack(">I", 1) + _utf(alias) + bytes(8)
    return head + pack(">I", len(protected)) + protected + pack(">I", len(identity.chain)) + certificates


def _jks_certificate(der: bytes, version: int) -> bytes:
    return (_utf("X.509") if version == 2 else b"") + pack(">I", len(der)) + der


def _utf(text: str) -> bytes:
    return pack(">H", len(text.encode())) + text.encode()


def der(tag: int, content: bytes) -> bytes:
    length = len(content)
    head = bytes([length]) if length < 0x80 else b"\x82" + pack(">H", length)
    return bytes([tag]) + head + content

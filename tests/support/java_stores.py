"""Keys, chains of certificates with any name, and the stores of Java that hold them, without a tool."""

import datetime
import hashlib
import ipaddress
import os
from dataclasses import dataclass
from struct import pack

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

NOW = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
FAR = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)
_SUN_HEADER = bytes.fromhex("300e060a2b060104012a021101010500")


@dataclass(frozen=True)
class ChainedIdentity:
    """A key with its certificate and those that vouch for it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...] = ()  # nearest first

    @property
    def chain(self) -> list[bytes]:
        return [part.public_bytes(Encoding.DER) for part in (self.certificate, *self.issuers)]

    @property
    def chain_pem(self) -> str:
        return "".join(part.public_bytes(Encoding.PEM).decode() for part in (self.certificate, *self.issuers))

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        """The key, in PKCS#8."""
        return self.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())

    def key_pem(self, password: str | None = None, format: PrivateFormat = PrivateFormat.PKCS8) -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, format, encryption).decode()

    def pkcs12(self, password: str, others: tuple[x509.Certificate, ...] = ()) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        certificates = [*self.issuers, *others]
        return pkcs12.serialize_key_and_certificates(b"kafka", self.key, self.certificate, certificates, encryption)


def name(common_name: str, organization: str = "Acme") -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def authority(common_name: str = "ca", issuer: ChainedIdentity | None = None) -> ChainedIdentity:
    """A certificate authority: a root, or one below another."""
    return _signed(name(common_name), issuer, FAR, [], is_authority=True)


def issued(
    issuer: ChainedIdentity,
    subject: str | x509.Name = "broker",
    names: tuple[str, ...] = ("localhost",),
    until: datetime.datetime = FAR,
) -> ChainedIdentity:
    general: list[x509.GeneralName] = []
    for text in names:
        is_address = text.replace(".", "").isdigit()
        general.append(x509.IPAddress(ipaddress.ip_address(text)) if is_address else x509.DNSName(text))
    return _signed(name(subject) if isinstance(subject, str) else subject, issuer, until, general)


def _signed(
    subject: x509.Name,
    issuer: ChainedIdentity | None,
    until: datetime.datetime,
    names: list[x509.GeneralName],
    is_authority: bool = False,
) -> ChainedIdentity:
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = builder.sign(issuer.key if issuer else key, hashes.SHA256())
    issuers = () if issuer is None else (issuer.certificate, *issuer.issuers)
    return ChainedIdentity(key, certificate, issuers)


# JKS, as Java writes it


def jks(
    password: str,
    keys: dict[str, ChainedIdentity],
    trusted: dict[str, ChainedIdentity],
    key_password: str = "",
    version: int = 2,
) -> bytes:
    entries = [_jks_trusted(alias, identity, version) for alias, identity in trusted.items()]
    entries += [_jks_key(alias, identity, key_password or password, version) for alias, identity in keys.items()]
    data = b"\xfe\xed\xfe\xed" + pack(">II", version, len(entries)) + b"".join(entries)
    return data + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + data).digest()


def _jks_trusted(alias: str, identity: ChainedIdentity, version: int) -> bytes:
    return pack(">I", 2) + _utf(alias) + bytes(8) + _jks_certificate(identity.chain[0], version)


def _jks_key(alias: str, identity: ChainedIdentity, password: str, version: int) -> bytes:
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

"""A certificate authority for development, and certificates of it, as PEM and as PKCS12.

Keys are on the curve P-256. The authority can sign leaves only. A leaf with hosts serves as a broker and as a client,
since brokers are both; one without hosts as a client alone.
"""

import datetime
import ipaddress
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from leadline.security.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate, CertificateBuilder, GeneralName

AUTHORITY_DAYS, LEAF_DAYS = 3650, 397
EARLIER = datetime.timedelta(hours=1)  # clocks differ
_HOST = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9.-]*[A-Za-z0-9])?")


class SignedKey(NamedTuple):
    key: "EllipticCurvePrivateKey"
    certificate: "Certificate"

    def key_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def certificate_pem(self) -> bytes:
        from cryptography.hazmat.primitives.serialization import Encoding

        return self.certificate.public_bytes(Encoding.PEM)

    def pkcs12(self, name: str, password: Secret, issuer: "SignedKey") -> bytes:
        """A key store, as Java reads it."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
        from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

        encryption = BestAvailableEncryption(password.reveal())
        return serialize_key_and_certificates(
            name.encode(), self.key, self.certificate, [issuer.certificate], encryption
        )

    def trust_store(self, password: Secret) -> bytes:
        """A trust store with this certificate, marked as trusted, as Java demands it."""
        from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
        from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

        trusted = PKCS12Certificate(self.certificate, b"ca")
        return serialize_java_truststore([trusted], BestAvailableEncryption(password.reveal()))


def new_authority(name: str) -> SignedKey:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _certificate(name, AUTHORITY_DAYS)
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return SignedKey(key, builder.sign(key, SHA256()))


def new_leaf(authority: SignedKey, name: str, hosts: Sequence[str] = ()) -> SignedKey:
    """A certificate. `hosts`: names and addresses of a broker."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID

    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_key = authority.key.public_key()
    builder = (
        _certificate(name, LEAF_DAYS)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes if hosts else purposes[1:]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([*map(_general_name, hosts)]), critical=False)
    return SignedKey(key, builder.sign(authority.key, SHA256()))


def is_host(text: str) -> bool:
    """A name or an address that a certificate can have."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return _HOST.fullmatch(text) is not None
    return True


def _certificate(name: str, days: int) -> "CertificateBuilder":
    from cryptography import x509

    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _name(common_name: str):  # type: ignore[no-untyped-def]
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usage(*, signs_certificates: bool):  # type: ignore[no-untyped-def]
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)

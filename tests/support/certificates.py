"""Certificate authorities for tests, and keys with their certificates: in memory, of a kind that is quick to make."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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
LOCAL_NAMES = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class Identity:
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

    def write(self, path: Path) -> Path:
        """Key and certificate into one file, as `load_cert_chain` takes it."""
        path.write_text(self.key_pem() + self.certificate_pem)
        return path


def name(common_name: str, organization: str = "Acme") -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COUNTRY_NAME, "DE"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def new_authority(common_name: str = "ca", issuer: Identity | None = None) -> Identity:
    """A certificate authority: a root, or one below another."""
    return _signed(name(common_name), issuer, FAR, [], is_authority=True)


def issued(
    issuer: Identity,
    subject: str | x509.Name = "broker",
    names: tuple[str, ...] = ("localhost",),
    until: datetime.datetime = FAR,
) -> Identity:
    general: list[x509.GeneralName] = []
    for text in names:
        is_address = text.replace(".", "").isdigit()
        general.append(x509.IPAddress(ipaddress.ip_address(text)) if is_address else x509.DNSName(text))
    return _signed(name(subject) if isinstance(subject, str) else subject, issuer, until, general)


def _signed(
    subject: x509.Name,
    issuer: Identity | None,
    until: datetime.datetime,
    names: list[x509.GeneralName],
    is_authority: bool = False,
) -> Identity:
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
    return Identity(key, certificate, issuers)


# One for all tests that need no other


class CertificateAuthority:
    def __init__(self, common_name: str = "Test CA") -> None:
        self._identity = new_authority(common_name)

    @property
    def pem(self) -> str:
        return self._identity.certificate_pem

    def issue(self, common_name: str, *, days: int = 30) -> Identity:
        """Valid for localhost. A negative number of days: it has expired."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        return issued(self._identity, subject, LOCAL_NAMES, until)


@cache
def authority() -> CertificateAuthority:
    return CertificateAuthority()


def server_context(folder: Path, *, verify: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority().issue("localhost").write(folder / "server.pem"))
    context.load_verify_locations(cadata=authority().pem)
    context.verify_mode = verify
    return context


def client_context(folder: Path, name: str | None = None) -> ssl.SSLContext:
    """With a certificate of this name, if there is one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority().pem)
    if name is not None:
        context.load_cert_chain(authority().issue(name).write(folder / "client.pem"))
    return context

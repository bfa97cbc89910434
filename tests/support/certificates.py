"""A certificate authority for tests, and certificates of it: made in memory, with keys that are quick to make."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A key with its certificate."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def write(self, path: Path) -> Path:
        """Into one file, as `load_cert_chain` takes it."""
        path.write_bytes(self.key_pem + self.certificate_pem)
        return path


class CertificateAuthority:
    def __init__(self, name: str = "Test CA") -> None:
        self.identity = _signed(name, None)

    @property
    def pem(self) -> str:
        return self.identity.certificate_pem.decode()

    def issue(self, name: str, *, days: int = 30) -> Identity:
        """Valid for localhost. A negative number of days: it has expired."""
        return _signed(name, self.identity, days=days)


def _signed(name: str, issuer: Identity | None, days: int = 30) -> Identity:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - 60 * DAY)
        .not_valid_after(now + days * DAY)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
    return Identity(key, builder.sign(key if issuer is None else issuer.key, hashes.SHA256()))


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

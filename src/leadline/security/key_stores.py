"""Key stores and trust stores, as Kafka's settings name them: JKS, PKCS12, PEM in a file, PEM within a setting.

Pure: settings and bytes in, keys and certificates out. The caller reads the file.

    a key store holds one key and its chain, the leaf first; a store with more keys: its first one
    a trust store holds certificates of authorities; without a password its integrity is not checked, as in Java
    the certificate of a key counts as trusted, too, as in Java, but not those of authorities that vouch for it
    what Kafka refuses is refused in Kafka's words; no error contains a key or a password
"""

import base64
import binascii
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leadline.config.values import InvalidSetting
from leadline.security.distinguished_name import InvalidName, issuer_of, subject_name, subject_of
from leadline.security.jks import MAGIC as JKS_MAGIC
from leadline.security.jks import InvalidJks, jks_entries, unprotected
from leadline.security.secret import Secret

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

PEM, JKS, PKCS12 = "PEM", "JKS", "PKCS12"

_SEQUENCE_TAG = b"\x30"
_SEQUENCE = rb"\x30(?:[\x00-\x7f]|\x81.|\x82..)"
_ENCRYPTED_PKCS8 = re.compile(_SEQUENCE + rb"\x30", re.DOTALL)
_PLAIN_PKCS8 = re.compile(_SEQUENCE + rb"\x02\x01[\0\1]\x30", re.DOTALL)
_ENCODED = r"(?:\s*[^\r\n]*:[^\r\n]*[\r\n]+)*([a-zA-Z0-9/+=\s]*)"
_PEM_CERTIFICATE = re.compile(
    rf"-+BEGIN\s*[^\r\n]*CERTIFICATE[^-]*-+\s+{_ENCODED}-+END\s*[^\r\n]*CERTIFICATE[^-]*-+\s+"
)
_PEM_KEY = re.compile(rf"-+BEGIN\s*[^\r\n]*PRIVATE\s+KEY[^-]*-+\s+{_ENCODED}-+END\s*[^\r\n]*PRIVATE\s+KEY[^-]*-+\s+")


class StoreError(InvalidSetting):
    """A store that cannot be loaded. The message has its place and the reason, never the contents."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    key: Secret  # PKCS#8 in DER, not encrypted
    chain: tuple[bytes, ...]  # DER, the key's own certificate first


@dataclass(frozen=True, slots=True)
class TrustStore:
    certificates: tuple[bytes, ...]  # DER


@dataclass(frozen=True, slots=True)
class KeyStoreSettings:
    """ssl.keystore.* and ssl.key.password of a listener."""

    type: str = JKS
    location: str | None = None
    password: Secret | None = None
    key_password: Secret | None = None
    key: Secret | None = None  # PEM
    certificate_chain: Secret | None = None  # PEM


@dataclass(frozen=True, slots=True)
class TrustStoreSettings:
    """ssl.truststore.* of a listener."""

    type: str = JKS
    location: str | None = None
    password: Secret | None = None
    certificates: Secret | None = None  # PEM


ReadFile = Callable[[str], bytes]  # raises OSError


def load_key_store(settings: KeyStoreSettings, read: ReadFile) -> KeyStore | None:
    """None: none is configured."""
    _check_key_store(settings)
    if settings.key is not None and settings.certificate_chain is not None:
        try:
            return _pem_key_store(settings.key, settings.certificate_chain, settings.key_password)
        except StoreError as error:
            raise StoreError(f"Invalid PEM keystore configs: {error}") from None
    if settings.location is None:
        return None
    data = _read(settings.location, settings.type, read)
    try:
        if settings.type == PEM:
            text = Secret(data)
            return _pem_key_store(text, text, settings.key_password)
        assert settings.password is not None, "checked above"
        key_password = settings.key_password or settings.password
        if _is_jks(data, settings.type):
            return _jks_key_store(data, settings.password, key_password)
        return _pkcs12_key_store(data, settings.password)
    except (StoreError, InvalidJks) as error:
        raise _failed(settings.location, settings.type, error) from None


def load_trust_store(settings: TrustStoreSettings, read: ReadFile) -> TrustStore | None:
    """None: none is configured, and the authorities of the system count."""
    _check_trust_store(settings)
    if settings.certificates is not None:
        return TrustStore(_pem_certificates(settings.certificates))
    if settings.location is None:
        return None
    data = _read(settings.location, settings.type, read)
    try:
        if settings.type == PEM:
            return TrustStore(_pem_certificates(Secret(data)))
        if _is_jks(data, settings.type):
            entries = jks_entries(data, settings.password)
            certificates = tuple(entry.chain[0] for entry in entries if entry.chain)
        else:
            certificates = _pkcs12_certificates(data, settings.password)
        if not certificates:
            raise StoreError("there is no trusted certificate in it")
        return TrustStore(certificates)
    except (StoreError, InvalidJks) as error:
        raise _failed(settings.location, settings.type, error) from None


# What Kafka refuses


def _check_key_store(settings: KeyStoreSettings) -> None:
    has_password, is_pem = settings.password is not None, settings.type == PEM
    if settings.key is not None:
        if not is_pem:
            raise StoreError(f"SSL private key can be specified only for PEM, but key store type is {settings.type}.")
        if settings.certificate_chain is None:
            raise StoreError("SSL private key is specified, but certificate chain is not specified.")
        if settings.location is not None:
            raise StoreError("Both SSL key store location and separate private key are specified.")
    elif settings.certificate_chain is not None:
        raise StoreError("SSL certificate chain is specified, but private key is not specified")
    if is_pem and has_password and (settings.key is not None or settings.location is not None):
        raise StoreError(
            "SSL key store password cannot be specified with PEM format, only key password may be specified."
        )
    if settings.location is None and settings.key is None and has_password:
        raise StoreError("SSL key store is not specified, but key store password is specified.")
    if settings.location is not None and not is_pem and not has_password:
        raise StoreError("SSL key store is specified, but key store password is not specified.")
    _check_type(settings.type, "ssl.keystore.type")


def _check_trust_store(settings: TrustStoreSettings) -> None:
    has_password, is_pem = settings.password is not None, settings.type == PEM
    if settings.certificates is not None:
        if not is_pem:
            raise StoreError(
                f"SSL trust store certs can be specified only for PEM, but trust store type is {settings.type}."
            )
        if settings.location is not None:
            raise StoreError("Both SSL trust store location and separate trust certificates are specified.")
    if is_pem and has_password and (settings.certificates is not None or settings.location is not None):
        raise StoreError("SSL trust store password cannot be specified for PEM format.")
    if settings.location is None and settings.certificates is None and has_password:
        raise StoreError("SSL trust store is not specified, but trust store password is specified.")
    _check_type(settings.type, "ssl.truststore.type")


def _check_type(type_: str, setting: str) -> None:
    if type_ not in (PEM, JKS, PKCS12):
        raise StoreError(f"{setting}={type_}: must be {JKS}, {PKCS12} or {PEM}")


def _read(location: str, type_: str, read: ReadFile) -> bytes:
    try:
        return read(location)
    except OSError as error:
        raise _failed(location, type_, error.strerror or str(error)) from None


def _is_jks(data: bytes, type_: str) -> bool:
    """As Java: a store that is set as JKS or PKCS12 may be the other one (keystore.type.compat)."""
    return data.startswith(JKS_MAGIC) or (type_ == JKS and data[:1] != _SEQUENCE_TAG)


def _failed(location: str, type_: str, reason: object) -> StoreError:
    return StoreError(f"Failed to load SSL keystore {location} of type {type_}: {reason}")


# PEM


def _pem_key_store(key: Secret, chain: Secret, password: Secret | None) -> KeyStore:
    keys = _pem_entries(_PEM_KEY, key, "PRIVATE KEY")
    if len(keys) != 1:
        raise StoreError(f"Expected one private key, but found {len(keys)}")
    return _checked(KeyStore(_pkcs8(keys[0], password), _pem_certificates(chain)))


def _pem_certificates(text: Secret) -> tuple[bytes, ...]:
    return tuple(_pem_entries(_PEM_CERTIFICATE, text, "CERTIFICATE"))


def _pem_entries(pattern: re.Pattern[str], text: Secret, name: str) -> list[bytes]:
    encoded = [match[1] for match in pattern.finditer(text.reveal().decode("utf-8", "replace") + "\n")]
    if not encoded:
        raise StoreError(f"No matching {name} entries in PEM file")
    try:
        return [base64.b64decode("".join(part.split()), validate=True) for part in encoded]
    except binascii.Error:
        raise StoreError(f"a {name} of a PEM file is not base64") from None


def _pkcs8(data: bytes, password: Secret | None) -> Secret:
    """A key in PKCS#8, encrypted if there is a password, and not if there is none."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    if not _is_pkcs8(data, password is not None):
        problem = (
            "not an encrypted key in PKCS#8, as ssl.key.password is set" if password else "not a plain key in PKCS#8"
        )
        raise StoreError(f"Private key could not be loaded: it is {problem}")
    try:
        return _plain_pkcs8(load_der_private_key(data, password.reveal() if password else None))
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StoreError("Private key could not be loaded: wrong ssl.key.password, or no key") from None


def _is_pkcs8(data: bytes, encrypted: bool) -> bool:
    """Within its sequence an encrypted key begins with an algorithm, a plain one with a version and an algorithm."""
    return bool((_ENCRYPTED_PKCS8 if encrypted else _PLAIN_PKCS8).match(data))


def _plain_pkcs8(key: "PrivateKeyTypes") -> Secret:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return Secret(key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


# PKCS12


def _pkcs12_key_store(data: bytes, password: Secret) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _load_pkcs12(data, password, "wrong password")
    if store.key is None or store.cert is None:
        raise StoreError("there is no key with a certificate in it")
    others = [entry.certificate.public_bytes(Encoding.DER) for entry in store.additional_certs]
    leaf = store.cert.certificate.public_bytes(Encoding.DER)
    return _checked(KeyStore(_plain_pkcs8(store.key), _chain(leaf, others)))


def _pkcs12_certificates(data: bytes, password: Secret | None) -> tuple[bytes, ...]:
    from cryptography.hazmat.primitives.serialization import Encoding

    store = _load_pkcs12(data, password, "wrong password" if password else "it needs ssl.truststore.password")
    others = [(entry.certificate.public_bytes(Encoding.DER), entry.friendly_name) for entry in store.additional_certs]
    if store.cert is None:
        return tuple(certificate for certificate, _ in others)
    trusted = [certificate for certificate, alias in others if alias and not _is_of_a_chain(certificate, alias)]
    return (store.cert.certificate.public_bytes(Encoding.DER), *trusted)


def _is_of_a_chain(certificate: bytes, alias: bytes) -> bool:
    """Java names a certificate that only belongs to a key's chain after its subject; others leave it without a name."""
    return alias.decode("utf-8", "replace").lower() == subject_name(certificate).lower()


def _load_pkcs12(data: bytes, password: Secret | None, problem: str) -> "PKCS12KeyAndCertificates":
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    try:
        with warnings.catch_warnings():  # of a store that is in BER instead of DER
            warnings.simplefilter("ignore")
            return load_pkcs12(data, password.reveal() if password else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise StoreError(f"{problem}, or no PKCS12 store") from None


def _chain(leaf: bytes, others: list[bytes]) -> tuple[bytes, ...]:
    """The leaf, its issuer, and so on, as far as the store has them."""
    by_subject = {subject_of(certificate): certificate for certificate in others}
    chain = [leaf]
    while issuer_of(chain[-1]) != subject_of(chain[-1]) and len(chain) <= len(others):
        issuer = by_subject.get(issuer_of(chain[-1]))
        if issuer is None:
            break
        chain.append(issuer)
    return tuple(chain)


# JKS


def _jks_key_store(data: bytes, password: Secret, key_password: Secret) -> KeyStore:
    for entry in jks_entries(data, password):
        if entry.protected is not None:
            return _checked(KeyStore(unprotected(entry.protected, key_password), entry.chain))
    raise StoreError("there is no key in it")


def _checked(store: KeyStore) -> KeyStore:
    """OpenSSL checks that key and certificate belong together. Here is checked that there is a certificate."""
    try:
        subject_of(store.chain[0])
    except (IndexError, InvalidName):
        raise StoreError("there is no certificate for the key") from None
    return store

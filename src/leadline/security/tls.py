"""TLS of one listener: SSL contexts from Kafka's settings, and what may change while the broker runs.

    a context is built once per listener and once per reload; connections keep the one they began with
    a reload that is refused changes nothing
    a new certificate has the old one's name, and its alternative names at least, unless the settings allow otherwise
    keys stay in memory: OpenSSL reads them from a memory file
    renegotiation and compression are off; the server chooses the cipher

Protocols are TLSv1.2 and TLSv1.3. `ssl.cipher.suites` has IANA's names, OpenSSL its own for TLS 1.2: `_CIPHERS` has
both. Python cannot choose among the suites of TLS 1.3. If the setting names some of them, all stay on, and `notes`
says so. If it names none of a protocol's suites, that protocol is off, as in Java.
"""

import base64
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from leadline.config.values import InvalidSetting
from leadline.runtime.memory_file import memory_file
from leadline.security.distinguished_name import canonical_name, name_text, subject_of
from leadline.security.key_stores import (
    KeyStore,
    KeyStoreSettings,
    ReadFile,
    TrustStore,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
_VERSIONS = {TLS_1_2: ssl.TLSVersion.TLSv1_2, TLS_1_3: ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}
_TLS_1_3_SUITES = {"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"}
_PARTIAL_CHAIN = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # as in Java, an intermediate may be trusted by itself
_OPTIONS = ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
_MOST_FLIGHTS = 20  # of a handshake with itself; a real one has three

_CIPHERS = {  # IANA's name without TLS_, and OpenSSL's
    "ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE_ECDSA_WITH_AES_256_CBC_SHA384": "ECDHE-ECDSA-AES256-SHA384",
    "ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "ECDHE_RSA_WITH_AES_256_CBC_SHA384": "ECDHE-RSA-AES256-SHA384",
    "ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "DHE_RSA_WITH_AES_256_GCM_SHA384": "DHE-RSA-AES256-GCM-SHA384",
    "DHE_RSA_WITH_AES_128_GCM_SHA256": "DHE-RSA-AES128-GCM-SHA256",
    "DHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "DHE-RSA-CHACHA20-POLY1305",
    "DHE_RSA_WITH_AES_256_CBC_SHA256": "DHE-RSA-AES256-SHA256",
    "DHE_RSA_WITH_AES_128_CBC_SHA256": "DHE-RSA-AES128-SHA256",
    "RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "RSA_WITH_AES_256_CBC_SHA256": "AES256-SHA256",
    "RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
}


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """The ssl.* settings of one listener, its prefix applied."""

    key_store: KeyStoreSettings = field(default_factory=KeyStoreSettings)
    trust_store: TrustStoreSettings = field(default_factory=TrustStoreSettings)
    enabled_protocols: tuple[str, ...] = (TLS_1_2, TLS_1_3)
    cipher_suites: tuple[str, ...] = ()
    client_auth: str = "none"
    endpoint_identification_algorithm: str = "https"  # when this broker is the client; empty: names are not compared
    allow_dn_changes: bool = False
    allow_san_changes: bool = False

    def openssl_ciphers(self) -> list[str]:
        """OpenSSL's names of the suites for TLS 1.2; none: its own choice. Raises InvalidSetting."""
        return _protocols_and_ciphers(self)[1]

    @property
    def locations(self) -> list[str]:
        """The files of its stores."""
        return [path for path in (self.key_store.location, self.trust_store.location) if path is not None]


def client_auth_of(security_protocol: str, broker_wide: str, listeners_own: str | None) -> str:
    """ssl.client.auth of a listener: on SASL_SSL only the listener's own setting counts."""
    if listeners_own is not None:
        return listeners_own
    return "none" if security_protocol == "SASL_SSL" else broker_wide


class ListenerTls:
    """What a listener with TLS has at a time. Immutable: a reload makes a new one."""

    def __init__(self, settings: TlsSettings, key_store: KeyStore | None, trust_store: TrustStore | None) -> None:
        self.settings, self._key_store, self._trust_store = settings, key_store, trust_store
        self.notes: tuple[str, ...] = tuple(_notes(settings))

    @classmethod
    def load(cls, settings: TlsSettings, read: ReadFile, *, inter_broker: bool = False) -> "ListenerTls":
        """Raises InvalidSetting. The inter-broker listener must accept itself."""
        tls = cls(settings, load_key_store(settings.key_store, read), load_trust_store(settings.trust_store, read))
        _ = tls.server_context  # built here: an error stops the start or the reload
        if inter_broker:
            _check_handshake(tls, tls)
        return tls

    def reloaded(self, settings: TlsSettings, read: ReadFile, *, inter_broker: bool = False) -> "ListenerTls":
        """Build it from these settings and the current files. Raises InvalidSetting, in Kafka's words."""
        try:
            new = ListenerTls.load(settings, read)
            self._check_successor(new)
            if inter_broker:
                _check_handshake(self, new)
                _check_handshake(new, self)
            return new
        except InvalidSetting as error:
            raise InvalidSetting(f"Validation of dynamic config update of SSLFactory failed: {error}") from None

    @cached_property
    def server_context(self) -> ssl.SSLContext:
        context = self._context(ssl.PROTOCOL_TLS_SERVER)
        if self._key_store is None:
            raise InvalidSetting("a listener with TLS has a key store: set ssl.keystore.location or ssl.keystore.key")
        if self.settings.client_auth not in _CLIENT_AUTH:
            choice = ", ".join(_CLIENT_AUTH)
            raise InvalidSetting(f"ssl.client.auth={self.settings.client_auth}: must be one of {choice}")
        context.verify_mode = _CLIENT_AUTH[self.settings.client_auth]
        context.options |= _OPTIONS
        return context

    @cached_property
    def client_context(self) -> ssl.SSLContext:
        """The context for connections to other brokers. A key store is shown to peers that request it."""
        context = self._context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = bool(self.settings.endpoint_identification_algorithm)
        context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        return context

    def _context(self, protocol: "ssl._SSLMethod") -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        protocols, ciphers = _protocols_and_ciphers(self.settings)
        context.minimum_version, context.maximum_version = _VERSIONS[protocols[0]], _VERSIONS[protocols[-1]]
        if ciphers:
            context.set_ciphers(":".join(ciphers))
        context.verify_flags |= _PARTIAL_CHAIN
        if self._trust_store is None:
            context.load_default_certs()
        else:
            _trust(context, self._trust_store)
        if self._key_store is not None:
            _load(context, self._key_store)
        return context

    def _check_successor(self, new: "ListenerTls") -> None:
        if self._trust_store is None and new._trust_store is not None:
            raise InvalidSetting(
                "Cannot add SSL truststore to an existing listener for which no truststore was configured."
            )
        assert self._key_store is not None
        assert new._key_store is not None
        before, after = self._key_store.chain[0], new._key_store.chain[0]
        if not new.settings.allow_dn_changes and not _same_name(subject_of(before), subject_of(after)):
            raise InvalidSetting(
                "Keystore DistinguishedName does not match:  "
                f"existing={{DN={name_text(subject_of(before))}}}, new={{DN={name_text(subject_of(after))}}}"
            )
        missing = alternative_names(before) - alternative_names(after)
        if not new.settings.allow_san_changes and missing:
            raise InvalidSetting(
                f"Keystore SubjectAltNames do not match:  the new one lacks {', '.join(sorted(missing))}"
            )


def alternative_names(certificate: bytes) -> frozenset[str]:
    """The subject's alternative names, each with its kind."""
    from cryptography import x509

    extensions = x509.load_der_x509_certificate(certificate).extensions
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"{type(name).__name__}:{name.value}" for name in names)


def _same_name(one: bytes, other: bytes) -> bool:
    return canonical_name(one) == canonical_name(other) or name_text(one).lower() == name_text(other).lower()


def _protocols_and_ciphers(settings: TlsSettings) -> tuple[list[str], list[str]]:
    """Protocols, oldest first, and OpenSSL's names of the suites for TLS 1.2; none: its own choice."""
    unknown = [name for name in settings.enabled_protocols if name not in _VERSIONS]
    if unknown:
        raise InvalidSetting(f"ssl.enabled.protocols={','.join(unknown)}: must be {TLS_1_2}, {TLS_1_3} or both")
    protocols = sorted(set(settings.enabled_protocols)) or [TLS_1_2, TLS_1_3]
    if not settings.cipher_suites:
        return protocols, []
    ciphers = [_openssl_name(name) for name in settings.cipher_suites if name not in _TLS_1_3_SUITES]
    if not ciphers:
        protocols = [name for name in protocols if name != TLS_1_2]
    if not _TLS_1_3_SUITES.intersection(settings.cipher_suites):
        protocols = [name for name in protocols if name != TLS_1_3]
    if not protocols:
        enabled = ",".join(settings.enabled_protocols)
        raise InvalidSetting(f"ssl.cipher.suites: none of them is for a protocol of ssl.enabled.protocols={enabled}")
    return protocols, ciphers


def _openssl_name(name: str) -> str:
    prefix, _, suite = name.partition("_")
    if prefix not in ("TLS", "SSL") or suite not in _CIPHERS:
        raise InvalidSetting(f"ssl.cipher.suites={name}: Unsupported CipherSuite")
    return _CIPHERS[suite]


def _notes(settings: TlsSettings) -> Iterator[str]:
    named = _TLS_1_3_SUITES.intersection(settings.cipher_suites)
    if named and named != _TLS_1_3_SUITES and TLS_1_3 in settings.enabled_protocols:
        others = ", ".join(sorted(_TLS_1_3_SUITES - named))
        yield f"ssl.cipher.suites: {others} stay on: the suites of TLS 1.3 cannot be chosen one by one"


def _trust(context: ssl.SSLContext, store: TrustStore) -> None:
    try:
        context.load_verify_locations(cadata=b"".join(store.certificates))
    except (ssl.SSLError, ValueError) as error:
        raise InvalidSetting(f"a certificate of the trust store cannot be read: {failure_reason(error)}") from None


def _load(context: ssl.SSLContext, store: KeyStore) -> None:
    try:
        with memory_file(key_store_pem(store)) as path:
            context.load_cert_chain(path)
    except ssl.SSLError as error:
        raise InvalidSetting(f"key and certificate of the key store cannot be used: {failure_reason(error)}") from None


def key_store_pem(store: KeyStore) -> bytes:
    """The key, not encrypted, and its chain."""
    return _pem("PRIVATE KEY", store.key.reveal()) + b"".join(_pem("CERTIFICATE", part) for part in store.chain)


def trust_store_pem(store: TrustStore) -> bytes:
    return b"".join(_pem("CERTIFICATE", certificate) for certificate in store.certificates)


def _pem(name: str, der: bytes) -> bytes:
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (name.encode(), base64.encodebytes(der), name.encode())


def _check_handshake(server: ListenerTls, client: ListenerTls) -> None:
    """Tries a handshake in memory, without names, as Kafka does before it trusts its own settings."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ListenerTls(client.settings, client._key_store, client._trust_store).client_context
    client_context.check_hostname = False
    ends = [
        client_context.wrap_bio(to_client, to_server),
        server.server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    try:
        for _ in range(_MOST_FLIGHTS):
            done = [_advance(end) for end in ends]
            if all(done):
                return
    except ssl.SSLError as error:
        raise InvalidSetting(
            "A client SSLEngine created with the provided settings can't connect to a server SSLEngine created with "
            f"those settings: {failure_reason(error)}"
        ) from None
    raise InvalidSetting("a handshake with the provided settings does not complete")


def _advance(end: ssl.SSLObject) -> bool:
    try:
        end.do_handshake()
        return True
    except ssl.SSLWantReadError:
        return False


def failure_reason(error: Exception) -> str:
    """Why TLS failed, in OpenSSL's words without the line of its source."""
    return str(getattr(error, "verify_message", "") or getattr(error, "reason", "") or "no certificate")

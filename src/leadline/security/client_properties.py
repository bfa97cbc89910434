"""The security properties of a client: those of Kafka's clients, for the client libraries that commands use.

Properties in, settings out; the caller reads files. Kafka has the login in a JAAS line and certificates in stores: JKS,
PKCS12 or PEM. Java classes may have the prefix that they have in Databricks' Spark. librdkafka has a property for each
part: stores become PEM in memory files. Our own client and kafka-python get an SSLContext. librdkafka's names are
accepted, too; if both are set, Kafka's count. The token of OAUTHBEARER is fetched by librdkafka itself where it can,
and by us otherwise (`token_login`).

    a property that does not exist, that names a Java class, or that has no effect with security.protocol is refused:
    one error names them all
    no error contains a password, a key or a JAAS line
    a server's name is compared with its certificate unless ssl.endpoint.identification.algorithm is empty or `none`

All clients choose the newest version of TLS that the broker has, TLS 1.2 at least. ssl.enabled.protocols narrows it for
our own client and kafka-python; librdkafka has no setting for it.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from leadline.config.security import LOGIN_HANDLER, LOGIN_HANDLERS
from leadline.config.settings import nearest
from leadline.config.values import InvalidSetting
from leadline.runtime.memory_file import memory_file
from leadline.security.gssapi import GSSAPI
from leadline.security.jaas import LOGIN_MODULES, OAUTHBEARER_LOGIN_MODULE, check_mechanism, parse_jaas_line
from leadline.security.key_stores import (
    JKS,
    PEM,
    KeyStore,
    KeyStoreSettings,
    ReadFile,
    TrustStore,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)
from leadline.security.oauthbearer_client import extensions_of
from leadline.security.secret import Secret
from leadline.security.tls import TLS_1_2, TLS_1_3, ListenerTls, TlsSettings, key_store_pem, trust_store_pem
from leadline.security.token_login import (
    EXTENSIONS,
    LOGIN_TIMES,
    OIDC,
    OPTIONS,
    TOKEN_NAMES,
    TokenLogin,
    is_unsecured,
    token_login,
)
from leadline.security.token_request import TOKEN_URL, url_trust_store

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
HOSTNAME_CHECK = "ssl.endpoint.identification.algorithm"
JAAS = "sasl.jaas.config"
SHADED = "kafkashaded."  # the packages of Kafka's client, as Databricks' Spark has renamed them
VERIFICATION = "enable.ssl.certificate.verification"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = tuple(LOGIN_MODULES)

KAFKA_TLS = """
    ssl.truststore.location ssl.truststore.type ssl.truststore.password ssl.truststore.certificates
    ssl.keystore.location ssl.keystore.type ssl.keystore.password ssl.keystore.key ssl.keystore.certificate.chain
    ssl.key.password ssl.endpoint.identification.algorithm ssl.protocol ssl.enabled.protocols ssl.cipher.suites
""".split()
KAFKA_LOGIN = ["sasl.mechanism", JAAS]
PEM_TLS = """
    ssl.ca.location ssl.ca.pem ssl.certificate.location ssl.certificate.pem ssl.key.location ssl.key.pem
    ssl.crl.location enable.ssl.certificate.verification
""".split()
PEM_LOGIN = "sasl.mechanisms sasl.username sasl.password".split()
NAMES = [
    "security.protocol",
    *KAFKA_LOGIN,
    *KAFKA_TLS,
    *PEM_LOGIN,
    *PEM_TLS,
    *TOKEN_NAMES,
]  # those that every client can use

# Those that librdkafka alone can use.
LIBRDKAFKA = """
    ssl.ca.certificate.stores ssl.curves.list ssl.engine.id ssl.engine.location ssl.providers ssl.sigalgs.list
    enable.sasl.oauthbearer.unsecure.jwt
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include
    sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.config sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type
    sasl.kerberos.keytab sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.principal
    sasl.kerberos.service.name
""".split()
JAVA_CLASSES = """
    sasl.client.callback.handler.class sasl.login.class security.providers
    ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm
""".split()
# What only Java's client or a listener uses. The others decide for themselves.
IGNORED = """
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience
    sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
    sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
""".split()
TLS_PREFIXES = ("ssl.", "enable.ssl.")
SASL_PREFIXES = ("sasl.", "enable.sasl.")
PREFIXES = (*TLS_PREFIXES, *SASL_PREFIXES, "security.", "https.")
_EXISTING = {*NAMES, *LOGIN_TIMES, *LIBRDKAFKA, *JAVA_CLASSES, *IGNORED}


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """The name and password for PLAIN and SCRAM."""

    username: str
    password: Secret
    by_token: bool = False  # the name is the id of a delegation token, the password its HMAC


@dataclass(frozen=True, slots=True)
class ClientStores:
    """The trust store and the key store of a client. None: the system's authorities; no certificate."""

    trust: TrustStore | None
    key: KeyStore | None
    token_trust: TrustStore | None = None  # for the server of tokens


@dataclass(frozen=True, slots=True)
class SecurityProperties:
    """The security properties of a client, checked. `of` is the only way to one."""

    protocol: str
    mechanism: str | None  # None: no SASL
    login: ClientLogin | None  # None: no SASL, or a mechanism without a password
    oauth: Mapping[str, Secret]  # the options of OAuthBearerLoginModule
    properties: Mapping[str, str]  # the security properties as they were given

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> "SecurityProperties":
        """InvalidSetting names every property that is wrong."""
        own = {name: value for name, value in properties.items() if name.startswith(PREFIXES)}
        own |= {name: own[name].lstrip().removeprefix(SHADED) for name in (JAAS, LOGIN_HANDLER) if name in own}
        protocol = own.get("security.protocol", PLAINTEXT).upper()
        if protocol not in PROTOCOLS:
            raise InvalidSetting(f"security.protocol={protocol}: it is {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}")
        if problems := list(_problems(own, protocol)):
            raise InvalidSetting("; ".join(problems))
        if not protocol.startswith("SASL"):
            return cls(protocol, None, None, {}, own)
        mechanism = _mechanism(own)
        return cls(protocol, mechanism, *_login(own, mechanism), own)

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def checks_names(self) -> bool:
        return self.properties.get(HOSTNAME_CHECK, "https").lower() not in ("", "none")

    def stores(self, read: ReadFile) -> ClientStores:
        """The stores under Kafka's names. Raises InvalidSetting."""
        properties = self.properties
        trust = TrustStoreSettings(
            _store_type(properties, "truststore", "certificates"),
            properties.get("ssl.truststore.location"),
            None
            if _is_pem(properties, "truststore", "certificates")
            else _secret(properties, "ssl.truststore.password"),
            _secret(properties, "ssl.truststore.certificates"),
        )
        key = KeyStoreSettings(
            _store_type(properties, "keystore", "key"),
            properties.get("ssl.keystore.location"),
            None if _is_pem(properties, "keystore", "key") else _secret(properties, "ssl.keystore.password"),
            _secret(properties, "ssl.key.password") if _has_store(properties, "keystore") else None,
            _secret(properties, "ssl.keystore.key"),
            _secret(properties, "ssl.keystore.certificate.chain"),
        )
        token_trust = url_trust_store(self.oauth, read)
        return ClientStores(load_trust_store(trust, read), load_key_store(key, read), token_trust)

    # librdkafka

    def librdkafka(self) -> dict[str, str]:
        """The properties under librdkafka's names, without the contents of Kafka's stores."""
        if self.login is not None and self.login.by_token:
            raise InvalidSetting(f"{JAAS}: tokenauth: librdkafka cannot log in with a delegation token")
        translated = {
            name: value
            for name, value in self.properties.items()
            if name in PEM_TLS or name in LIBRDKAFKA or name == "security.protocol"
        }
        if self.mechanism == OAUTHBEARER and not self.needs_token_callback:
            translated |= _librdkafka_oauth(self.properties, self.oauth)
        if self.mechanism is not None:
            translated["sasl.mechanism"] = self.mechanism
        if self.login is not None:
            translated["sasl.username"] = self.login.username
            translated["sasl.password"] = self.login.password.reveal_text()
        if HOSTNAME_CHECK in self.properties:
            translated[HOSTNAME_CHECK] = "https" if self.checks_names else "none"
        if suites := self.properties.get("ssl.cipher.suites"):
            translated["ssl.cipher.suites"] = ":".join(self._openssl_ciphers(suites))
        if "ssl.key.password" in self.properties and not _has_store(self.properties, "keystore"):
            translated["ssl.key.password"] = self.properties["ssl.key.password"]
        return translated

    @property
    def needs_token_callback(self) -> bool:
        """Whether librdkafka cannot get the token of OAUTHBEARER by itself."""
        url = self.properties.get(TOKEN_URL, "")
        return self.mechanism == OAUTHBEARER and (is_unsecured(self.properties) or url.startswith("file:"))

    def token_login(self, read: ReadFile) -> TokenLogin:
        """Where our own client gets its token. Raises InvalidSetting."""
        return token_login(JAAS, self.properties, self.oauth, read)

    def _openssl_ciphers(self, suites: str) -> list[str]:
        """Translate IANA's names, which Kafka uses. Other names go to OpenSSL unchanged."""
        names = suites.replace(":", ",").split(",")
        iana = tuple(name.strip() for name in names if name.strip().startswith(("TLS_", "SSL_")))
        others = [name.strip() for name in names if name.strip() and name.strip() not in iana]
        return [*TlsSettings(cipher_suites=iana).openssl_ciphers(), *others]

    # Our own client, and kafka-python

    def check_own(self) -> None:
        """InvalidSetting for what neither our own client nor kafka-python can do."""
        if self.mechanism == GSSAPI:
            others = ", ".join(name for name in MECHANISMS if name != GSSAPI)
            raise InvalidSetting(f"sasl.mechanism={GSSAPI}: this command has {others}")
        unusable = sorted(self.properties.keys() & {*LIBRDKAFKA})
        if unusable:
            raise InvalidSetting(f"{', '.join(unusable)}: this command cannot use it; it can use {', '.join(NAMES)}")

    def ssl_context(self, read: ReadFile) -> ssl.SSLContext:
        """Raises InvalidSetting."""
        stores = self.stores(read)
        trust = stores.trust or load_trust_store(self._pem_trust(), read)
        own = TlsSettings(
            enabled_protocols=self._enabled_protocols(),
            cipher_suites=tuple(filter(None, (name.strip() for name in self._iana_suites()))),
            endpoint_identification_algorithm="https" if self.checks_names else "",
        )
        context = ListenerTls(own, stores.key, trust).client_context
        try:
            _load_pem(context, self.properties, read)
        except (OSError, ValueError) as error:
            raise InvalidSetting(f"a certificate or key cannot be read: {_reason(error)}") from None
        if self.properties.get(VERIFICATION, "true").lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _pem_trust(self) -> TrustStoreSettings:
        certificates = _secret(self.properties, "ssl.ca.pem")
        return TrustStoreSettings(PEM, self.properties.get("ssl.ca.location"), certificates=certificates)

    def _iana_suites(self) -> list[str]:
        return self.properties.get("ssl.cipher.suites", "").split(",")

    def _enabled_protocols(self) -> tuple[str, ...]:
        """Older versions than TLS 1.2 stand in many files, and are left out."""
        named = {name.strip() for name in self.properties.get("ssl.enabled.protocols", "").split(",")}
        return tuple(name for name in (TLS_1_2, TLS_1_3) if name in named) or (TLS_1_2, TLS_1_3)


@contextmanager
def librdkafka_stores(stores: ClientStores) -> Iterator[dict[str, str]]:
    """Properties that name memory files with these stores. librdkafka reads them when a client is created.

    What it trusts for tokens is text: it is read whenever a token is fetched.
    """
    with ExitStack() as files:
        paths: dict[str, str] = {}
        if stores.trust is not None:
            paths["ssl.ca.location"] = files.enter_context(memory_file(trust_store_pem(stores.trust)))
        if stores.key is not None:
            path = files.enter_context(memory_file(key_store_pem(stores.key)))
            paths |= {"ssl.certificate.location": path, "ssl.key.location": path}
        if stores.token_trust is not None:
            paths["https.ca.pem"] = trust_store_pem(stores.token_trust).decode()
        yield paths


# Checks


def without_words(error: InvalidSetting) -> str:
    """The text of an error for logs: a word of a JAAS line may be a part of a password."""
    return re.sub(r"'[^']*' in JAAS", "'[hidden]' in JAAS", str(error))


def _problems(properties: Mapping[str, str], protocol: str) -> Iterator[str]:
    unknown = sorted(properties.keys() - _EXISTING)
    if unknown:
        yield f"there is no property {', '.join(f'{name}{nearest(name, _EXISTING)}' for name in unknown)}"
    handler = {LOGIN_HANDLER} if properties.get(LOGIN_HANDLER, LOGIN_HANDLERS[0]) not in LOGIN_HANDLERS else set[str]()
    classes = sorted(properties.keys() & {*JAVA_CLASSES} | handler)
    if classes:
        yield f"{', '.join(classes)}: classes and providers of Java cannot be used here"
    for prefixes, part, others in ((TLS_PREFIXES, "SSL", "SSL or SASL_SSL"), (SASL_PREFIXES, "SASL", "SASL_SSL")):
        idle = sorted(name for name in properties.keys() - {*unknown, *classes} if name.startswith(prefixes))
        if idle and not (protocol.endswith(part) if part == "SSL" else protocol.startswith(part)):
            verb = "has" if len(idle) == 1 else "have"
            yield f"{', '.join(idle)} {verb} no effect with security.protocol={protocol}: set it to {others}"


def _mechanism(properties: Mapping[str, str]) -> str:
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms", "")).upper()
    if not mechanism:
        raise InvalidSetting(f"sasl.mechanism is missing: it is {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}")
    if mechanism not in MECHANISMS:
        raise InvalidSetting(f"sasl.mechanism={mechanism}: it is {', '.join(MECHANISMS[:-1])} or {MECHANISMS[-1]}")
    return mechanism


def _login(properties: Mapping[str, str], mechanism: str) -> tuple[ClientLogin | None, Mapping[str, Secret]]:
    line = properties.get(JAAS)
    if mechanism == GSSAPI:
        if line is not None:
            raise InvalidSetting(f"{JAAS}: of GSSAPI it cannot be used here; librdkafka has sasl.kerberos.*")
        return None, {}
    if line is None:
        if mechanism == OAUTHBEARER:
            return None, {}
        if missing := [name for name in ("sasl.username", "sasl.password") if name not in properties]:
            raise InvalidSetting(f"{JAAS} is missing, or {' and '.join(missing)}: {mechanism} needs a user")
        return ClientLogin(properties["sasl.username"], Secret.of(properties["sasl.password"])), {}
    module = parse_jaas_line(JAAS, Secret.of(line))
    check_mechanism(JAAS, mechanism, module)
    if module.name == OAUTHBEARER_LOGIN_MODULE:
        return None, module.options
    if missing := [name for name in ("username", "password") if name not in module.options]:
        raise InvalidSetting(f"{JAAS}: {' and '.join(missing)} missing: {mechanism} needs a username and a password")
    by_token = "tokenauth" in module.options and module.options["tokenauth"].reveal_text().lower() == "true"
    return ClientLogin(module.options["username"].reveal_text(), module.options["password"], by_token), {}


def _librdkafka_oauth(properties: Mapping[str, str], options: Mapping[str, Secret]) -> dict[str, str]:
    own = {name: value for name, value in properties.items() if name in TOKEN_NAMES and name != LOGIN_HANDLER}
    if not options:
        return own
    names = {"clientId": "client.id", "clientSecret": "client.secret", "scope": "scope"}
    others = ("extension_", "ssl.truststore.")
    unusable = sorted(name for name in options if name not in names and not name.startswith(others))
    if unusable:
        raise InvalidSetting(f"{JAAS}: {', '.join(unusable)}: of OAUTHBEARER only {', '.join(names)} can be used here")
    own = {name: value for name, value in own.items() if OPTIONS.get(name) not in options} | {OIDC: "oidc"}
    if extensions := extensions_of(JAAS, options, is_unsecured=False):
        own[EXTENSIONS] = ",".join(f"{name}={value}" for name, value in extensions.items())
    return own | {
        f"sasl.oauthbearer.{names[name]}": value.reveal_text() for name, value in options.items() if name in names
    }


# Stores


def _has_store(properties: Mapping[str, str], store: str) -> bool:
    return any(name.startswith(f"ssl.{store}.") for name in properties)


def _store_type(properties: Mapping[str, str], store: str, inline: str) -> str:
    """Kafka's default is JKS. A store inside the property itself can only be PEM."""
    default = PEM if f"ssl.{store}.{inline}" in properties else JKS
    return properties.get(f"ssl.{store}.type", default).upper()


def _is_pem(properties: Mapping[str, str], store: str, inline: str) -> bool:
    return _store_type(properties, store, inline) == PEM


def _secret(properties: Mapping[str, str], name: str) -> Secret | None:
    return Secret.of(properties[name]) if name in properties else None


def _load_pem(context: ssl.SSLContext, properties: Mapping[str, str], read: ReadFile) -> None:
    """The key, the certificate and the revocation list, under librdkafka's names."""
    if "ssl.crl.location" in properties:
        with memory_file(read(properties["ssl.crl.location"])) as path:
            context.load_verify_locations(path)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    if (pem := _certificate_pem(properties, read)) is not None:
        with memory_file(pem) as path:
            context.load_cert_chain(path, password=properties.get("ssl.key.password") or "")


def _certificate_pem(properties: Mapping[str, str], read: ReadFile) -> bytes | None:
    """The key, then the certificate with its chain: of two keys, the first one counts."""
    if "ssl.certificate.location" in properties:
        key = properties.get("ssl.key.location")
        return (b"" if key is None else read(key) + b"\n") + read(properties["ssl.certificate.location"])
    if "ssl.certificate.pem" in properties:
        return f"{properties.get('ssl.key.pem', '')}\n{properties['ssl.certificate.pem']}\n".encode()
    return None


def _reason(error: Exception) -> str:
    return str(getattr(error, "reason", None) or getattr(error, "strerror", None) or "no certificate or key")

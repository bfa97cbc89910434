"""The protection of a broker's listeners, built from its settings.

`listener.name.<listener>.<setting>` overrides a setting for one listener. The login module of a mechanism stands in
`listener.name.<listener>.<mechanism>.sasl.jaas.config`, or in the JAAS file of KAFKA_OPTS (`broker/jaas_file.py`).

    a listener that cannot be protected as its settings require stops the start: it is never served with less
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from leadline.api import api_versions_response
from leadline.broker.authentication import ListenerSecurity
from leadline.broker.jaas_file import JaasSections
from leadline.broker.kerberos_logins import KerberosLogins
from leadline.broker.oauth_tokens import OAuthTokens
from leadline.broker.own_login import NewLogin, own_login
from leadline.cluster.broker_login import PeerSecurity
from leadline.config.alter import NotApplicable
from leadline.config.broker import BrokerSettings
from leadline.config.listeners import Listener, SecurityProtocol
from leadline.config.security import CALLBACK_HANDLER, JAAS, LOGIN_HANDLER, SecurityConfig
from leadline.config.values import InvalidSetting, Password
from leadline.runtime.ports import Chance
from leadline.security.gssapi import GSSAPI
from leadline.security.jaas import (
    SERVER_SECTION,
    InvalidJaas,
    LoginModule,
    check_mechanism,
    parse_jaas_line,
    server_login,
)
from leadline.security.key_stores import KeyStoreSettings, ReadFile, TrustStoreSettings
from leadline.security.oauthbearer import OAUTHBEARER
from leadline.security.plain import PLAIN, PlainExchange, plain_users
from leadline.security.principal_mapping import PrincipalMapping, certificate_principal
from leadline.security.sasl_authenticator import SaslListener
from leadline.security.sasl_mechanisms import EnabledMechanisms, SaslExchange
from leadline.security.scram import ScramExchange, ScramUsers, TokenCredential
from leadline.security.scram_credentials import RANDOM_BYTES, SCRAM_MECHANISMS, ScramMechanism, random_text
from leadline.security.scram_users import ScramUserCredentials
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings, client_auth_of
from leadline.security.token_store import TokenStore
from leadline.wire.apis import APIS
from leadline.wire.classes import Message

log = logging.getLogger(__name__)

MAX_REAUTH_MS = "connections.max.reauth.ms"
TOKEN_KEYS = ("delegation.token.secret.key", "delegation.token.master.key")
MECHANISMS = (PLAIN, *SCRAM_MECHANISMS, OAUTHBEARER, GSSAPI)
NO_KEY = Secret(b"")
LOGIN_SHARE = 0.6, 0.8  # of its lifetime, after which this broker repeats a login; a request may wait in a queue then

NewExchange = Callable[[], SaslExchange]
_WITHOUT_KERBEROS = (
    "; GSSAPI is Kerberos, and Kafka's default for sasl.enabled.mechanisms and sasl.mechanism.inter.broker.protocol. "
    "Where there is no Kerberos, set them to SCRAM-SHA-512 for passwords or OAUTHBEARER for tokens of an identity "
    "provider, or use an SSL listener with ssl.client.auth=required for certificates"
)


@dataclass(slots=True)
class Credentials:
    """The credentials that all listeners accept, besides the users of JAAS lines."""

    users: ScramUserCredentials
    oauth: OAuthTokens
    kerberos: KerberosLogins
    chance: Chance
    tokens: TokenStore | None = None  # None: there are no delegation tokens
    decoy_key: Secret = NO_KEY  # known once the cluster is: see `decoy_key`
    sections: JaasSections = field(default_factory=dict)  # of the JAAS file: it counts where a listener has no line

    def of(self, mechanism: ScramMechanism) -> ScramUsers:
        return ScramUsers(
            partial(self.users.credential_of, mechanism),
            partial(self._token, mechanism),
            self.decoy_key,
            partial(self.users.forms_of, mechanism),
        )

    def _token(self, mechanism: ScramMechanism, id: str) -> TokenCredential | None:
        return None if self.tokens is None else self.tokens.credential(id, mechanism)


@dataclass(frozen=True, slots=True)
class ProtectionChange:
    """The protection of listeners under other settings. None of it is in force before `use`."""

    stores: Mapping[str, ListenerTls]  # of listeners that are new, or for which the settings name others than now
    added: Mapping[str, ListenerSecurity] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


class ListenerSecurities:
    """`by_listener` has the listeners that are not PLAINTEXT, by their names.

    `between_brokers` says how this broker reaches the same listeners of others, for those on which brokers do.
    """

    def __init__(self, settings: BrokerSettings, credentials: Credentials, read: ReadFile) -> None:
        """Raises InvalidSetting."""
        self._credentials, self._read = credentials, read
        self._inter_broker = settings.listeners.inter_broker.name
        self._tls: dict[str, ListenerTls] = {}
        self.by_listener: dict[str, ListenerSecurity] = {}
        self.between_brokers: dict[str, PeerSecurity] = {}
        self.use(self.change(settings))
        self.between_brokers = {
            listener.name: self._peer_security(listener, settings) for listener in _used_by_brokers(settings)
        }

    def _load_tls(self, listener: Listener, settings: BrokerSettings) -> ListenerTls:
        is_inter_broker = listener.name == self._inter_broker
        try:
            tls = ListenerTls.load(_tls_settings(listener, settings), self._read, inter_broker=is_inter_broker)
        except InvalidSetting as error:
            raise InvalidSetting(f"listener {listener.name}: {error}") from None
        for note in tls.notes:
            log.warning("listener %s: %s", listener.name, note)
        return tls

    def _security(self, listener: Listener, settings: BrokerSettings, tls: ListenerTls | None) -> ListenerSecurity:
        config = settings.of_listener(listener.name)
        return ListenerSecurity(
            protocol=listener.protocol,
            tls=None if tls is None else tls.server_context,
            principal_of=partial(certificate_principal, mapping=PrincipalMapping(config.ssl_principal_mapping_rules)),
            sasl=_sasl(listener, config, settings, self._credentials) if listener.protocol.sasl else None,
            failure_delay_s=settings.broker.connection_failed_authentication_delay_ms / 1000,
            max_receive_bytes=config.sasl_server_max_receive_size,
            in_thread=self._credentials.kerberos.accepting.run,
        )

    def _peer_security(self, listener: Listener, settings: BrokerSettings) -> PeerSecurity:
        chance, tls = self._credentials.chance, self._tls.get(listener.name)
        return PeerSecurity(
            listener=listener.name,
            tls=None if tls is None else tls.client_context,
            new_login=_new_login(listener.name, settings, self._credentials) if listener.protocol.sasl else None,
            login_share=partial(chance.uniform, *LOGIN_SHARE),
            in_thread=self._credentials.kerberos.initiating.run,
        )

    def check(self, settings: BrokerSettings) -> None:
        """Whether listeners could be protected as these settings say. Raises InvalidSetting; nothing changes."""
        change = self.change(settings)
        try:
            for name, security in self.by_listener.items():
                if security.sasl is not None and name not in change.removed:
                    listener = settings.listeners.named(name)
                    _sasl(listener, settings.of_listener(name), settings, self._credentials)
            for listener in _used_by_brokers(settings):
                if listener.protocol.sasl:
                    _new_login(listener.name, settings, self._credentials)
        except InvalidSetting as error:
            raise NotApplicable(str(error)) from None

    def change(self, settings: BrokerSettings) -> ProtectionChange:
        """How listeners are protected under these settings, where it differs from now. Raises InvalidSetting."""
        self._credentials.oauth.forget_all_but(self.by_listener)  # an earlier change may not have been used
        listeners = [
            listener for listener in settings.listeners.bound if listener.protocol is not SecurityProtocol.PLAINTEXT
        ]
        stores = {}
        for listener in listeners:
            if listener.protocol.tls and (tls := self._changed_stores(listener, settings)) is not None:
                stores[listener.name] = tls
        names = {listener.name for listener in listeners}
        return ProtectionChange(
            stores,
            added={
                listener.name: self._security(listener, settings, stores.get(listener.name))
                for listener in listeners
                if listener.name not in self.by_listener
            },
            removed=tuple(name for name in self.by_listener if name not in names),
        )

    def _changed_stores(self, listener: Listener, settings: BrokerSettings) -> ListenerTls | None:
        """None: they stay."""
        tls, named = self._tls.get(listener.name), _tls_settings(listener, settings)
        if tls is None:
            return self._load_tls(listener, settings)
        return self._reloaded(listener.name, named) if tls.settings != named else None

    def _reloaded(self, name: str, settings: TlsSettings) -> ListenerTls:
        return self._tls[name].reloaded(settings, self._read, inter_broker=name == self._inter_broker)

    def read_again(self) -> None:
        """Reads all files again, since certificates are renewed in place. Raises NotApplicable; nothing changes then.

        A file that is gone changes nothing, as in Kafka.
        """
        present = {name: tls for name, tls in self._tls.items() if all(map(self._is_there, tls.settings.locations))}
        try:
            self.use(ProtectionChange({name: self._reloaded(name, tls.settings) for name, tls in present.items()}))
        except InvalidSetting as error:
            raise NotApplicable(str(error)) from None

    def _is_there(self, location: str) -> bool:
        try:
            self._read(location)
        except FileNotFoundError:
            return False
        except OSError:
            pass  # loading the store reports the reason
        return True

    def use(self, change: ProtectionChange) -> None:
        """New connections get the stores; those that are there keep theirs. Else an open listener stays."""
        self._tls |= change.stores
        self.by_listener |= change.added
        for name in change.removed:
            del self.by_listener[name]
            self._tls.pop(name, None)
        for name, tls in change.stores.items():
            self.by_listener[name].tls = tls.server_context
            if name in self.between_brokers:
                self.between_brokers[name].tls = tls.client_context


def _used_by_brokers(settings: BrokerSettings) -> list[Listener]:
    """The protected listeners on which brokers of a cluster reach each other."""
    if not settings.broker.zookeeper_connect:
        return []
    used = (settings.listeners.inter_broker, settings.listeners.controllers)
    return [listener for listener in dict.fromkeys(used) if listener.protocol is not SecurityProtocol.PLAINTEXT]


# TLS


def _tls_settings(listener: Listener, settings: BrokerSettings) -> TlsSettings:
    config, own = settings.of_listener(listener.name), settings.own_of_listener(listener.name)
    return TlsSettings(
        key_store=KeyStoreSettings(
            config.ssl_keystore_type,
            config.ssl_keystore_location,
            _secret(config.ssl_keystore_password),
            _secret(config.ssl_key_password),
            _secret(config.ssl_keystore_key),
            _secret(config.ssl_keystore_certificate_chain),
        ),
        trust_store=TrustStoreSettings(
            config.ssl_truststore_type,
            config.ssl_truststore_location,
            _secret(config.ssl_truststore_password),
            _secret(config.ssl_truststore_certificates),
        ),
        enabled_protocols=config.ssl_enabled_protocols,
        cipher_suites=config.ssl_cipher_suites,
        client_auth=client_auth_of(listener.protocol.name, settings.broker.ssl_client_auth, own.get("ssl.client.auth")),
        endpoint_identification_algorithm=config.ssl_endpoint_identification_algorithm,
        allow_dn_changes=config.ssl_allow_dn_changes,
        allow_san_changes=config.ssl_allow_san_changes,
    )


def _secret(password: Password | None) -> Secret | None:
    return None if password is None else Secret.of(password.value)


# SASL


def _sasl(
    listener: Listener, config: SecurityConfig, settings: BrokerSettings, credentials: Credentials
) -> SaslListener:
    own = settings.own_of_listener(listener.name)
    exchanges: dict[str, NewExchange] = {}
    max_reauth_ms: dict[str, int] = {}
    for mechanism in config.sasl_enabled_mechanisms:
        if mechanism not in MECHANISMS:
            raise _unsupported(mechanism, listener.name, config)
        module = login_module(listener.name, mechanism, own, credentials.sections)
        handler = f"{mechanism.lower()}.{CALLBACK_HANDLER}"
        handler_setting = f"listener.name.{listener.name.lower()}.{handler}"
        if mechanism == OAUTHBEARER:
            assert module is not None
            exchanges[mechanism] = credentials.oauth.exchanges_of(
                listener.name, config, handler_setting, own.get(handler), module
            )
        elif handler in own:
            raise InvalidSetting(f"{handler_setting}={own[handler]}: only {OAUTHBEARER} takes a handler")
        elif mechanism == GSSAPI:
            assert module is not None
            setting = jaas_setting(listener.name, mechanism)
            exchanges[mechanism] = credentials.kerberos.exchanges_of(config, setting, module)
        else:
            exchanges[mechanism] = _new_exchange(mechanism, module, credentials)
        lifetime = own.get(f"{mechanism.lower()}.{MAX_REAUTH_MS}")
        max_reauth_ms[mechanism] = config.connections_max_reauth_ms if lifetime is None else int(lifetime)
    if not exchanges:
        raise InvalidSetting(f"sasl.enabled.mechanisms=: listener {listener.name} needs at least one")
    return SaslListener(EnabledMechanisms(exchanges), max_reauth_ms, api_versions_response, _error_response)


def _unsupported(mechanism: str, listener: str, config: SecurityConfig) -> InvalidSetting:
    enabled = ",".join(config.sasl_enabled_mechanisms)
    return InvalidSetting(
        f"sasl.enabled.mechanisms={enabled}: not supported on listener {listener}: {mechanism}; "
        f"{', '.join(MECHANISMS)} are"
    )


def login_module(listener: str, mechanism: str, own: Mapping[str, str], sections: JaasSections) -> LoginModule | None:
    """The login module of a mechanism on a listener. None: it has none, and only SCRAM can do without."""
    name, setting = f"{mechanism.lower()}.{JAAS}", jaas_setting(listener, mechanism)
    if name not in own:
        try:
            return server_login(listener, mechanism, sections)
        except InvalidJaas as error:
            if mechanism in SCRAM_MECHANISMS:
                return None
            hint = _WITHOUT_KERBEROS if mechanism == GSSAPI else ""
            raise InvalidSetting(
                f"{setting} is not set: {mechanism} on listener {listener} needs it ({error}){hint}"
            ) from None
    module = parse_jaas_line(setting, Secret.of(own[name]))
    check_mechanism(setting, mechanism, module)
    return module


def jaas_setting(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{JAAS}"


def _new_login(listener: str, settings: BrokerSettings, credentials: Credentials) -> NewLogin:
    """How this broker logs in to the same listener of another broker."""
    mechanism, own = settings.broker.sasl_mechanism_inter_broker_protocol, settings.own_of_listener(listener)
    module, setting = login_module(listener, mechanism, own, credentials.sections), jaas_setting(listener, mechanism)
    handler = own.get(f"{mechanism.lower()}.{LOGIN_HANDLER}")
    if mechanism == OAUTHBEARER:
        assert module is not None
        config = settings.of_listener(listener)
        return credentials.oauth.own_logins(listener, config, setting, handler, module)
    if handler is not None:
        name = f"listener.name.{listener.lower()}.{mechanism.lower()}.{LOGIN_HANDLER}"
        raise InvalidSetting(f"{name}={handler}: only {OAUTHBEARER} takes a handler")
    if mechanism == GSSAPI:
        assert module is not None
        return credentials.kerberos.own_logins(settings.of_listener(listener), setting, module)
    return own_login(setting, mechanism, module, credentials.chance)


def _new_exchange(mechanism: str, module: LoginModule | None, credentials: Credentials) -> NewExchange:
    if mechanism == PLAIN:
        users = plain_users(module.options if module else {})
        return partial(PlainExchange, users.get)
    scram = SCRAM_MECHANISMS[mechanism]
    chance = credentials.chance
    return lambda: ScramExchange(scram, credentials.of(scram), random_text(chance.secret_bytes(RANDOM_BYTES)))


def decoy_key(cluster_id: str, settings: BrokerSettings, sections: JaasSections) -> Secret:
    """The same on all brokers of a cluster, and known to none of its clients: it holds their common secrets."""
    digest = hashlib.sha256(cluster_id.encode())
    for name in sorted(settings.properties):
        if name.endswith(JAAS) or name in TOKEN_KEYS:
            digest.update(settings.properties[name].encode())
    for modules in (sections[name] for name in sorted(sections) if name.endswith(SERVER_SECTION)):
        for option in (option for module in modules for option in sorted(module.options.items())):
            digest.update(option[1].reveal())
    return Secret(digest.digest())


def _error_response(request: Message, version: int, code: int) -> Message | None:
    """The response to a request that does not belong in a login."""
    assert request.API_KEY is not None
    response = APIS[request.API_KEY].response()
    if not hasattr(response, "error_code"):
        return None
    response.error_code = code
    return response

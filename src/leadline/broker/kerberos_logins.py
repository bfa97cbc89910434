"""GSSAPI on the listeners of a broker, and in its own logins to other brokers, as the JAAS line of a listener says.

    com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true keyTab="..." principal="...";

The principal is the service's, kafka/host@REALM. Clients ask the key distribution center for a ticket to it; the key
table holds its key. This broker asks for tickets to other brokers as the same principal, under the name of the service
(sasl.kerberos.service.name, or the option serviceName) on their hosts. The file krb5.conf is libkrb5's own, or that of
-Djava.security.krb5.conf.

    a key table without a key of the principal stops the start
    a key distribution center that is down does not: clients may have tickets already, and own logins are tried again
    what blocks runs in threads of its own: logins of clients never wait for tickets of this broker
"""

from collections.abc import Callable, Mapping
from functools import partial

from leadline.broker.own_login import NewLogin
from leadline.config.java_options import KRB5_CONF
from leadline.config.security import SecurityConfig
from leadline.config.values import InvalidSetting
from leadline.runtime.kerberos import Kerberos, KerberosError
from leadline.runtime.worker_threads import WorkerThreads
from leadline.security.gssapi import GSSAPI, GssapiClient, GssapiExchange
from leadline.security.jaas import LoginModule
from leadline.security.kerberos_names import ShortNames
from leadline.security.key_stores import ReadFile
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator

ACCEPTING_THREADS, INITIATING_THREADS = 2, 4
_SERVICE_NAME = "sasl.kerberos.service.name"


class KerberosLogins:
    """`close()` ends the threads."""

    def __init__(self, kerberos: Kerberos, read: ReadFile, properties: Mapping[str, str]) -> None:
        """`properties`: of Java, from KAFKA_OPTS."""
        self._kerberos, self._read = kerberos, read
        self.accepting = WorkerThreads(ACCEPTING_THREADS, "logins")
        self.initiating = WorkerThreads(INITIATING_THREADS, "own-logins")
        if KRB5_CONF in properties:
            kerberos.use_config(properties[KRB5_CONF])

    def close(self) -> None:
        self.accepting.close()
        self.initiating.close()

    def exchanges_of(self, config: SecurityConfig, setting: str, module: LoginModule) -> Callable[[], GssapiExchange]:
        """A factory for logins on a listener. `setting`: the name of its JAAS line. Raises InvalidSetting."""
        principal, key_table = self._own_key(setting, module)
        _service_name(config, setting, module)
        try:
            new_context = self._kerberos.acceptor(principal, key_table)
        except KerberosError as error:
            raise InvalidSetting(f"{setting}: {error}") from None
        names = ShortNames(config.sasl_kerberos_principal_to_local_rules, self._default_realm())
        return partial(GssapiExchange, new_context, names)

    def own_logins(self, config: SecurityConfig, setting: str, module: LoginModule) -> NewLogin:
        """A factory for logins of this broker. Raises InvalidSetting."""
        principal, key_table = self._own_key(setting, module)
        service = _service_name(config, setting, module)

        def new_login(host: str) -> SaslClientAuthenticator:
            context = self._kerberos.initiator(principal, key_table, service, host)
            return SaslClientAuthenticator(GSSAPI, GssapiClient(context))

        return new_login

    def _own_key(self, setting: str, module: LoginModule) -> tuple[str, str]:
        """Principal and key table."""
        if missing := [name for name in ("useKeyTab", "storeKey") if _option(module, name).lower() != "true"]:
            raise InvalidSetting(f"{setting}: {'=true, '.join(missing)}=true missing: {_NEEDS_KEY}")
        if _option(module, "useTicketCache").lower() == "true":
            raise InvalidSetting(f"{setting}: useTicketCache=true is not supported: {_NEEDS_KEY}")
        if missing := [name for name in ("keyTab", "principal") if not _option(module, name)]:
            raise InvalidSetting(f"{setting}: {' and '.join(missing)} missing: {_NEEDS_KEY}")
        path = _option(module, "keyTab").removeprefix("file:").removeprefix("FILE:")
        try:
            self._read(path)
        except OSError as error:
            raise InvalidSetting(f"{setting}: keyTab={path}: {error.strerror}") from None
        return _option(module, "principal"), path

    def _default_realm(self) -> str:
        try:
            return self._kerberos.default_realm()
        except KerberosError:
            return ""  # as in Kafka: the rule DEFAULT applies to no name then


_NEEDS_KEY = "a broker has the key of its principal in a key table"


def _option(module: LoginModule, name: str) -> str:
    return module.options[name].reveal_text() if name in module.options else ""


def _service_name(config: SecurityConfig, setting: str, module: LoginModule) -> str:
    own, common = _option(module, "serviceName"), config.sasl_kerberos_service_name
    if own and common and own != common:
        raise InvalidSetting(f"{setting}: serviceName={own} is not {_SERVICE_NAME}={common}")
    if not own and not common:
        raise InvalidSetting(f"{_SERVICE_NAME} is not set: {GSSAPI} needs it, or the option serviceName of {setting}")
    return own or common or ""

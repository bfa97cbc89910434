"""Findings about key stores, JAAS lines, and the way to ZooKeeper, from the files that a server.properties names.

It builds what a broker builds when it starts. A file that is not on this machine is a warning.
"""

from collections.abc import Iterator, Mapping

from leadline.broker.jaas_file import jaas_sections
from leadline.broker.kerberos_logins import KerberosLogins
from leadline.broker.listener_security import Credentials, ListenerSecurities
from leadline.broker.oauth_tokens import OAuthTokens
from leadline.broker.zookeeper_access import zookeeper_access
from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.config.broker import BrokerSettings
from leadline.config.java_options import KAFKA_OPTS, system_properties
from leadline.config.values import InvalidSetting
from leadline.runtime.documents import fetch_document
from leadline.runtime.kerberos import LibKerberos
from leadline.runtime.ports import SystemChance, SystemTime
from leadline.security.key_stores import ReadFile
from leadline.security.scram_users import ScramUserCredentials

PROTECTION_CURE = f"Leadline does not start with it; if a JAAS file is part of it, set {KAFKA_OPTS} as for the broker"
CHECK_THERE = "run the check on the broker's machine to have it checked, too"


def judge_protection(
    settings: BrokerSettings, environment: Mapping[str, str], read: ReadFile, where: str
) -> Iterator[MigrationFinding]:
    """`environment`: its KAFKA_OPTS may name a JAAS file."""
    missing: list[str] = []

    def noting_read(path: str) -> bytes:
        try:
            return read(path)
        except FileNotFoundError:
            missing.append(path)
            raise

    for build in (_build_listeners, _build_zookeeper_access):
        missing.clear()
        try:
            build(settings, environment, noting_read)
        except InvalidSetting as error:
            if missing:
                what = f"{missing[0]} is not on this machine, and what depends on it was not checked"
                yield MigrationFinding(Severity.WARNS, Area.SECURITY, what, CHECK_THERE, (where,))
            else:
                yield MigrationFinding(Severity.BLOCKS, Area.SECURITY, str(error), PROTECTION_CURE, (where,))


def _build_listeners(settings: BrokerSettings, environment: Mapping[str, str], read: ReadFile) -> None:
    properties = system_properties(environment)
    sections, kerberos = jaas_sections(properties, read), KerberosLogins(LibKerberos(), read, properties)
    oauth = OAuthTokens(fetch_document, read, SystemTime(), chance := SystemChance())
    ListenerSecurities(settings, Credentials(ScramUserCredentials(), oauth, kerberos, chance, sections=sections), read)


def _build_zookeeper_access(settings: BrokerSettings, environment: Mapping[str, str], read: ReadFile) -> None:
    zookeeper_access(settings.broker, system_properties(environment), read, SystemChance().secret_bytes)

"""Findings about the mechanisms by which clients and brokers log in.

Pure: values in, values out.
"""

from collections.abc import Iterator

from leadline.broker.listener_security import MECHANISMS
from leadline.broker.own_login import OWN_MECHANISMS
from leadline.cli.migrate.finding import Area, MigrationFinding, Severity
from leadline.config.broker import BrokerSettings
from leadline.runtime.kerberos import INSTALL
from leadline.security.gssapi import GSSAPI


def judge_mechanisms(settings: BrokerSettings, where: str) -> Iterator[MigrationFinding]:
    for listener in settings.listeners.bound:
        enabled = settings.of_listener(listener.name).sasl_enabled_mechanisms if listener.protocol.sasl else ()
        for mechanism in enabled:
            what = f"listener {listener.name} offers {mechanism}"
            if mechanism not in MECHANISMS:
                yield _lacking(what, mechanism, MECHANISMS, where)
            elif mechanism == GSSAPI:
                cure = f"Leadline needs an extra: {INSTALL}"
                yield MigrationFinding(Severity.NOTES, Area.SECURITY, what, cure, (where,))
    between = settings.broker.sasl_mechanism_inter_broker_protocol
    if settings.listeners.inter_broker.protocol.sasl and between not in OWN_MECHANISMS:
        yield _lacking(f"brokers log in to each other by {between}", between, OWN_MECHANISMS, where)


def _lacking(what: str, mechanism: str, supported: tuple[str, ...], where: str) -> MigrationFinding:
    cure = f"offer one of {', '.join(supported)} on all brokers, use it everywhere, and then remove {mechanism}"
    return MigrationFinding(Severity.BLOCKS, Area.SECURITY, what, cure, (where,))

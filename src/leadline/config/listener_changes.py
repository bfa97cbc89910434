"""Listeners that change while a broker runs: which changes are allowed, and what they open and close.

    a listener that stays keeps its address, its security protocol and its own settings, except stores and limits
    the inter-broker listener and that of the control plane stay (`listeners`, `crosschecks`)
    the advertised address of any listener may change

In all but the address the rules are Kafka's. Kafka accepts another address for a listener that stays, and advertises
it, but listens on the old one until it is restarted.

Pure: settings in, changes out.
"""

from typing import NamedTuple

from leadline.config.broker import BrokerSettings
from leadline.config.listeners import Listener, Listeners
from leadline.config.values import InvalidSetting

LISTENER_SETTINGS = ("listeners", "advertised.listeners", "listener.security.protocol.map")

# The settings of one listener that may change while it is open.
STORE_SETTINGS = frozenset(
    f"ssl.{name}"
    for name in """
        keystore.type keystore.location keystore.password key.password keystore.key keystore.certificate.chain
        truststore.type truststore.location truststore.password truststore.certificates
    """.split()
)
LIMIT_SETTINGS = frozenset(("max.connections", "max.connection.creation.rate", "num.network.threads"))


class ListenerChanges(NamedTuple):
    closed: tuple[Listener, ...] = ()
    opened: tuple[Listener, ...] = ()
    are_others_advertised: bool = False


def listener_changes(before: Listeners, after: Listeners) -> ListenerChanges:
    old, new = ({listener.name for listener in listeners.bound} for listeners in (before, after))
    return ListenerChanges(
        closed=tuple(listener for listener in before.bound if listener.name not in new),
        opened=tuple(listener for listener in after.bound if listener.name not in old),
        are_others_advertised=set(before.advertised) != set(after.advertised),
    )


def check_listener_changes(before: BrokerSettings, after: BrokerSettings) -> None:
    """`before`: the settings in force. A setting of a listener may change by itself: the next start obeys it."""
    if all(before.properties.get(name) == after.properties.get(name) for name in LISTENER_SETTINGS):
        return
    old = {listener.name: listener for listener in before.listeners.bound}
    for listener in after.listeners.bound:
        if listener.name in old:
            _check_kept(old[listener.name], listener)
            _check_own_settings(listener.name, before, after)


def _check_kept(old: Listener, new: Listener) -> None:
    if old.protocol is not new.protocol:
        raise InvalidSetting(
            f"listener.security.protocol.map: the protocol of listener {old.name} cannot change from "
            f"{old.protocol.name} to {new.protocol.name} while it is open"
        )
    if old != new:
        raise InvalidSetting(
            f"listeners: the address of {old} cannot change to {new} while it is open: remove the listener first, or "
            "add another one"
        )


def _check_own_settings(listener: str, before: BrokerSettings, after: BrokerSettings) -> None:
    old, new = before.own_of_listener(listener), after.own_of_listener(listener)
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if fixed := sorted(changed - STORE_SETTINGS - LIMIT_SETTINGS):
        raise InvalidSetting(
            f"listener.name.{listener.lower()}.{fixed[0]}: cannot change together with listeners while listener "
            f"{listener} is open: restart the broker, or add another listener"
        )

"""The authorizer of this broker, built from its settings, and warnings about listeners that are left open.

A broker with an authorizer has read all ACLs before its first listener accepts a connection, and follows them from then
on. One without an authorizer allows everything.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address

from leadline.cluster.metadata_cache import Endpoint
from leadline.config.authorizer import AuthorizerConfig
from leadline.config.broker import BrokerSettings
from leadline.config.listeners import Listener, SecurityProtocol
from leadline.coordination.tree import Tree
from leadline.runtime.periodic import every
from leadline.runtime.ports import Chance, Time
from leadline.security.acl_store import AclStore
from leadline.security.audit import AuditLog
from leadline.security.authorizer import Authorizer
from leadline.security.plain import PLAIN
from leadline.security.principal import ANONYMOUS, Principal, parse_super_users
from leadline.security.tls import client_auth_of

COUNTS_MS = 10_000  # between two looks for denials that were counted and not logged


def super_users_of(config: AuthorizerConfig) -> frozenset[Principal]:
    """InvalidSetting if it is not a list of principals. Without an authorizer it is not checked."""
    return parse_super_users(config.super_users) if config.authorizer_class_name else frozenset()


def acl_store(config: AuthorizerConfig, tree: Tree, clock: Time, chance: Chance) -> AclStore | None:
    """None without an authorizer."""
    if not config.authorizer_class_name:
        return None
    authorizer = Authorizer(super_users_of(config), config.allow_everyone_if_no_acl_found)
    return AclStore(tree, authorizer, clock, chance)


async def start_following(acls: AclStore, audit: AuditLog, clock: Time, stack: AsyncExitStack) -> None:
    """Read all ACLs, and follow their changes until the stack is closed."""
    stack.push_async_callback(acls.stop)
    await acls.start()

    async def log_counts() -> None:
        audit.flush_counts(clock.now_ms())

    counting = asyncio.create_task(every(COUNTS_MS, log_counts), name="counts of denials")

    async def stop() -> None:
        counting.cancel()
        with suppress(asyncio.CancelledError):
            await counting

    stack.push_async_callback(stop)


def security_warnings(
    settings: BrokerSettings, authorizer: Authorizer | None, addresses: Mapping[str, Endpoint]
) -> Iterator[str]:
    """Warnings about listeners that are more open than their operator may expect: one sentence each."""
    for listener in settings.listeners.bound:
        host = addresses[listener.name].host
        if not _is_loopback(host):
            yield from _listener_warnings(settings, listener, host, authorizer)
    if authorizer is None:
        return
    config = settings.broker
    if ANONYMOUS in super_users_of(config):
        for listener in settings.listeners.bound:
            if _admits_anonymous(settings, listener):
                yield (
                    f"super.users has {ANONYMOUS}, and listener {listener.name} requires no login: anyone who can "
                    "reach it may do everything"
                )
    if config.allow_everyone_if_no_acl_found and not authorizer.patterns():
        yield "allow.everyone.if.no.acl.found=true, and there are no ACLs: every client may do everything"


def _listener_warnings(
    settings: BrokerSettings, listener: Listener, host: str, authorizer: Authorizer | None
) -> Iterator[str]:
    """The warnings about a listener that other machines reach."""
    mechanisms = settings.of_listener(listener.name).sasl_enabled_mechanisms
    if listener.protocol is SecurityProtocol.SASL_PLAINTEXT and PLAIN in mechanisms:
        yield (
            f"listener {listener.name} takes passwords without TLS from other machines ({host}): anyone who sees the "
            "traffic can read them; use SASL_SSL, or SCRAM instead of PLAIN"
        )
    if authorizer is None:
        yield (
            f"there is no authorizer, and listener {listener.name} is open to other machines ({host}): anyone who can "
            "reach it may do everything; set authorizer.class.name"
        )


def _admits_anonymous(settings: BrokerSettings, listener: Listener) -> bool:
    """Whether it serves clients that have neither logged in nor shown a certificate."""
    if listener.protocol is SecurityProtocol.SSL:
        own = settings.own_of_listener(listener.name).get("ssl.client.auth")
        return client_auth_of(listener.protocol.name, settings.broker.ssl_client_auth, own) != "required"
    return listener.protocol is SecurityProtocol.PLAINTEXT


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False

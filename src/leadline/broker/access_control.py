"""Who may do what on this broker: its authorizer, as the settings say, and the doors that they leave open.

A broker with an authorizer has read all ACLs before its first listener accepts a connection, and follows them from then
on. One without an authorizer allows everything.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address

from leadline.cluster.metadata_cache import Endpoint
from leadline.config.authorizer import AuthorizerConfig
from leadline.config.listeners import Listener, SecurityProtocol
from leadline.coordination.tree import Tree
from leadline.runtime.periodic import every
from leadline.runtime.ports import Chance, Time
from leadline.security.acl_store import AclStore
from leadline.security.audit import AuditLog
from leadline.security.authorizer import Authorizer
from leadline.security.principal import ANONYMOUS, Principal, parse_super_users

COUNTS_MS = 10_000  # between two looks for denials that were counted and not logged


def super_users_of(config: AuthorizerConfig) -> frozenset[Principal]:
    """InvalidSetting for what is no list of principals. Without an authorizer nobody looks at it."""
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


def open_doors(
    config: AuthorizerConfig,
    authorizer: Authorizer | None,
    bound: tuple[Listener, ...],
    addresses: Mapping[str, Endpoint],
) -> Iterator[str]:
    """What somebody should know who starts this broker: one sentence each."""
    if authorizer is None:
        for listener in bound:
            host = addresses[listener.name].host
            if not _is_loopback(host):
                yield (
                    f"there is no authorizer, and listener {listener.name} is open to other machines ({host}): whoever "
                    "reaches it may do everything; set authorizer.class.name"
                )
        return
    if ANONYMOUS in super_users_of(config):
        for listener in bound:
            if listener.protocol is SecurityProtocol.PLAINTEXT:
                yield (
                    f"super.users has {ANONYMOUS}, and listener {listener.name} asks nobody who they are: whoever "
                    "reaches it may do everything"
                )
    if config.allow_everyone_if_no_acl_found and not authorizer.patterns():
        yield "allow.everyone.if.no.acl.found=true, and there are no ACLs: everybody may do everything"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False

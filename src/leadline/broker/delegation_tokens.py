"""The delegation tokens of this broker, as its settings say, and the end of those that have expired.

A broker without `delegation.token.secret.key` has none. One with it has read all tokens before it serves a request.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

from leadline.config.delegation_tokens import DelegationTokenConfig
from leadline.coordination.tree import Tree, TreeError
from leadline.runtime.periodic import every
from leadline.runtime.ports import Chance, Time
from leadline.security.delegation_tokens import TokenLifetimes
from leadline.security.secret import Secret
from leadline.security.token_store import TokenStore

log = logging.getLogger(__name__)


def token_store(config: DelegationTokenConfig, tree: Tree, clock: Time, chance: Chance) -> TokenStore | None:
    """None without a secret."""
    key = config.delegation_token_secret_key or config.delegation_token_master_key
    if key is None or not key.value:
        return None
    lifetimes = TokenLifetimes(config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms)
    return TokenStore(tree, Secret.of(key.value), lifetimes, clock, chance)


async def start_following_tokens(
    tokens: TokenStore, is_controller: Callable[[], bool], check_interval_ms: int, stack: AsyncExitStack
) -> None:
    """Read all tokens, and follow their changes until the stack is closed. The controller deletes the expired ones."""
    stack.push_async_callback(tokens.stop)
    await tokens.start()

    async def delete_expired() -> None:
        if is_controller():
            try:
                await tokens.delete_expired()
            except TreeError as error:
                log.warning("expired delegation tokens are not deleted this time: %s", error)

    expiring = asyncio.create_task(every(check_interval_ms, delete_expired), name="expired delegation tokens")

    async def stop() -> None:
        expiring.cancel()
        with suppress(asyncio.CancelledError):
            await expiring

    stack.push_async_callback(stop)

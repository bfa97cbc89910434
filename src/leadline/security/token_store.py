"""Delegation tokens in the tree, and the cache that follows them.

A token is created, renewed or expired on any broker: its node is written together with a notification, in one
transaction, and this broker's cache has it when the call returns. Others read the node again when they see the
notification; if it is gone, the token is. The controller deletes those that have expired, now and then.

Kafka derives SCRAM credentials for each token that it loads, which takes milliseconds of CPU. Here they are derived
when a token first logs in.
    an expired token is refused, deleted or not
    a node that cannot be read is logged, and the token that was known stays
"""

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress

from leadline.coordination.change_notifications import ChangeNotifications
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import (
    ANY_VERSION,
    BadVersion,
    ConnectionLost,
    Create,
    Delete,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Tree,
    TreeError,
    check_path,
)
from leadline.coordination.unannounced_changes import UnannouncedChanges
from leadline.errors import DelegationTokenNotFound, UnknownServerError
from leadline.model import format_id
from leadline.runtime.ports import Chance, Time
from leadline.security import delegation_tokens
from leadline.security.delegation_tokens import DelegationToken, TokenCache, TokenLifetimes
from leadline.security.principal import Principal
from leadline.security.scram import TokenCredential
from leadline.security.scram_credentials import (
    RANDOM_BYTES,
    ScramCredential,
    ScramMechanism,
    credential_of_password,
    random_text,
)
from leadline.security.secret import Secret

log = logging.getLogger(__name__)

READ_AT_ONCE = 100  # nodes
MOST_TRIES = 10


class TokenStore:
    """`await start()`, and in the end `await stop()`. Only where `delegation.token.secret.key` is set."""

    def __init__(self, tree: Tree, key: Secret, lifetimes: TokenLifetimes, clock: Time, chance: Chance) -> None:
        self.cache = TokenCache(key)
        self._tree, self._lifetimes, self._clock, self._chance = tree, lifetimes, clock, chance
        self._writing = asyncio.Lock()
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}
        self._unannounced = UnannouncedChanges(tree, self._listed, self._changed)
        self._notifications = ChangeNotifications(
            tree, delegation_tokens.CHANGES, self._notified, self._load, clock, self._unannounced
        )

    async def start(self) -> None:
        for path in delegation_tokens.PERSISTENT:
            while not await self._tree.exists(path):
                with suppress(NodeExists, ConnectionLost):  # another broker was quicker, or it may be done
                    await self._tree.create(path, make_parents=True)
        await self._notifications.start()
        await self._load()

    async def stop(self) -> None:
        await self._notifications.stop()

    # Requests

    async def create(
        self, owner: Principal, requester: Principal, renewers: Iterable[Principal], max_lifetime_ms: int
    ) -> DelegationToken:
        id = format_id(self._chance.new_uuid())
        now_ms = self._clock.now_ms()
        token = delegation_tokens.new_token(id, owner, requester, renewers, max_lifetime_ms, self._lifetimes, now_ms)
        async with self._writing:
            try:
                data = delegation_tokens.encode_token(token)
                await self._write(token, Create(delegation_tokens.token_path(id), data))
            except TreeError as error:
                raise UnknownServerError(f"failed to create a delegation token: {error}") from error
        return token

    async def renew(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        """When it expires from now on. Raises WireError."""

        def change(token: DelegationToken, now_ms: int) -> DelegationToken:
            return delegation_tokens.renewed(token, principal, period_ms, self._lifetimes, now_ms)

        return await self._alter(hmac, change)

    async def expire(self, principal: Principal, hmac: bytes, period_ms: int) -> int:
        """When it expires from now on. Raises WireError."""

        def change(token: DelegationToken, now_ms: int) -> DelegationToken | None:
            return delegation_tokens.expired(token, principal, period_ms, now_ms)

        return await self._alter(hmac, change)

    async def delete_expired(self) -> None:
        """Deletes expired tokens. The controller does it every delegation.token.expiry.check.interval.ms."""
        async with self._writing:
            for token in self.cache.tokens():
                if token.is_expired(self._clock.now_ms()):
                    with suppress(NoNode):  # its owner was quicker; the notification is on its way
                        await self._delete(token.id)
                    log.info("delegation token %s of %s has expired", token.id, token.owner)

    def credential(self, id: str, mechanism: ScramMechanism) -> TokenCredential | None:
        """The credential for a login by this token; None if there is no such token, or it has expired."""
        token = self.cache.get(id)
        if token is None or token.is_expired(self._clock.now_ms()):
            return None
        credential = self._credentials.get((id, mechanism))
        if credential is None:
            password = Secret(base64.b64encode(self.cache.hmac(id).reveal()))
            salt = random_text(self._chance.secret_bytes(RANDOM_BYTES)).encode()
            credential = credential_of_password(mechanism, password, salt)
            self._credentials[id, mechanism] = credential
        return TokenCredential(token.owner, credential, token.expiry_ms)

    # The tree

    async def _alter(self, hmac: bytes, change: Callable[[DelegationToken, int], DelegationToken | None]) -> int:
        """Decided by what the node holds, and written on condition that it still does."""
        id = self.cache.by_hmac(hmac).id
        path, now_ms = delegation_tokens.token_path(id), self._clock.now_ms()
        async with self._writing:
            try:
                for _ in range(MOST_TRIES):
                    with suppress(BadVersion, NoNode):  # another was quicker: look again
                        return await self._try_to_alter(id, path, change, now_ms)
            except (TreeError, MalformedNode) as error:
                raise UnknownServerError(f"failed to change the delegation token {id}: {error}") from error
        raise UnknownServerError(f"others changed the delegation token {id} {MOST_TRIES} times in between")

    async def _try_to_alter(
        self, id: str, path: str, change: Callable[[DelegationToken, int], DelegationToken | None], now_ms: int
    ) -> int:
        node = await self._tree.get(path)
        token = None if node is None else delegation_tokens.decode_token(path, node.data)
        if node is None or token is None:
            self._drop(id)
            raise DelegationTokenNotFound("Delegation Token is not found on server.")
        changed = change(token, now_ms)
        if changed is None:
            await self._delete(id, node.version)
            return now_ms
        await self._write(changed, SetData(path, delegation_tokens.encode_token(changed), node.version))
        return changed.expiry_ms

    async def _write(self, token: DelegationToken, operation: Operation) -> None:
        await self._tree.multi([operation, _announcement(token.id)])
        self.cache.put(token)

    async def _delete(self, id: str, version: int = ANY_VERSION) -> None:
        await self._tree.multi([Delete(delegation_tokens.token_path(id), version), _announcement(id)])
        self._drop(id)

    async def _notified(self, path: str, data: bytes) -> None:
        await self._read(data.decode("utf-8", "replace"))

    async def _listed(self) -> AsyncIterator[str]:
        for id in await self._tree.children(delegation_tokens.TOKENS) or []:
            yield delegation_tokens.token_path(id)

    async def _changed(self, path: str) -> None:
        await self._read(path.removeprefix(f"{delegation_tokens.TOKENS}/"))

    async def _load(self) -> None:
        """All that the tree has, and all that are known: the one may lack what the other has."""
        stored = await self._tree.children(delegation_tokens.TOKENS) or []
        ids = list(dict.fromkeys((*stored, *(token.id for token in self.cache.tokens()))))
        for start in range(0, len(ids), READ_AT_ONCE):
            await asyncio.gather(*map(self._read, ids[start : start + READ_AT_ONCE]))

    async def _read(self, id: str) -> None:
        path = delegation_tokens.token_path(id)
        try:
            check_path(path)
            node = await self._unannounced.get(path)
            token = None if node is None else delegation_tokens.decode_token(path, node.data)
        except (MalformedNode, ValueError) as error:
            log.error("ignoring an unreadable token: %s", error)
            return
        if token is None or token.id != id:
            self._drop(id)
        else:
            self.cache.put(token)

    def _drop(self, id: str) -> None:
        self.cache.remove(id)
        for mechanism in ScramMechanism:
            self._credentials.pop((id, mechanism), None)


def _announcement(id: str) -> Create:
    return Create(delegation_tokens.CHANGE, id.encode(), sequential=True)

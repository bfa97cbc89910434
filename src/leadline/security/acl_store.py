"""ACLs in the tree, and the authorizer that follows them.

Each pattern's ACLs are one node (`acl_nodes`). A change is written on condition of the node's version, together with
its notification, in one transaction; the authorizer has it when the call returns. Other brokers read the node again
when they see the notification.

    what the tree has and what is in force differ only until the next notification is seen, or the next check of a node
    a node that cannot be read stops the start, as it stops Kafka's; later on, the ACLs that were in force stay

If another broker wrote first, the change is applied again on top of its version.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from leadline.coordination.change_notifications import ChangeNotifications
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import (
    BadVersion,
    Check,
    ConnectionLost,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    Operation,
    SetData,
    Tree,
    TreeError,
)
from leadline.coordination.unannounced_changes import UnannouncedChanges
from leadline.errors import UnknownServerError, WireError
from leadline.runtime.ports import Chance, Time
from leadline.security import acl_nodes
from leadline.security.acls import (
    PATTERN_TYPES,
    RESOURCE_TYPES,
    AccessControlEntry,
    AclBinding,
    AclBindingFilter,
    PatternType,
    ResourcePattern,
    check_creation,
)
from leadline.security.authorizer import Authorizer

log = logging.getLogger(__name__)

MOST_RETRIES = 10
RETRY_MS, RETRY_JITTER_MS = 100, 50
READ_AT_ONCE = 100  # nodes

Entries = tuple[AccessControlEntry, ...]
Creation = WireError | None  # why an ACL was not created; None: it was
Deletion = tuple[AclBinding, WireError | None]


class AclStore:
    """`await start()`, and in the end `await stop()`. In between, the authorizer follows the tree."""

    def __init__(self, tree: Tree, authorizer: Authorizer, clock: Time, chance: Chance) -> None:
        self.authorizer = authorizer
        self._tree, self._chance = tree, chance
        self._writing = asyncio.Lock()
        self._unannounced = {
            kind: UnannouncedChanges(tree, partial(self._listed, kind), self._node_changed) for kind in PATTERN_TYPES
        }
        self._notifications = [
            ChangeNotifications(
                tree, acl_nodes.CHANGES[kind], self._notified, self._load_again, clock, self._unannounced[kind]
            )
            for kind in PATTERN_TYPES
        ]

    async def start(self) -> None:
        """Raises TreeError, and MalformedNode for ACLs that cannot be read: they might deny something."""
        for path in acl_nodes.PERSISTENT:
            while not await self._tree.exists(path):
                with suppress(NodeExists, ConnectionLost):  # another broker was quicker, or it may be done
                    await self._tree.create(path, make_parents=True)
        for notifications in self._notifications:
            await notifications.start()
        await self._load(self._read)

    async def stop(self) -> None:
        for notifications in self._notifications:
            await notifications.stop()

    # Requests

    async def create(self, bindings: Sequence[AclBinding]) -> list[Creation]:
        """One result for each. Those of one pattern are created together or not at all."""
        results: list[Creation] = [None] * len(bindings)
        places: dict[ResourcePattern, list[int]] = defaultdict(list)
        for place, binding in enumerate(bindings):
            try:
                check_creation(binding)
            except UnknownServerError:
                pass  # Kafka notices it late: with all others of the pattern
            except WireError as error:
                results[place] = error
                continue
            places[binding.pattern].append(place)
        async with self._writing:
            for pattern, of_pattern in places.items():
                result = await self._create(pattern, [bindings[place] for place in of_pattern])
                for place in of_pattern:
                    results[place] = result
        return results

    async def _create(self, pattern: ResourcePattern, bindings: list[AclBinding]) -> Creation:
        try:
            for binding in bindings:
                check_creation(binding)
            added = [binding.entry for binding in bindings]
            await self._update(pattern, lambda entries: tuple(dict.fromkeys((*entries, *added))))
        except WireError as error:
            return error
        return None

    async def delete(self, filters: Sequence[AclBindingFilter]) -> list[list[Deletion]]:
        """For each filter its deleted bindings, or the error. The first filter that matches a binding reports it."""
        results: list[list[Deletion]] = [[] for _ in filters]
        async with self._writing:
            for pattern in self._patterns_of(filters):
                matching = {place: filter for place, filter in enumerate(filters) if filter.pattern.matches(pattern)}
                if matching:
                    for place, deletion in await self._delete(pattern, matching):
                        results[place].append(deletion)
        return results

    def _patterns_of(self, filters: Sequence[AclBindingFilter]) -> list[ResourcePattern]:
        """The patterns with ACLs here, and those that the filters name: another broker may just have created them."""
        definite = [filter.pattern.definite_patterns() for filter in filters]
        named = [pattern for patterns in definite for pattern in patterns if _is_node_name(pattern.name)]
        return list(dict.fromkeys(named if all(definite) else (*self.authorizer.patterns(), *named)))

    async def _delete(
        self, pattern: ResourcePattern, filters: dict[int, AclBindingFilter]
    ) -> list[tuple[int, Deletion]]:
        first_match: dict[AccessControlEntry, int] = {}

        def left(entries: Entries) -> Entries:
            first_match.clear()
            for entry in entries:
                for place, filter in filters.items():
                    if filter.entry.matches(entry):
                        first_match.setdefault(entry, place)
            return tuple(entry for entry in entries if entry not in first_match)

        failure: WireError | None = None
        try:
            await self._update(pattern, left)
        except WireError as error:
            failure = error
        return [(place, (AclBinding(pattern, entry), failure)) for entry, place in first_match.items()]

    # The tree

    async def _update(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> None:
        """Raises WireError. What did not change is not written, but checked: it may be out of date."""
        path = acl_nodes.acl_path(pattern)
        try:
            for _ in range(MOST_RETRIES + 1):
                node = await self._tree.get(path)
                before = _entries(path, node)
                after = change(before)
                with suppress(BadVersion, NodeExists, NoNode):
                    await self._write(pattern, path, node, before, after)
                    self.authorizer.put(pattern, after)
                    return
                await asyncio.sleep((RETRY_MS + self._chance.uniform(0, RETRY_JITTER_MS)) / 1000)
        except (TreeError, MalformedNode, ValueError) as error:
            raise UnknownServerError(f"failed to update the ACLs of {pattern}: {error}") from error
        raise UnknownServerError(f"Failed to update ACLs for {pattern} after trying a maximum of {MOST_RETRIES} times")

    async def _write(
        self, pattern: ResourcePattern, path: str, node: Node | None, before: Entries, after: Entries
    ) -> None:
        if frozenset(before) == frozenset(after):
            if node is not None:
                await self._tree.multi([Check(path, node.version)])
            return
        change: Operation
        if node is None:
            change = Create(path, acl_nodes.encode_acls(after))
        elif after:
            change = SetData(path, acl_nodes.encode_acls(after), node.version)
        else:
            change = Delete(path, node.version)
        notification = Create(acl_nodes.change_path(pattern), acl_nodes.encode_change(pattern), sequential=True)
        await self._tree.multi([change, notification])

    async def _notified(self, path: str, data: bytes) -> None:
        await self._read_again(acl_nodes.decode_change(path, data))

    async def _load_again(self) -> None:
        await self._load(self._read_again)

    async def _load(self, read: Callable[[ResourcePattern], Awaitable[None]]) -> None:
        """All that the tree has, and all that is in force: the one may lack what the other has."""
        stored = [pattern for kind in PATTERN_TYPES async for pattern in self._stored(kind)]
        patterns = list(dict.fromkeys((*stored, *self.authorizer.patterns())))
        for start in range(0, len(patterns), READ_AT_ONCE):
            await asyncio.gather(*map(read, patterns[start : start + READ_AT_ONCE]))

    async def _stored(self, kind: PatternType) -> AsyncIterator[ResourcePattern]:
        for resource_type in RESOURCE_TYPES:
            for name in await self._tree.children(acl_nodes.type_path(resource_type, kind)) or []:
                yield ResourcePattern(resource_type, name, kind)

    async def _listed(self, kind: PatternType) -> AsyncIterator[str]:
        async for pattern in self._stored(kind):
            yield acl_nodes.acl_path(pattern)

    async def _node_changed(self, path: str) -> None:
        await self._read_again(acl_nodes.pattern_of(path))

    async def _read(self, pattern: ResourcePattern) -> None:
        path = acl_nodes.acl_path(pattern)
        self.authorizer.put(pattern, _entries(path, await self._unannounced[pattern.pattern_type].get(path)))

    async def _read_again(self, pattern: ResourcePattern) -> None:
        try:
            await self._read(pattern)
        except MalformedNode as error:
            log.error("the ACLs of %s cannot be read; the previous ones stay in force: %s", pattern, error)


def _entries(path: str, node: Node | None) -> Entries:
    return acl_nodes.decode_acls(path, node.data) if node is not None else ()


def _is_node_name(name: str) -> bool:
    return bool(name) and "/" not in name

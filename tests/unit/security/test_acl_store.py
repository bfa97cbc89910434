"""ACLs in the tree: written, announced, and followed by the authorizers of all brokers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from leadline.coordination.change_notifications import KEPT_MS
from leadline.coordination.node_json import MalformedNode
from leadline.coordination.tree import (
    ConnectionLost,
    Create,
    Delete,
    Event,
    Node,
    Operation,
    Outcome,
    SessionState,
    Tree,
    TreeWatch,
)
from leadline.errors import InvalidRequest, UnknownServerError
from leadline.runtime.ports import SystemTime
from leadline.security import acl_nodes
from leadline.security.acl_store import AclStore
from leadline.security.acls import (
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal
from tests.support.ahead_clock import AheadClock
from tests.support.chance import SeededChance
from tests.support.waiting import eventually
from tests.unit.coordination.conftest import Run

TOPIC = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
READ = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermission.ALLOW)
WRITE = READ._replace(operation=AclOperation.WRITE)
DENIED = READ._replace(permission=AclPermission.DENY, host="127.0.0.9")
ALICE = Principal("User", "alice")
BOUND_S = 60
EVERYTHING = AclBindingFilter()


def a_store(tree: Tree, clock: SystemTime | None = None) -> AclStore:
    return AclStore(tree, Authorizer(), clock or SystemTime(), SeededChance())


@asynccontextmanager
async def started(*stores: AclStore) -> AsyncIterator[tuple[AclStore, ...]]:
    async with asyncio.timeout(BOUND_S):
        for store in stores:
            await store.start()
        yield stores
        for store in stores:
            await store.stop()


def bind(pattern: ResourcePattern, *entries: AccessControlEntry) -> list[AclBinding]:
    return [AclBinding(pattern, entry) for entry in entries]


def of(pattern: ResourcePattern, entry: AccessControlEntryFilter = AccessControlEntryFilter()) -> AclBindingFilter:  # noqa: B008
    return AclBindingFilter(ResourcePatternFilter(*pattern), entry)


async def data_of(tree: Tree, pattern: ResourcePattern) -> bytes | None:
    node = await tree.get(acl_nodes.acl_path(pattern))
    return None if node is None else node.data


async def notifications(tree: Tree) -> list[bytes]:
    contents = []
    for path in acl_nodes.CHANGES.values():
        for name in await tree.children(path) or []:
            node = await tree.get(f"{path}/{name}")
            assert node is not None
            contents.append(node.data)
    return contents


def test_a_store_creates_the_parents_of_all_types(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)):
            assert all([await tree.exists(path) for path in acl_nodes.PERSISTENT])

    run(scenario())


def test_an_acl_is_in_force_when_its_creation_returns_and_on_others_soon(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree), a_store(tree)) as (one, other):
            assert await one.create([*bind(TOPIC, READ), *bind(PREFIX, WRITE)]) == [None, None]
            assert one.authorizer.entries(TOPIC) == (READ,)
            assert await data_of(tree, TOPIC) == acl_nodes.encode_acls([READ])
            assert await notifications(tree) == [b"TOPIC:orders", acl_nodes.encode_change(PREFIX)]
            await eventually(
                lambda: (other.authorizer.entries(TOPIC), other.authorizer.entries(PREFIX)) == ((READ,), (WRITE,))
            )

    run(scenario())


def test_a_store_that_starts_loads_all_there_are(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        many = [AclBinding(ResourcePattern(ResourceType.GROUP, f"g{n}"), READ) for n in range(250)]
        async with started(a_store(tree)) as (one,):
            await one.create([*bind(TOPIC, READ, DENIED), *bind(PREFIX, WRITE), *many])
        async with started(a_store(tree)) as (again,):
            assert sorted(again.authorizer.bindings(EVERYTHING)) == sorted(one.authorizer.bindings(EVERYTHING))
            assert len(again.authorizer.bindings(EVERYTHING)) == 253

    run(scenario())


def test_creating_what_exists_succeeds_and_announces_nothing(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            await one.create(bind(TOPIC, READ))
            version = one.authorizer.version
            assert await one.create(bind(TOPIC, READ, READ)) == [None, None]
            assert await notifications(tree) == [b"TOPIC:orders"]
            assert one.authorizer.version == version

    run(scenario())


def test_deletions_are_reported_under_the_first_filter_that_matches(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            await one.create([*bind(TOPIC, READ, WRITE, DENIED), *bind(PREFIX, READ)])
            allowed = AccessControlEntryFilter(permission=AclPermission.ALLOW)
            nothing = AclBindingFilter(ResourcePatternFilter(ResourceType.GROUP))
            results = await one.delete([nothing, of(TOPIC, allowed), of(TOPIC)])
            assert results == [
                [],
                [(AclBinding(TOPIC, READ), None), (AclBinding(TOPIC, WRITE), None)],
                [(AclBinding(TOPIC, DENIED), None)],
            ]
            assert await data_of(tree, TOPIC) is None
            assert await tree.exists("/kafka-acl/Topic")
            assert one.authorizer.bindings(EVERYTHING) == bind(PREFIX, READ)
            results = await one.delete(
                [AclBindingFilter(ResourcePatternFilter(name="orders", pattern_type=PatternType.MATCH))]
            )
            assert results == [[(AclBinding(PREFIX, READ), None)]]

    run(scenario())


def test_a_filter_that_names_its_pattern_deletes_what_this_broker_has_not_seen_yet(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            await tree.create(acl_nodes.acl_path(TOPIC), acl_nodes.encode_acls([READ]))
            assert await one.delete([of(TOPIC)]) == [[(AclBinding(TOPIC, READ), None)]]
            assert await data_of(tree, TOPIC) is None

    run(scenario())


class SilencedTree:
    """A tree that can keep the changes of children to itself, as if nobody had been notified."""

    def __init__(self, tree: Tree) -> None:
        self._tree, self.is_deaf = tree, False
        self.session_watchers: list[Callable[[SessionState], None]] = []

    async def watch_children(self, path: str, changed: Callable[[Event], None]) -> TreeWatch:
        return await self._tree.watch_children(path, lambda event: None if self.is_deaf else changed(event))

    def watch_session(self, changed: Callable[[SessionState], None]) -> TreeWatch:
        self.session_watchers.append(changed)
        return self._tree.watch_session(changed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)


async def delete_the_last_notification(tree: Tree) -> None:
    path = acl_nodes.CHANGES[PatternType.LITERAL]
    await tree.delete(f"{path}/{max(await tree.children(path) or [])}")


@pytest.mark.parametrize("noticed_by", ["the notification", "the next connection", "the next notification"])
@pytest.mark.parametrize("removed", [READ, WRITE, DENIED])
def test_the_other_acls_hold_on_every_broker_after_one_was_removed(
    run: Run, tree: Tree, removed: AccessControlEntry, noticed_by: str
) -> None:
    """CVE-2024-27309: also after a restart, and if the notification is lost."""

    async def scenario() -> None:
        left, deaf = {READ, WRITE, DENIED} - {removed}, SilencedTree(tree)
        async with started(a_store(tree), a_store(cast(Tree, deaf))) as (one, other):
            await one.create(bind(TOPIC, READ, WRITE, DENIED))
            await eventually(lambda: len(other.authorizer.entries(TOPIC)) == 3 and has_read_all(other))
            deaf.is_deaf = noticed_by != "the notification"
            await one.delete([of(TOPIC, AccessControlEntryFilter(*removed))])
            assert set(one.authorizer.entries(TOPIC)) == left
            if deaf.is_deaf:
                await delete_the_last_notification(tree)
                assert len(other.authorizer.entries(TOPIC)) == 3
                deaf.is_deaf = False
            if noticed_by == "the next connection":
                for watcher in deaf.session_watchers:
                    watcher(SessionState.CONNECTED)
            elif noticed_by == "the next notification":
                await one.create(bind(ResourcePattern(ResourceType.TOPIC, "another"), READ))
            await eventually(lambda: set(other.authorizer.entries(TOPIC)) == left)
            denied = other.authorizer.client(ALICE, "127.0.0.9")
            assert denied.allows(AclOperation.READ, ResourceType.TOPIC, "orders") is (removed == DENIED)
        async with started(a_store(tree)) as (restarted,):
            assert set(restarted.authorizer.entries(TOPIC)) == left

    run(scenario())


def has_read_all(store: AclStore) -> bool:
    return all(
        notifications._reading is None or notifications._reading.done() for notifications in store._notifications
    )


def test_a_change_whose_notification_was_lost_is_seen_once_the_connection_is_back(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            await one.create([*bind(TOPIC, READ, WRITE, DENIED), *bind(PREFIX, READ)])
            await tree.set(acl_nodes.acl_path(TOPIC), acl_nodes.encode_acls([READ, DENIED]))
            await tree.delete(acl_nodes.acl_path(PREFIX))
            await tree.create("/kafka-acl/Group/g", acl_nodes.encode_acls([READ]))
            one._notifications[0]._session(SessionState.CONNECTED)
            group = ResourcePattern(ResourceType.GROUP, "g")
            await eventually(lambda: one.authorizer.entries(TOPIC) == (READ, DENIED))
            await eventually(lambda: one.authorizer.patterns() == [TOPIC, group])

    run(scenario())


def test_a_missing_number_among_the_notifications_means_that_one_was_lost(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            await one.create(bind(TOPIC, READ, WRITE))
            await eventually(lambda: one._notifications[0]._last == 0)
            await tree.set(acl_nodes.acl_path(TOPIC), acl_nodes.encode_acls([READ]))
            announced = Create("/kafka-acl-changes/acl_changes_", b"TOPIC:elsewhere", sequential=True)
            await tree.multi([announced, Delete("/kafka-acl-changes/acl_changes_0000000001"), announced])
            await eventually(lambda: one.authorizer.entries(TOPIC) == (READ,))

    run(scenario())


class ContestedTree:
    """A tree in which another broker is quicker: the first writes each come after one of its own."""

    def __init__(self, tree: Tree, times: int) -> None:
        self._tree, self.times = tree, times
        self.lost = False

    async def multi(self, operations: list[Operation]) -> list[Outcome]:
        if self.times:
            self.times -= 1
            theirs = AccessControlEntry(f"User:{self.times}", "*", AclOperation.READ, AclPermission.ALLOW)
            path = operations[0].path
            node = await self._tree.get(path)
            if node is None:
                await self._tree.create(path, acl_nodes.encode_acls([theirs]))
            else:
                before = acl_nodes.decode_acls(path, node.data)
                await self._tree.set(path, acl_nodes.encode_acls([*before, theirs]))
        return await self._tree.multi(operations)

    async def get(self, path: str) -> Node | None:
        if self.lost:
            raise ConnectionLost(path, "no answer")
        return await self._tree.get(path)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)


def test_a_change_goes_on_top_of_what_others_wrote_meanwhile(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(cast(Tree, ContestedTree(tree, 2)))) as (one,):
            assert await one.create(bind(TOPIC, READ)) == [None]
            principals = [entry.principal for entry in one.authorizer.entries(TOPIC)]
            assert principals == ["User:1", "User:0", "User:alice"]

    run(scenario())


def test_a_writer_that_is_never_quick_enough_gives_up(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(cast(Tree, ContestedTree(tree, 99)))) as (one,):
            (error,) = await one.create(bind(TOPIC, READ))
            assert isinstance(error, UnknownServerError)
            assert READ not in one.authorizer.entries(TOPIC)

    run(scenario())


def test_a_tree_out_of_reach_fails_the_request_and_changes_nothing(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        lossy = ContestedTree(tree, 0)
        async with started(a_store(cast(Tree, lossy))) as (one,):
            lossy.lost = True
            (error,) = await one.create(bind(TOPIC, READ))
            assert isinstance(error, UnknownServerError)
            lossy.lost = False
            assert one.authorizer.patterns() == []

    run(scenario())


def test_bad_acls_are_refused_and_the_others_of_the_request_created(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            slash, group = ResourcePattern(ResourceType.TOPIC, "a/b"), ResourcePattern(ResourceType.GROUP, "g")
            nobody = READ._replace(principal="alice")
            results = await one.create([*bind(slash, READ), *bind(TOPIC, READ), *bind(group, nobody, WRITE)])
            kinds = [type(result) for result in results]
            assert kinds == [InvalidRequest, type(None), UnknownServerError, UnknownServerError]
            assert one.authorizer.bindings(EVERYTHING) == bind(TOPIC, READ)

    run(scenario())


def test_a_node_that_cannot_be_read_stops_the_start(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        await tree.create(acl_nodes.acl_path(TOPIC), b"no JSON", make_parents=True)
        store = a_store(tree)
        with pytest.raises(MalformedNode, match="/kafka-acl/Topic/orders"):
            await store.start()
        await store.stop()

    run(scenario())


def test_acls_stay_in_force_if_their_node_cannot_be_read_any_more(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree)) as (one,):
            await one.create(bind(TOPIC, READ, DENIED))
            await tree.set(acl_nodes.acl_path(TOPIC), b"no JSON")
            await tree.create("/kafka-acl-changes/acl_changes_", b"what?", sequential=True)
            await tree.create("/kafka-acl-changes/acl_changes_", b"TOPIC:orders", sequential=True)
            await tree.create(acl_nodes.acl_path(PREFIX), acl_nodes.encode_acls([READ]))
            change = acl_nodes.encode_change(PREFIX)
            await tree.create("/kafka-acl-extended-changes/acl_changes_", change, sequential=True)
            await eventually(lambda: one.authorizer.entries(PREFIX) == (READ,) and one._notifications[0]._last == 2)
            assert one.authorizer.entries(TOPIC) == (READ, DENIED)

    run(scenario())


def test_notifications_of_long_ago_are_deleted(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        clock = AheadClock()
        async with started(a_store(tree, clock)) as (one,):
            await one.create(bind(TOPIC, READ))
            await eventually(lambda: one._notifications[0]._last == 0)
            clock.ahead_ms = 2 * KEPT_MS
            await one.create(bind(TOPIC, WRITE))

            async def is_deleted() -> bool:
                return "acl_changes_0000000000" not in (await tree.children("/kafka-acl-changes") or [])

            await eventually(is_deleted)

    run(scenario())


def test_changes_at_once_all_count(run: Run, tree: Tree) -> None:
    async def scenario() -> None:
        async with started(a_store(tree), a_store(tree)) as stores:
            users = [READ._replace(principal=f"User:{n}") for n in range(8)]

            def create(n: int) -> Awaitable[object]:
                return stores[n % 2].create(bind(TOPIC, users[n]))

            await asyncio.gather(*map(create, range(8)))
            for store in stores:
                await eventually(lambda store=store: set(store.authorizer.entries(TOPIC)) == set(users))  # type: ignore[misc]

    run(scenario())

"""Sessions that were open before a right was revoked: they lose it within a second, on each broker, on each fast path.

The right is revoked by another broker: a second store of ACLs on the same tree.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from leadline.api.fast.offset_commit import OffsetCommitRequestTemplate
from leadline.coordination import change_notifications
from leadline.coordination.embedded import EmbeddedTree
from leadline.coordination.tree import SessionState
from leadline.model import TopicPartition
from leadline.runtime.ports import SystemChance, SystemTime
from leadline.security import acl_nodes
from leadline.security.acl_store import AclStore
from leadline.security.acls import AclBindingFilter, AclOperation, AclPermission, ResourceType
from leadline.security.authorizer import Authorizer
from leadline.wire import messages as m
from tests.support.authorized_broker import AuthorizedBroker, rule, run_authorized
from tests.support.in_memory_broker import InMemoryClient
from tests.support.waiting import eventually, unloaded_clock

T0 = TopicPartition("t", 0)
TOPIC_REFUSED, GROUP_REFUSED = 29, 30
WITHIN_S = 1.0
READS, WRITES = rule(AclOperation.READ, ResourceType.TOPIC, "t"), rule(AclOperation.WRITE, ResourceType.TOPIC, "t")
COMMITS = rule(AclOperation.READ, ResourceType.GROUP, "g")
EVERYTHING = AclBindingFilter()


class WarmClient:
    """A connection whose requests take fast paths: a template for produce, a session, a template for commits."""

    def __init__(self, client: InMemoryClient) -> None:
        self.client, self._session, self._epoch, self._committed = client, 0, 0, 0

    async def warm_up(self) -> None:
        for _ in range(4):
            assert await self.codes() == (0, 0, 0)
        assert isinstance(self.client.client.last_commit, OffsetCommitRequestTemplate)

    async def codes(self) -> tuple[int, int, int]:
        """Of a produce, a fetch in the session, and a commit."""
        return (await self.client.produce(T0)).error_code, await self._fetch(), await self._commit()

    def fetch_request(self, max_wait_ms: int = 0) -> m.FetchRequest:
        part = m.FetchRequest.FetchPartition(partition=0, fetch_offset=self._committed, partition_max_bytes=1 << 20)
        topics = [m.FetchRequest.FetchTopic(topic="t", partitions=[part])]
        request = m.FetchRequest(
            session_id=self._session, session_epoch=self._epoch, topics=topics, max_wait_ms=max_wait_ms, min_bytes=1
        )
        self._epoch += 1
        return request

    async def _fetch(self) -> int:
        response = await self.client.send(self.fetch_request(), m.FetchResponse, 12)
        self._session = response.session_id
        (part,) = response.responses[0].partitions
        assert bool(part.records) is (part.error_code == 0)
        return part.error_code

    async def _commit(self) -> int:
        part = m.OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self._committed, committed_leader_epoch=0, committed_metadata=""
        )
        topic = m.OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
        response = await self.client.send(
            m.OffsetCommitRequest(group_id="g", topics=[topic]), m.OffsetCommitResponse, 8
        )
        code = response.topics[0].partitions[0].error_code
        self._committed += code == 0
        return code


@asynccontextmanager
async def another_broker(broker: AuthorizedBroker) -> AsyncIterator[AclStore]:
    store = AclStore(broker.broker.tree, Authorizer(), SystemTime(), SystemChance())
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


def run_with_another(test: Callable[[AuthorizedBroker, AclStore, WarmClient], Awaitable[None]]) -> None:
    async def main(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        coordinator = m.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        await broker.root.send(coordinator, m.FindCoordinatorResponse, 4)
        async with another_broker(broker) as other:
            assert await other.create([READS, WRITES, COMMITS]) == [None] * 3
            await eventually(lambda: len(broker.authorizer.bindings(EVERYTHING)) == 3)
            client = WarmClient(broker.client())
            await client.warm_up()
            await test(broker, other, client)

    run_authorized(main)


def test_what_another_broker_revokes_is_lost_within_a_second() -> None:
    async def test(broker: AuthorizedBroker, other: AclStore, client: WarmClient) -> None:
        with unloaded_clock() as clock:
            for _ in range(5):
                began_s = clock()
                await other.delete([EVERYTHING])
                await eventually(lambda: not broker.authorizer.bindings(EVERYTHING))
                assert clock() - began_s < WITHIN_S
                assert await client.codes() == (TOPIC_REFUSED, TOPIC_REFUSED, GROUP_REFUSED)
                began_s = clock()
                await other.create([READS, WRITES, COMMITS])
                await eventually(lambda: len(broker.authorizer.bindings(EVERYTHING)) == 3)
                assert clock() - began_s < WITHIN_S
                assert await client.codes() == (0, 0, 0)

    run_with_another(test)


def test_what_another_broker_denies_is_lost_by_a_fetch_that_waits() -> None:
    async def test(broker: AuthorizedBroker, other: AclStore, client: WarmClient) -> None:
        for _ in range(2):
            assert (await client.client.produce(T0)).error_code == 0
        client._committed = broker.broker.replicas.hosted[T0].log.log_end
        request = client.fetch_request(max_wait_ms=60_000)
        waiting = asyncio.create_task(client.client.send(request, m.FetchResponse, 12))
        await eventually(lambda: broker.broker.services.sessions.by_id[request.session_id].waiting is not None)
        await other.create([READS._replace(entry=READS.entry._replace(permission=AclPermission.DENY))])
        await eventually(lambda: len(broker.authorizer.bindings(EVERYTHING)) == 4)
        assert (await broker.root.produce(T0)).error_code == 0
        (part,) = (await waiting).responses[0].partitions
        assert part.error_code == TOPIC_REFUSED
        assert not part.records

    run_with_another(test)


def test_a_right_whose_notification_was_lost_is_lost_once_the_connection_is_back() -> None:
    async def test(broker: AuthorizedBroker, other: AclStore, client: WarmClient) -> None:
        for binding in (READS, COMMITS):
            await broker.broker.tree.delete(acl_nodes.acl_path(binding.pattern))
        assert await client.codes() == (0, 0, 0), "nothing says that something changed, and no check was made"
        acls = broker.broker.services.acls
        assert acls is not None
        acls._notifications[0]._session(SessionState.CONNECTED)
        await eventually(lambda: not broker.authorizer.bindings(EVERYTHING))
        assert await client.codes() == (TOPIC_REFUSED, TOPIC_REFUSED, GROUP_REFUSED)

    run_with_another(test)


def test_a_right_whose_notification_was_never_written_is_lost_at_the_next_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_notifications, "CHECK_MS", 5)
    monkeypatch.setattr(EmbeddedTree, "is_shared", True)

    async def test(broker: AuthorizedBroker, other: AclStore, client: WarmClient) -> None:
        for binding in (READS, COMMITS):
            await broker.broker.tree.delete(acl_nodes.acl_path(binding.pattern))
        await eventually(lambda: not broker.authorizer.bindings(EVERYTHING))
        assert await client.codes() == (TOPIC_REFUSED, TOPIC_REFUSED, GROUP_REFUSED)

    run_with_another(test)

"""The fast path of a follower's fetch and the handler give the same response to the same fetch."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from leadline.api.authorization import AUTHORIZATION
from leadline.api.context import ClientConnection, Context
from leadline.api.fast.follower_fetch import fetch_by_follower
from leadline.api.fetch import fetch
from leadline.coordination.tree import Tree
from leadline.errors import ResourceExhausted
from leadline.log.log import Log
from leadline.records.batch import header_at
from leadline.replication.partition import LeaderAndIsr, Proposal
from leadline.replication.watchers import MOST_CHANGES
from leadline.runtime.ports import SystemTime
from leadline.security.acl_store import AclStore
from leadline.security.acls import AclOperation, ResourceType
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal
from leadline.wire.codec import decode, encode_behind, to_bytes
from leadline.wire.frames import request_frame
from leadline.wire.messages import FetchRequest, FetchResponse
from leadline.wire.primitives import Piece
from tests.support import in_memory
from tests.support.authorized_broker import ALICE, rule
from tests.support.brokers import PATIENCE_S, TOPIC_ID, TP, Brokers, Node, brokers, joined
from tests.support.chance import SeededChance
from tests.support.logs import batch
from tests.support.waiting import eventually

FOLLOWER = 2


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def request(session: tuple[int, int] = (0, 0), **position: int) -> FetchRequest:
    """By a follower that does not wait; in a session, or to open one."""
    state = FetchRequest.ReplicaState(replica_id=FOLLOWER, replica_epoch=-1)
    built = FetchRequest(
        min_bytes=1, max_bytes=1 << 20, session_id=session[0], session_epoch=session[1], replica_state=state
    )
    if position:
        fields = {"partition": 0, "partition_max_bytes": 1 << 20, "log_start_offset": 0} | position
        built.topics = [FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=[FetchRequest.FetchPartition(**fields)])]
    return built


def frame(fetch_request: FetchRequest) -> memoryview:
    return memoryview(bytearray(joined(request_frame(fetch_request, 16, 7, "test")))[4:])


def fast(node: Node, fetch_request: FetchRequest) -> list[Piece] | asyncio.Future[list[Piece]] | None:
    """On a connection of its own."""
    return fetch_by_follower(frame(fetch_request), 16, 7, ClientConnection("localhost", "PLAINTEXT"), node.services)


def through_the_codec(node: Node, fetch_request: FetchRequest) -> FetchResponse:
    answer = fetch(decode(FetchRequest, to_bytes(fetch_request, 16), 16), node.context(16))
    assert isinstance(answer, FetchResponse)
    return answer


def plain(answer: FetchResponse) -> FetchResponse:
    """As it arrives, without the session."""
    answer.session_id = 0
    return decode(FetchResponse, bytearray(joined(encode_behind(bytearray(), answer, 16))), 16)


@asynccontextmanager
async def leading(path: Path, **topic: str) -> AsyncIterator[tuple[Brokers, Node]]:
    """A leader with ten records, all of them copied, and followers that ask for nothing more."""
    async with brokers(path, sockets=False, folders="", **topic) as cluster, asyncio.timeout(4 * PATIENCE_S):
        leader = cluster.leader
        for _ in range(10):
            leader.replicas.append(TP, batch(1, size=100))
        await cluster.all_hold(10)
        leader.hosted.leader.lag_ms = 1 << 40
        cluster.cut_off |= set(cluster.ids) - {leader.id}
        await eventually(lambda: not leader.has_waiting_fetches)
        yield cluster, leader


def run(path: Path, test: Callable[[Node], Awaitable[None]], **topic: str) -> None:
    async def main() -> None:
        async with leading(path, **topic) as (_, leader):
            await test(leader)

    asyncio.run(main())


def opened(node: Node, last_fetched_epoch: int | None = None) -> int:
    epoch = node.hosted.epoch
    last = epoch if last_fetched_epoch is None else last_fetched_epoch
    full_fetch = request(fetch_offset=10, current_leader_epoch=epoch, last_fetched_epoch=last)
    return through_the_codec(node, full_fetch).session_id


@pytest.mark.parametrize(
    ("position", "is_fast"),
    [
        ({}, True),
        ({"fetch_offset": 10}, True),
        ({"fetch_offset": 3}, True),
        ({"fetch_offset": 0}, True),
        ({"fetch_offset": 3, "partition_max_bytes": 200}, True),
        ({"fetch_offset": 11}, False),
        ({"fetch_offset": 10, "current_leader_epoch": 1 << 20}, False),
        ({"fetch_offset": 10, "last_fetched_epoch": 1 << 20}, False),
        ({"fetch_offset": 10, "partition": 1}, False),
    ],
)
def test_both_ways_give_the_same_answer(tmp_path: Path, position: dict[str, int], is_fast: bool) -> None:
    async def test(leader: Node) -> None:
        epoch = leader.hosted.epoch
        fields = {"current_leader_epoch": epoch, "last_fetched_epoch": epoch} | position if position else {}
        one, other = opened(leader), opened(leader)
        reply = fast(leader, request((one, 1), **fields))
        assert (reply is not None) is is_fast
        expected = through_the_codec(leader, request((other, 1), **fields))
        if reply is not None:
            assert isinstance(reply, list)
            answer = decode(FetchResponse, bytearray(joined(reply))[9:], 16)
            answer.session_id = 0
            assert answer == plain(expected)
            assert leader.services.sessions.by_id[one].epoch == 2
        else:
            assert leader.services.sessions.by_id[one].epoch == 1, "something has happened to it"

    run(tmp_path, test)


def without_descriptors(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file can be opened: reading fails, but the directory has not."""

    def locate(offset: int) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(log.segments, "locate", locate)


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_partition_that_cannot_be_read_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_waiting: bool
) -> None:
    """Neither the connection nor the fetch that waits."""

    async def test(leader: Node) -> None:
        epoch, offset = leader.hosted.epoch, 10 if is_waiting else 3
        fetch_request = request(
            (opened(leader), 1), fetch_offset=offset, current_leader_epoch=epoch, last_fetched_epoch=epoch
        )
        fetch_request.max_wait_ms = 60_000 if is_waiting else 0
        without_descriptors(leader.log, monkeypatch)
        reply = fast(leader, fetch_request)
        if is_waiting:
            assert isinstance(reply, asyncio.Future)
            monkeypatch.setattr(leader.replicas.completions.recent, "since", lambda *_: None)
            leader.replicas.append(TP, batch(1, size=100))
            reply = await reply
        assert isinstance(reply, list)
        (part,) = decode(FetchResponse, bytearray(joined(reply))[9:], 16).responses[0].partitions
        assert part.error_code == ResourceExhausted.code
        assert not leader.log.offline

    run(tmp_path, test)


def test_a_waiting_fetch_is_answered_with_the_next_append(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        fetch_request = request((opened(leader), 1))
        fetch_request.max_wait_ms = 60_000
        waiting = fast(leader, fetch_request)
        assert isinstance(waiting, asyncio.Future)
        leader.replicas.append(TP, batch(2, size=100))
        leader.replicas.append(TP, batch(1, size=100))
        answer = decode(FetchResponse, bytearray(joined(await waiting))[9:], 16)
        (part,) = answer.responses[0].partitions
        assert isinstance(part.records, bytes | bytearray | memoryview)
        assert len(part.records) == len(batch(2, size=100)) + len(batch(1, size=100)), "both in one answer"
        assert not leader.has_waiting_fetches

    run(tmp_path, test)


@pytest.mark.parametrize("topic", [{}, {"message_timestamp_type": "LogAppendTime"}, {"compression_type": "gzip"}])
def test_a_waiting_fetch_gets_new_batches_from_memory(tmp_path: Path, topic: dict[str, str]) -> None:
    async def test(leader: Node) -> None:
        fetch_request = request((opened(leader), 1))
        fetch_request.max_wait_ms = 60_000
        waiting = fast(leader, fetch_request)
        assert isinstance(waiting, asyncio.Future)
        segment = leader.log.segments.active
        start = segment.size
        for data in (batch(2, size=100), bytearray(batch(1, size=100))):
            leader.replicas.append(TP, data)
        pieces = await waiting
        assert all(isinstance(piece, bytes | bytearray | memoryview) for piece in pieces)
        (part,) = decode(FetchResponse, bytearray(joined(pieces))[9:], 16).responses[0].partitions
        assert part.records == os.pread(segment.file.fd, segment.size - start, start)

    run(tmp_path, test, **topic)


@pytest.mark.parametrize("waits_ms", [[60_000, 200], [200, 200], [900, 200], [200, 300]])
def test_each_fetch_of_a_session_waits_its_own_time(tmp_path: Path, waits_ms: list[int]) -> None:
    """Though the first of them is answered before its time is over."""

    async def test(leader: Node) -> None:
        session, loop, epoch = opened(leader), asyncio.get_running_loop(), leader.hosted.epoch
        for n, wait_ms in enumerate(waits_ms):
            fetch_request = request(
                (session, n + 1), fetch_offset=10 + n, current_leader_epoch=epoch, last_fetched_epoch=epoch
            )
            fetch_request.max_wait_ms = wait_ms
            began = loop.time()
            waiting = fast(leader, fetch_request)
            assert isinstance(waiting, asyncio.Future)
            if n == 0:
                leader.replicas.append(TP, batch(1, size=100))
            answer = decode(FetchResponse, bytearray(joined(await waiting))[9:], 16)
            assert bool(answer.responses) is (n == 0)
        assert loop.time() - began >= waits_ms[-1] / 1000
        assert not leader.has_waiting_fetches

    run(tmp_path, test)


def test_a_waiting_fetch_is_not_answered_with_the_partitions_of_the_next_one(tmp_path: Path) -> None:
    """As on a connection that broke unnoticed."""

    async def test(leader: Node) -> None:
        session = opened(leader)
        first, second = request((session, 1)), request((session, 2))
        first.max_wait_ms, second.max_wait_ms = 300, 60_000
        waiting = [fast(leader, fetch_request) for fetch_request in (first, second)]
        assert isinstance(waiting[0], asyncio.Future)
        assert isinstance(waiting[1], asyncio.Future)
        assert not decode(FetchResponse, bytearray(joined(await waiting[0]))[9:], 16).responses
        leader.replicas.append(TP, batch(1, size=100))
        assert len(decode(FetchResponse, bytearray(joined(await waiting[1]))[9:], 16).responses) == 1

    run(tmp_path, test)


def test_a_cancelled_fetch_is_forgotten(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        fetch_request = request((opened(leader), 1))
        fetch_request.max_wait_ms = 60_000
        waiting = fast(leader, fetch_request)
        assert isinstance(waiting, asyncio.Future)
        assert leader.has_waiting_fetches
        waiting.cancel()
        assert not leader.has_waiting_fetches
        leader.replicas.append(TP, batch(1, size=100))
        await asyncio.sleep(0)

    run(tmp_path, test)


def test_a_waiting_fetch_does_not_get_a_duplicate_batch(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        sent = batch(1, producer_id=5)
        leader.replicas.append(TP, bytearray(sent))
        session = opened(leader)
        fetch_request = request((session, 1), fetch_offset=11, current_leader_epoch=leader.hosted.epoch)
        fetch_request.topics[0].partitions[0].last_fetched_epoch = leader.hosted.epoch
        fetch_request.max_wait_ms = 60_000
        waiting = fast(leader, fetch_request)
        assert isinstance(waiting, asyncio.Future)
        assert leader.replicas.append(TP, bytearray(sent)).duplicate
        leader.replicas.append(TP, batch(1, size=100))
        (part,) = decode(FetchResponse, bytearray(joined(await waiting))[9:], 16).responses[0].partitions
        assert isinstance(part.records, bytes | bytearray | memoryview)
        assert header_at(part.records).base_offset == 11
        assert len(part.records) == len(batch(1, size=100))

    run(tmp_path, test)


def test_a_deposed_leader_answers_waiting_fetches_at_once(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        fetch_request = request((opened(leader), 1))
        fetch_request.max_wait_ms = 60_000
        waiting = fast(leader, fetch_request)
        assert isinstance(waiting, asyncio.Future)
        await leader.replicas.release(TP)
        answer = decode(FetchResponse, bytearray(joined(await waiting))[9:], 16)
        assert [part.error_code for part in answer.responses[0].partitions] != [0]

    run(tmp_path, test)


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_follower_may_join_the_isr_by_a_fetch_without_partitions(tmp_path: Path, is_idle: bool) -> None:
    """`is_idle`: the leader was elected again since the last record, so the follower's last epoch is not the latest."""

    async def test(leader: Node) -> None:
        last_epoch, leads = leader.hosted.epoch, leader.hosted.leader
        if is_idle:
            leader.hosted.epoch = leads.epoch = last_epoch + 1
            leader.hosted.log.begin_epoch(last_epoch + 1)
        session = opened(leader, last_epoch)
        leads.isr = (leader.id,)
        leads.pending = Proposal(LeaderAndIsr(leader.id, leads.epoch, (leader.id,), leads.partition_epoch), ())
        leader.services.sessions.by_id[session].read_all(0)
        assert fast(leader, request((session, 1))) is not None
        assert leads.pending.proposed.isr == (leader.id,), "one proposal at a time"
        leads.pending = None
        assert fast(leader, request((session, 2))) is not None
        proposal = leads.pending
        assert proposal is not None
        assert proposal.proposed.isr == (leader.id, FOLLOWER)

    run(tmp_path, test)


def test_a_session_that_is_not_used_watches_no_longer_and_misses_nothing(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        for session in leader.services.sessions.by_id.values():
            session.close()
        session_id = opened(leader)
        assert len(leader.hosted.follower_watchers) == 1
        for _ in range(MOST_CHANGES):
            leader.replicas.append(TP, batch(1, size=100))
        await eventually(lambda: not leader.hosted.follower_watchers)
        reply = fast(leader, request((session_id, 1)))
        assert isinstance(reply, list)
        assert len(decode(FetchResponse, bytearray(joined(reply))[9:], 16).responses) == 1
        assert len(leader.hosted.follower_watchers) == 1

    run(tmp_path, test)


# With an authorizer


CLUSTER_ACTION = rule(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)


def with_authorizer(node: Node) -> Authorizer:
    authorizer = Authorizer()
    node.services.acls = AclStore(cast(Tree, None), authorizer, SystemTime(), SeededChance())
    return authorizer


def client_of(principal: Principal) -> ClientConnection:
    return ClientConnection("localhost", "PLAINTEXT", principal)


def by_handler(node: Node, fetch_request: FetchRequest, client: ClientConnection) -> FetchResponse:
    ctx = Context(node.services, 16, None, client, AUTHORIZATION[1])
    answer = fetch(decode(FetchRequest, to_bytes(fetch_request, 16), 16), ctx)
    assert isinstance(answer, FetchResponse)
    return answer


def codes(answer: FetchResponse) -> list[int]:
    return [part.error_code for topic in answer.responses for part in topic.partitions]


def test_the_fast_path_is_for_connections_that_may_cluster_action(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        authorizer = with_authorizer(leader)
        authorizer.put(CLUSTER_ACTION.pattern, [CLUSTER_ACTION.entry])
        broker, thief = client_of(ALICE), client_of(Principal("User", "thief"))
        epoch = leader.hosted.epoch
        position = {"fetch_offset": 10, "current_leader_epoch": epoch, "last_fetched_epoch": epoch}
        session = by_handler(leader, request((0, 0), **position), broker).session_id
        follower = leader.hosted.leader.followers[FOLLOWER]
        before = replace(follower), leader.services.sessions.by_id[session].last_contact.last_ms

        def fast_by(client: ClientConnection, session_epoch: int) -> object:
            return fetch_by_follower(frame(request((session, session_epoch))), 16, 7, client, leader.services)

        assert fast_by(thief, 1) is None
        assert fast_by(client_of(ALICE), 1) is None, "nothing has been decided for this connection yet"
        stolen = by_handler(leader, request((session, 1)), thief)
        assert codes(stolen) == [29]
        fetch_session = leader.services.sessions.by_id[session]
        assert (follower, fetch_session.last_contact.last_ms) == before, "it was taken for the follower"
        assert fetch_session.replica == FOLLOWER
        assert isinstance(fast_by(broker, 2), list)

    run(tmp_path, test)


def test_a_broker_whose_right_is_revoked_is_refused_by_the_next_fetch(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        authorizer = with_authorizer(leader)
        authorizer.put(CLUSTER_ACTION.pattern, [CLUSTER_ACTION.entry])
        broker, epoch = client_of(ALICE), leader.hosted.epoch
        position = {"fetch_offset": 10, "current_leader_epoch": epoch, "last_fetched_epoch": epoch}
        session = by_handler(leader, request((0, 0), **position), broker).session_id

        def fast_at(session_epoch: int) -> object:
            return fetch_by_follower(frame(request((session, session_epoch))), 16, 7, broker, leader.services)

        assert isinstance(fast_at(1), list)
        authorizer.put(CLUSTER_ACTION.pattern, [])
        assert fast_at(2) is None
        assert codes(by_handler(leader, request((session, 2)), broker)) == [29]
        authorizer.put(CLUSTER_ACTION.pattern, [CLUSTER_ACTION.entry])
        assert fast_at(3) is None, "the handler decides first"
        assert codes(by_handler(leader, request((session, 3)), broker)) == [0]
        assert isinstance(fast_at(4), list)

    run(tmp_path, test)


def test_a_fetch_that_waits_gets_nothing_once_the_right_is_revoked(tmp_path: Path) -> None:
    async def test(leader: Node) -> None:
        authorizer = with_authorizer(leader)
        authorizer.put(CLUSTER_ACTION.pattern, [CLUSTER_ACTION.entry])
        broker, epoch = client_of(ALICE), leader.hosted.epoch
        position = {"fetch_offset": 10, "current_leader_epoch": epoch, "last_fetched_epoch": epoch}
        session = by_handler(leader, request((0, 0), **position), broker).session_id
        waiting = request((session, 1))
        waiting.max_wait_ms = 60_000
        answer = fetch_by_follower(frame(waiting), 16, 7, broker, leader.services)
        assert isinstance(answer, asyncio.Future)
        authorizer.put(CLUSTER_ACTION.pattern, [])
        leader.replicas.append(TP, batch(1, size=100))
        refused = decode(FetchResponse, bytearray(joined(await answer))[9:], 16)
        assert codes(refused) == [29]
        assert not refused.responses[0].partitions[0].records

    run(tmp_path, test)

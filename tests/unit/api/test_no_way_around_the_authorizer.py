"""Requests that look like what was allowed, come through a fast path or a session, or carry what nobody checked before.

Some of these have been holes in brokers: the names of the tests end with their numbers.
"""

import asyncio
import logging
from collections.abc import Awaitable
from contextlib import contextmanager
from typing import cast

import pytest

from leadline.api.fast import produce as fast_produce
from leadline.api.fast.offset_commit import OffsetCommitRequestTemplate
from leadline.broker.connection import Connection
from leadline.model import TopicPartition
from leadline.replication.partition import FollowerProgress
from leadline.security.acls import AclOperation, ResourceType
from leadline.security.principal import Principal
from leadline.wire.codec import decode_from
from leadline.wire.frames import parse_response, request_frame
from leadline.wire.messages import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.support import in_memory
from tests.support.authorized_broker import ALICE, AUTHORIZER, DENY, AuthorizedBroker, rule, run_authorized
from tests.support.brokers import joined
from tests.support.in_memory_broker import PATIENCE_S, InMemoryClient, in_memory_broker
from tests.support.logs import batch
from tests.support.message_sets import plain as message_set
from tests.support.waiting import eventually

BOB = Principal("User", "bob")
T0 = TopicPartition("t", 0)
TOPIC_REFUSED, GROUP_REFUSED, TXN_REFUSED = 29, 30, 53
READ, WRITE = AclOperation.READ, AclOperation.WRITE
WRITES_T = rule(WRITE, ResourceType.TOPIC, "t")
READS_T = rule(READ, ResourceType.TOPIC, "t")


def log_end(broker: AuthorizedBroker, tp: TopicPartition = T0) -> int:
    return broker.broker.replicas.hosted[tp].log.log_end


# Produce templates


def test_the_template_of_an_allowed_producer_serves_no_other_principal() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        broker.put(WRITES_T)
        alice, bob, again = broker.client(), broker.client(BOB), broker.client()
        assert [(await alice.produce(T0)).error_code for _ in range(3)] == [0, 0, 0]
        assert alice.client.grants.may_write("t", broker.authorizer.version)
        assert [(await bob.produce(T0)).error_code for _ in range(3)] == [TOPIC_REFUSED] * 3
        assert log_end(broker) == 3
        assert not bob.client.grants.may_write("t", broker.authorizer.version)
        assert (await again.produce(T0)).error_code == 0

    run_authorized(test)


def test_an_allowed_producer_takes_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = 0

    def counting(*arguments: object) -> object:
        nonlocal decoded
        decoded += 1
        return decode_from(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(fast_produce, "decode_from", counting)

    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        broker.put(WRITES_T)
        alice = broker.client()
        for _ in range(5):
            assert (await alice.produce(T0)).error_code == 0
        assert decoded == 1
        broker.put(rule(READ, ResourceType.TOPIC, "elsewhere"))  # the next version of the ACLs
        for _ in range(5):
            assert (await alice.produce(T0)).error_code == 0
        assert decoded == 2

    run_authorized(test)


def test_a_right_that_is_revoked_ends_the_fast_path_at_once() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        alice = broker.client()
        broker.put(WRITES_T)
        for _ in range(3):
            assert (await alice.produce(T0)).error_code == 0
        broker.put(WRITES_T._replace(entry=WRITES_T.entry._replace(permission=DENY)))
        assert (await alice.produce(T0)).error_code == TOPIC_REFUSED
        broker.remove_all()
        assert (await alice.produce(T0)).error_code == TOPIC_REFUSED
        broker.put(WRITES_T)
        assert (await alice.produce(T0)).error_code == 0
        assert log_end(broker) == 4

    run_authorized(test)


def test_a_refused_produce_leaves_no_template() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        for _ in range(3):
            assert (await broker.client().produce(T0)).error_code == TOPIC_REFUSED
        assert not any(broker.broker.services.produce_templates.by_version.values())

    run_authorized(test)


def test_each_decision_is_a_line_if_the_audit_log_is_at_debug(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")

    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        broker.put(WRITES_T)
        caplog.clear()
        alice = broker.client()
        for _ in range(3):
            assert (await alice.produce(T0)).error_code == 0
        line = (
            "Principal = User:alice is Allowed Operation = Write from host = 127.0.0.1 on resource = Topic:LITERAL:t "
            "for request = Produce with resourceRefCount = 1"
        )
        lines = [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]
        assert lines == [line] * 3

    run_authorized(test)


def test_a_denial_is_a_line_of_the_audit_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")

    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        caplog.clear()
        assert (await broker.client().produce(T0)).error_code == TOPIC_REFUSED
        lines = [record.getMessage() for record in caplog.records if record.name == "kafka.authorizer.logger"]
        assert lines == [
            "Principal = User:alice is Denied Operation = Write from host = 127.0.0.1 on resource = Topic:LITERAL:t "
            "for request = Produce with resourceRefCount = 1"
        ]

    run_authorized(test)


def test_without_a_response_a_refused_producer_is_cut_off() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        with pytest.raises(Exception, match="Topic authorization failed"):
            await broker.client().produce(T0, acks=0)
        assert log_end(broker) == 0

    run_authorized(test)


# CVE-2018-17196: records of a transaction


def produce_request(
    records: dict[TopicPartition, bytes], transactional_id: str | None = None, acks: int = 1
) -> ProduceRequest:
    topics = [
        ProduceRequest.TopicProduceData(
            name=tp.topic,
            partition_data=[ProduceRequest.PartitionProduceData(index=tp.partition, records=data)],
        )
        for tp, data in records.items()
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=1000, topic_data=topics)


@pytest.mark.parametrize("transactional_id", [None, "of somebody else"])
@pytest.mark.parametrize("second", [False, True])
def test_records_of_a_transaction_need_its_id_wherever_they_stand_2018_17196(
    transactional_id: str | None, second: bool
) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        for name in ("t", "u"):
            await broker.root.create(name)
            broker.put(rule(WRITE, ResourceType.TOPIC, name))
        broker.put(rule(WRITE, ResourceType.TRANSACTIONAL_ID, "mine"))
        plain, transactional = bytes(batch(1)), bytes(batch(1, producer_id=5, transactional=True))
        u0 = TopicPartition("u", 0)
        records = {T0: plain, u0: transactional} if second else {T0: transactional, u0: plain}
        request = produce_request(records, transactional_id)
        for _ in range(2):
            response = await broker.client().send(request, ProduceResponse, 9)
            codes = [part.error_code for topic in response.responses for part in topic.partition_responses]
            assert codes == [TXN_REFUSED, TXN_REFUSED]
        assert log_end(broker) == log_end(broker, u0) == 0

    run_authorized(test)


def test_a_transaction_in_the_second_batch_is_not_appended_2018_17196() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        broker.put(WRITES_T)
        alice = broker.client()
        both = bytes(batch(1)) + bytes(batch(1, producer_id=5, transactional=True))
        assert (await alice.produce(T0, both)).error_code != 0
        assert (await alice.produce(T0)).error_code == 0, "and there is a template now"
        assert (await alice.produce(T0, both)).error_code != 0
        assert (await alice.produce(T0, batch(1, producer_id=5, transactional=True))).error_code == TXN_REFUSED
        assert log_end(broker) == 1

    run_authorized(test)


@pytest.mark.parametrize("version", range(3))
def test_message_sets_of_old_producers_need_the_right_to_write(version: int) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        alice, messages = broker.client(), message_set(version // 2)
        assert (await alice.produce(T0, messages, version=version)).error_code == TOPIC_REFUSED
        assert (
            await alice.produce(TopicPartition("missing", 0), messages, version=version)
        ).error_code == TOPIC_REFUSED
        broker.put(WRITES_T)
        assert (await alice.produce(T0, messages, version=version)).error_code == 0
        transactional = batch(1, producer_id=5, transactional=True)
        assert (await alice.produce(T0, transactional, version=version)).error_code == TXN_REFUSED
        assert log_end(broker) == 3

    run_authorized(test)


@pytest.mark.parametrize("version", range(4))
def test_old_consumers_need_the_right_to_read(version: int) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        await broker.root.create("off", message_downconversion_enable="false")
        await broker.root.produce(T0)
        request = fetch_request(topics=("t", "off", "missing"), version=version)
        alice = broker.client()
        refused = await alice.send(request, FetchResponse, version)
        assert codes_of(refused) == dict.fromkeys(("t", "off", "missing"), TOPIC_REFUSED)
        assert not any(part.records for topic in refused.responses for part in topic.partitions)
        broker.put(READS_T)
        assert codes_of(await alice.send(request, FetchResponse, version))["t"] == 0

    run_authorized(test)


# CVE-2018-1288: fetches in the name of a follower


def fetch_request(
    session: tuple[int, int] = (0, -1), replica: int = -1, topics: tuple[str, ...] = ("t",), version: int = 12
) -> FetchRequest:
    named = [
        FetchRequest.FetchTopic(
            topic=name,
            partitions=[FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
        )
        for name in topics
    ]
    state = FetchRequest.ReplicaState(replica_id=replica, replica_epoch=-1)
    request = FetchRequest(session_id=session[0], session_epoch=session[1], topics=named, max_wait_ms=0)
    if version >= 15:
        request.replica_state = state
    else:
        request.replica_id = replica
    return request


def codes_of(response: FetchResponse) -> dict[str, int]:
    return {topic.topic: part.error_code for topic in response.responses for part in topic.partitions}


@pytest.mark.parametrize("version", range(17))
def test_a_fetch_as_a_follower_needs_the_rights_of_a_broker_2018_1288(version: int) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        await broker.root.produce(T0)
        broker.put(READS_T)
        hosted = broker.broker.replicas.hosted[T0]
        assert hosted.leader_state is not None
        hosted.leader_state.followers[7] = follower = FollowerProgress()
        request = fetch_request(replica=7, version=version)
        for topic in request.topics:
            topic.topic_id = broker.broker.metadata.topics["t"].id
        response = await broker.client().send(request, FetchResponse, version)
        (part,) = [part for topic in response.responses for part in topic.partitions]
        assert part.error_code == TOPIC_REFUSED
        assert not part.records
        assert follower == FollowerProgress(), "the leader takes it for the follower"

    run_authorized(test)


# Sessions


def test_a_session_ends_with_the_right_also_for_partitions_that_a_fetch_does_not_name() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        for name in ("t", "u"):
            await broker.root.create(name)
            broker.put(rule(READ, ResourceType.TOPIC, name))
        alice = broker.client()
        opened = await alice.send(fetch_request((0, 0), topics=("t", "u")), FetchResponse, 12)
        assert codes_of(opened) == {"t": 0, "u": 0}
        quiet = await alice.send(fetch_request((opened.session_id, 1), topics=()), FetchResponse, 12)
        assert codes_of(quiet) == {}
        broker.put(rule(READ, ResourceType.TOPIC, "u", DENY))
        for epoch in (2, 3):
            refused = await alice.send(fetch_request((opened.session_id, epoch), topics=()), FetchResponse, 12)
            assert codes_of(refused) == {"u": TOPIC_REFUSED}
            (part,) = refused.responses[0].partitions
            assert (part.high_watermark, part.last_stable_offset, part.log_start_offset) == (-1, -1, -1)
        broker.remove_all()
        broker.put(READS_T, rule(READ, ResourceType.TOPIC, "u"))
        again = await alice.send(fetch_request((opened.session_id, 4), topics=()), FetchResponse, 12)
        assert codes_of(again) == {"u": 0}

    run_authorized(test)


def test_a_session_gives_nothing_to_another_client() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        await broker.root.produce(T0)
        broker.put(READS_T)
        opened = await broker.client().send(fetch_request((0, 0)), FetchResponse, 12)
        assert codes_of(opened) == {"t": 0}
        stolen = await broker.client(BOB).send(fetch_request((opened.session_id, 1), topics=()), FetchResponse, 12)
        assert codes_of(stolen) == {"t": TOPIC_REFUSED}
        assert not stolen.responses[0].partitions[0].records

    run_authorized(test)


def test_what_may_not_be_read_does_not_complete_a_fetch_early() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        for name in ("t", "secret"):
            await broker.root.create(name)
        await broker.root.produce(TopicPartition("secret", 0))
        broker.put(READS_T)
        request = fetch_request(topics=("secret", "missing", "t"))
        request.max_wait_ms, request.min_bytes = 60_000, 1
        waiting = asyncio.create_task(broker.client().send(request, FetchResponse, 12))
        await eventually(lambda: bool(broker.broker.replicas.hosted[T0].consumer_watchers))
        assert not waiting.done()
        await broker.root.produce(T0)
        response = await waiting
        assert codes_of(response) == {"t": 0, "secret": TOPIC_REFUSED, "missing": TOPIC_REFUSED}

    run_authorized(test)


@pytest.mark.parametrize("in_session", [True, False])
def test_a_fetch_that_waits_gets_nothing_once_the_right_is_revoked(in_session: bool) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        for name in ("t", "u"):
            await broker.root.create(name)
            broker.put(rule(READ, ResourceType.TOPIC, name))
        alice, session = broker.client(), (0, -1)
        if in_session:
            opened = await alice.send(fetch_request((0, 0), topics=("t", "u")), FetchResponse, 12)
            session = opened.session_id, 1
        request = fetch_request(session, topics=("t", "u"))
        request.max_wait_ms, request.min_bytes = 60_000, 1
        waiting = asyncio.create_task(alice.send(request, FetchResponse, 12))
        await eventually(lambda: bool(broker.broker.replicas.hosted[T0].consumer_watchers))
        broker.put(READS_T._replace(entry=READS_T.entry._replace(permission=DENY)))
        await broker.root.produce(T0)
        await broker.root.produce(TopicPartition("u", 0))
        response = await waiting
        assert codes_of(response) == {"t": TOPIC_REFUSED, "u": 0}
        assert not any(part.records for topic in response.responses if topic.topic == "t" for part in topic.partitions)

    run_authorized(test)


def test_a_consumer_that_was_allowed_is_decided_again_once_an_acl_changes() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        await broker.root.produce(T0)
        broker.put(READS_T)
        alice = broker.client()

        async def code() -> int:
            return codes_of(await alice.send(fetch_request((0, -1)), FetchResponse, 12))["t"]

        assert [await code(), await code()] == [0, 0]
        assert alice.client.grants.may_read("t", broker.authorizer.version)
        broker.put(rule(READ, ResourceType.TOPIC, "t", DENY))
        assert [await code(), await code()] == [TOPIC_REFUSED] * 2
        assert not alice.client.grants.may_read("t", broker.authorizer.version)
        alice.client.principal = BOB
        broker.remove_all()
        broker.put(READS_T)
        assert await code() == TOPIC_REFUSED

    run_authorized(test)


# Offset commits


def commit_request(offset: int) -> OffsetCommitRequest:
    part = OffsetCommitRequest.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=0, committed_metadata=""
    )
    topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", partitions=[part])
    return OffsetCommitRequest(group_id="g", topics=[topic])


async def commit(client: InMemoryClient, offset: int) -> int:
    response = await client.send(commit_request(offset), OffsetCommitResponse, 8)
    return response.topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("revoked", "code"),
    [
        (rule(READ, ResourceType.GROUP, "g", DENY), GROUP_REFUSED),
        (rule(READ, ResourceType.TOPIC, "t", DENY), TOPIC_REFUSED),
    ],
)
def test_a_commit_like_the_one_before_needs_the_rights_of_now(revoked: object, code: int) -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        await broker.root.send(request, FindCoordinatorResponse, 4)
        broker.put(READS_T, rule(READ, ResourceType.GROUP, "g"))
        alice = broker.client()
        assert [await commit(alice, offset) for offset in range(4)] == [0] * 4
        assert isinstance(alice.client.last_commit, OffsetCommitRequestTemplate)
        broker.put(revoked)  # type: ignore[arg-type]
        assert [await commit(alice, offset) for offset in range(4, 8)] == [code] * 4
        assert not isinstance(alice.client.last_commit, OffsetCommitRequestTemplate)

    run_authorized(test)


def test_a_new_principal_of_a_connection_is_authorized_anew() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        broker.put(WRITES_T)
        client = broker.client()
        assert (await client.produce(T0)).error_code == 0
        client.client.principal = BOB
        assert (await client.produce(T0)).error_code == TOPIC_REFUSED

    run_authorized(test)


# CVE-2024-27309: ACLs that are left when one is deleted


def test_the_others_hold_when_one_acl_is_deleted_and_after_a_restart_2024_27309() -> None:
    settings = {name.replace(".", "_"): value for name, value in AUTHORIZER.items()}
    may = {READ: True, WRITE: False, AclOperation.ALTER: False, AclOperation.DELETE: True}
    created = {READ: 3, WRITE: 2, AclOperation.DELETE: 3, AclOperation.ALTER: 3}  # by operation: the permission

    def check(broker: AuthorizedBroker) -> None:
        permissions = broker.authorizer.client(ALICE, "127.0.0.1")
        for operation, allowed in may.items():
            assert permissions.allows(operation, ResourceType.TOPIC, "t") is allowed

    async def main() -> None:
        with contextmanager(in_memory.directory)() as path:
            async with in_memory_broker(path, **settings) as root:
                broker = AuthorizedBroker(root)
                creations = [
                    CreateAclsRequest.AclCreation(
                        resource_type=2,
                        resource_name="t",
                        principal="User:alice",
                        host="*",
                        operation=operation,
                        permission_type=permission,
                    )
                    for operation, permission in created.items()
                ]
                answer = await root.send(CreateAclsRequest(creations=creations), CreateAclsResponse, 3)
                assert [result.error_code for result in answer.results] == [0] * 4
                deleted = DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=2,
                    resource_name_filter="t",
                    pattern_type_filter=3,
                    principal_filter="User:alice",
                    host_filter="*",
                    operation=AclOperation.ALTER,
                    permission_type=3,
                )
                response = await root.send(DeleteAclsRequest(filters=[deleted]), DeleteAclsResponse, 3)
                assert len(response.filter_results[0].matching_acls) == 1
                check(broker)
            async with in_memory_broker(path, **settings) as root:
                check(AuthorizedBroker(root))

    async def within_bounds() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await main()

    asyncio.run(within_bounds())


def test_a_frame_of_another_principal_is_authorized_anew() -> None:
    """The same bytes, to the byte, on two connections."""

    async def test(broker: AuthorizedBroker) -> None:
        await broker.root.create("t")
        broker.put(WRITES_T)
        frame = joined(request_frame(produce_request({T0: bytes(batch(1))}), 9, 7, "test"))[4:]

        async def code(client: InMemoryClient) -> int:
            reply = broker.broker.requests.serve(cast(Connection, client), memoryview(bytearray(frame)))
            if isinstance(reply, Awaitable):
                reply = await reply
            assert isinstance(reply, bytes | list)
            data = bytearray(joined([reply] if isinstance(reply, bytes) else reply))
            response = parse_response(ProduceResponse, data[4:], 9)[1]
            return response.responses[0].partition_responses[0].error_code

        alice, bob = broker.client(), broker.client(BOB)
        assert [await code(alice), await code(alice), await code(bob)] == [0, 0, TOPIC_REFUSED]

    run_authorized(test)

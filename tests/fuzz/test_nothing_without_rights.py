"""Thousands of requests of all kinds, whole and broken, by a user without any right: nothing of the broker changes."""

import asyncio
import random
from collections.abc import Awaitable
from typing import cast

from leadline.broker.connection import Connection
from leadline.broker.connection_state import CloseConnection
from leadline.broker.reply_queue import PendingReply
from leadline.security.principal import Principal
from leadline.wire import messages as m
from tests.fuzz.mutants import TOPIC, Mutants
from tests.support.authorization_examples import GROUP, ROWS, TXN_ID, Setup, find
from tests.support.authorized_broker import ROOT, AuthorizedBroker, run_authorized
from tests.support.in_memory_broker import InMemoryClient
from tests.support.logs import batch

COUNT = 20_000
SEED = random.randrange(1 << 32)
NOBODY = Principal("User", "nobody")


def fingerprint(broker: AuthorizedBroker) -> dict[str, object]:
    """What a client without rights must not change."""
    services = broker.broker.services
    return {
        "topics": {name: (topic.id, len(topic.partitions)) for name, topic in services.metadata.topics.items()},
        "logs": {tp: (hosted.log.log_start, hosted.log.log_end) for tp, hosted in services.replicas.hosted.items()},
        "epochs": {tp: hosted.epoch for tp, hosted in services.replicas.hosted.items()},
        "groups": {(group.id, group.state, group.generation) for group in services.groups.all()},
        "transactions": {
            (txn.name, txn.metadata.state, txn.metadata.producer_id) for txn in services.transactions.all()
        },
        "ACLs": broker.authorizer.version,
        "settings": id(services.settings.current),
        "configs": dict(services.configs.topics),
        "templates": sum(map(len, services.produce_templates.by_version.values())),
        "controller": (services.metadata.controller, services.metadata.controller_epoch),
        "directories": sorted(services.dirs.dirs),
    }


async def serve(broker: AuthorizedBroker, client: InMemoryClient, frame: bytes) -> None:
    try:
        reply = broker.broker.requests.serve(cast(Connection, client), memoryview(bytearray(frame)))
        async with asyncio.timeout(0.05):  # who waits longer goes away
            if isinstance(reply, PendingReply):
                await reply.answer
            elif isinstance(reply, Awaitable):
                await reply
    except (CloseConnection, TimeoutError):
        pass


async def set_up(broker: AuthorizedBroker) -> None:
    root = broker.root
    for name in (TOPIC, "t"):
        await root.create(name, partitions=2)
    for kind, key in ((0, GROUP), (1, TXN_ID), (0, "group"), (1, "payments")):
        await root.send(find(kind, key), m.FindCoordinatorResponse, 4)
    part = m.ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(3)))
    topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
    await root.send(m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), m.ProduceResponse, 9)


def test_a_user_without_rights_changes_nothing() -> None:
    print(f"seed {SEED}")

    async def test(broker: AuthorizedBroker) -> None:
        await set_up(broker)
        before, mutants = fingerprint(broker), Mutants(SEED)
        for _ in range(COUNT):
            await serve(broker, broker.client(NOBODY), mutants.one())
        assert fingerprint(broker) == before
        for _ in range(COUNT):
            await serve(broker, broker.client(ROOT), mutants.one())
            if fingerprint(broker) != before:
                return
        raise AssertionError("these requests change nothing, whoever sends them")

    run_authorized(test, auto_create_topics_enable="true")


def test_each_request_that_needs_a_right_changes_nothing_without_it() -> None:
    async def test(broker: AuthorizedBroker) -> None:
        await set_up(broker)
        services = broker.broker.services
        services.is_alone = False  # requests of other brokers are not refused for there being none
        setup, before = Setup(services.metadata.topics["t"].id, services.metadata.me.id), fingerprint(broker)
        for row in ROWS:
            kind = getattr(m, f"{row.request_name}Response")
            await broker.client(NOBODY).send(row.example.request(setup), kind, row.example.version)
            assert fingerprint(broker) == before, row

    run_authorized(test, auto_create_topics_enable="true")

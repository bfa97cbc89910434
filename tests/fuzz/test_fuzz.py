"""A hundred thousand requests, most of them broken: none ends the broker, none holds it up, none fills its memory."""

import asyncio
import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leadline.broker.broker import Broker
from leadline.controller import topics
from leadline.wire.apis import APIS
from leadline.wire.classes import Message
from leadline.wire.frames import parse_response
from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.fuzz.mutants import TOPIC, Mutants, frame
from tests.support import in_memory
from tests.support.broker import RunningBroker, leadline
from tests.support.fuzzed_broker import in_process, served
from tests.support.logs import batch

M = TypeVar("M", bound=Message)
IN_PROCESS = 90_000  # a third of that without --long
OVER_SOCKETS = 10_000
AT_ONCE = 200
GROWTH_MB = 150  # for the topics, sessions and producers that some of them do make
SLOWEST_S = 20.0  # one request, on a machine that has other things to do
SEED = random.randrange(1 << 32)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def rss_mb() -> float:
    return float(psutil.Process().memory_info().rss) / 1e6


async def ask(broker: Broker, kind: type[M], request: Message, version: int) -> M:
    answer = await served(broker, frame(request, version))
    assert answer is not None
    return parse_response(kind, answer[4:], version)[1]


async def check_service(broker: Broker) -> None:
    """Records, groups and transactions."""
    part = ProduceRequest.PartitionProduceData(index=0, records=bytes(batch(2)))
    topic = ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[part])
    produced = await ask(broker, ProduceResponse, ProduceRequest(acks=-1, topic_data=[topic]), 9)
    assert produced.responses[0].partition_responses[0].error_code == 0
    for kind, key in enumerate(("group", "payments")):
        request = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
        assert (await ask(broker, FindCoordinatorResponse, request, 4)).coordinators[0].error_code == 0
    offset = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[offset])]
    committed = await ask(broker, OffsetCommitResponse, OffsetCommitRequest(group_id="after", topics=topics), 8)
    assert committed.topics[0].partitions[0].error_code == 0
    init = InitProducerIdRequest(transactional_id="after", transaction_timeout_ms=1000)
    assert (await ask(broker, InitProducerIdResponse, init, 4)).error_code == 0


async def fuzz(directory: Path, count: int) -> None:
    mutants = Mutants(SEED)
    async with in_process(directory) as broker:
        await broker.services.cluster.create_topic(TOPIC, ((broker.services.cluster.metadata.me.id,),) * 2, {})
        for _ in range(2000):  # what is made once, codecs above all, is not growth
            await served(broker, mutants.one())
        before = rss_mb()
        for _ in range(0, count, AT_ONCE):
            await asyncio.gather(*(served(broker, mutants.one()) for _ in range(AT_ONCE)))
            if TOPIC not in broker.services.cluster.metadata.topics:  # one of them deleted it
                await broker.services.cluster.create_topic(TOPIC, ((broker.services.cluster.metadata.me.id,),) * 2, {})
        grown = rss_mb() - before
        assert grown < GROWTH_MB, f"{grown:.0f} MB more after {count} requests, seed {SEED}"
        assert broker.requests.slowest_turn < SLOWEST_S, f"one took {broker.requests.slowest_turn:.1f} s, seed {SEED}"
        assert not broker.failed.is_set()
        assert broker.services.groups.runtime.shards, "some of them were coordinated"
        await check_service(broker)


def test_mutants_in_the_process_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_long: bool
) -> None:
    monkeypatch.setattr(topics, "MAX_AT_ONCE", 5)  # a test of topics in great numbers would be another one
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    caplog.set_level("ERROR")
    try:
        asyncio.run(fuzz(tmp_path / "data", IN_PROCESS if is_long else IN_PROCESS // 3))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not [record for record in caplog.records if record.name != "asyncio"], f"seed {SEED}"


def send(broker: RunningBroker, frames: list[bytes], whole: bool) -> None:
    """All of them on one connection, or as many as it takes; the answers are read and thrown away."""
    with socket.create_connection(("localhost", broker.port), timeout=60) as connection:
        connection.settimeout(2)
        with suppress(OSError):
            for data in frames:
                connection.sendall(len(data).to_bytes(4, "big") + data)
            if whole:
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass


def test_ten_thousand_mutants_over_sockets(tmp_path: Path) -> None:
    mutants = Mutants(SEED + 1)
    fetch = FetchRequest(topics=[FetchRequest.FetchTopic(topic=TOPIC, partitions=[FetchRequest.FetchPartition()])])
    with leadline(tmp_path / "data", num_partitions=2, **{"max.incremental.fetch.session.cache.slots": 100}) as broker:
        process = psutil.Process(broker.pid)
        send(broker, [mutants.one() for _ in range(500)], whole=False)
        before = process.memory_info().rss
        for n in range(OVER_SOCKETS // 10):
            send(broker, [mutants.one() for _ in range(10)], whole=n % 4 == 0)
        data = frame(fetch, 12)
        with socket.create_connection(("localhost", broker.port), timeout=60) as connection:
            connection.sendall(len(data).to_bytes(4, "big") + data)
            with connection.makefile("rb") as reader:
                size = int.from_bytes(reader.read(4), "big")
                assert parse_response(FetchResponse, reader.read(size), 12)[0] == 7
        grown = (process.memory_info().rss - before) / 1e6
        assert grown < GROWTH_MB, f"{grown:.0f} MB more, seed {SEED + 1}"
        assert "Traceback" not in broker.output(), broker.output()[-5000:]
        assert broker.stop() == 0


HEADS = [(key, version) for key, api in APIS.items() for version in (*api.versions, -1, 99)]


@settings(max_examples=1000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=st.sampled_from(HEADS), body=st.binary(max_size=200))
def test_any_bytes_behind_any_head(
    head: tuple[int, int], body: bytes, broker: Broker, loop: asyncio.AbstractEventLoop
) -> None:
    key, version = head
    front = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big", signed=True) + b"\0\0\0\1\0\0\0"
    loop.run_until_complete(served(broker, front + body))


def test_a_request_of_countless_small_elements_is_refused_at_once(
    broker: Broker, loop: asyncio.AbstractEventLoop
) -> None:
    """Three bytes each on the wire, hundreds in memory: sixty times a frame of 100 MB would be too much for anybody."""
    head = b"\0\1\0\x0c" + b"\0\0\0\1\0\1x\0"  # Fetch v12
    body = bytes(4 + 4 + 4 + 4 + 1 + 4 + 4) + b"\xff\xff\xff\x0f" + b"\1\1\0" * 33_000_000
    before, started = rss_mb(), time.monotonic()
    assert loop.run_until_complete(served(broker, head + body)) is None
    assert time.monotonic() - started < SLOWEST_S
    assert rss_mb() - before < 100

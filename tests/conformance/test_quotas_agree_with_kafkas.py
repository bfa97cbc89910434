"""Measures of quotas against Kafka's own classes, over random histories; and throttle times of a real broker."""

import asyncio
import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from leadline.coordination.zookeeper.client import ZooKeeperTree
from leadline.errors import ThrottlingQuotaExceeded
from leadline.runtime.network import TcpNetwork
from leadline.runtime.ports import SystemTime
from leadline.security.client_quotas import DEFAULT, ClientQuotas, QuotaEntity, QuotaKind
from leadline.security.connection_rates import ConnectionRates
from leadline.security.quota_nodes import QuotaAlteration, altered
from leadline.security.quota_store import QuotaStore
from leadline.security.rates import Rate
from leadline.security.throttling import QuotaClient, produce_throttle_ms
from leadline.security.token_bucket import TokenBucket
from leadline.wire.frames import request_frame
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection, produced
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import broker, zookeeper
from tests.support.brokers import joined
from tests.support.logs import batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

CREATE_TOPICS = 19
HISTORIES = 400
NOW_MS = 1_794_778_757_210
PAUSES = [0, 0, 1, 17, 999, 1000, 1001, 2500, 9999, 10_000, 10_999, 11_000, 11_001, 23_456]


def kafkas_answers(lines: list[str]) -> list[list[str]]:
    command = jars.command("Quotas", classes=jars.compiled(jars.HERE / "java" / "Quotas.java"))
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


def random_history(random: Random) -> list[tuple[float, int]]:
    now, history = NOW_MS + random.randrange(10_000), list[tuple[float, int]]()
    for _ in range(random.randrange(1, 40)):
        now += random.choice(PAUSES)
        value = random.choice([random.randrange(100_000), random.random() * 100])
        history.append((value, now))
        if random.random() < 0.2:
            history.append((-value, now))  # as of a fetch that was throttled
    return history


def as_line(kind: str, bound: float, samples: int, seconds: int, history: list[tuple[float, int]]) -> str:
    pairs = itertools.chain.from_iterable((repr(value), str(now)) for value, now in history)
    return " ".join([kind, repr(bound), str(samples), str(seconds), *pairs])


def test_rates_measure_and_throttle_as_kafkas_do() -> None:
    random = Random(1)
    cases = [
        (
            random.choice([1.0, 50.5, 999.0, 20_000.0]),
            *random.choice([(11, 1), (11, 1), (3, 2)]),
            random_history(random),
        )
        for _ in range(HISTORIES)
    ]
    answers = kafkas_answers([as_line("rate", *case) for case in cases])
    for (bound, samples, seconds, history), kafkas in zip(cases, answers, strict=True):
        rate, ours = Rate(samples, seconds * 1000), list[str]()
        for value, now in history:
            rate.record(value, now)
            ours += [repr(rate.per_second(now)), str(rate.window_ms(now)), str(rate.throttle_ms(bound, now, 2**63))]
        pairs = zip(ours, kafkas, strict=True)
        assert [(float(mine), float(theirs)) for mine, theirs in pairs if float(mine) != float(theirs)] == []


def test_token_buckets_fill_and_throttle_as_kafkas_do() -> None:
    random = Random(2)
    cases = [
        (
            random.choice([0.5, 1.0, 10.0, 33.3]),
            11,
            1,
            [(abs(value) % 60, now) for value, now in random_history(random)],
        )
        for _ in range(HISTORIES)
    ]
    answers = kafkas_answers([as_line("bucket", *case) for case in cases])
    for (bound, samples, seconds, history), kafkas in zip(cases, answers, strict=True):
        bucket, ours = TokenBucket(samples, seconds * 1000), list[float]()
        for count, now in history:
            bucket.take(count, bound, now)
            ours += [bucket.tokens(bound, now), bucket.throttle_ms(bound, now)]
        assert ours == list(map(float, kafkas))


# A real broker


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a broker with quotas that our store has set: of bytes for each client id, of mutations for one."""
    directory: Path = tmp_path_factory.mktemp("quotas")
    with zookeeper(directory / "zk") as zk, broker(directory / "broker", zk) as server:
        connection = Connection("127.0.0.1", server.port)
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        connection.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 4)
        set_quota(zk.connect)
        until(lambda: has_quota(connection), "Kafka has the quota", 60)
        connection.close()
        yield server.port


def set_quota(connect: str) -> None:
    async def main() -> None:
        tree = await ZooKeeperTree.open(
            connect, session_timeout_ms=20_000, connection_timeout_ms=60_000, max_in_flight=10
        )
        store = QuotaStore(
            tree, ClientQuotas(), ConnectionRates(["PLAINTEXT"], "PLAINTEXT"), SystemTime(), TcpNetwork()
        )
        for entity, change in (
            (QuotaEntity(None, DEFAULT), QuotaAlteration("producer_byte_rate", 999)),
            (QuotaEntity(None, "mutator"), QuotaAlteration("controller_mutation_rate", 1)),
        ):
            await store.alter(entity, lambda config, e=entity, c=change: altered(e, config, [c]))  # type: ignore[misc]
        await tree.close()

    asyncio.run(main())


def has_quota(connection: Connection) -> bool:
    request = DescribeClientQuotasRequest(components=[], strict=False)
    return len(connection.ask(DescribeClientQuotasResponse, request, 0).entries or []) == 2


def of_default_quota() -> ClientQuotas:
    quotas = ClientQuotas()
    quotas.put(QuotaEntity(None, DEFAULT), {QuotaKind.PRODUCER_BYTE_RATE: 999})
    return quotas


@pytest.mark.parametrize("sizes", [[100, 5000, 20_000], [9000, 300, 1500], [30_000], [9_000, 100]])
def test_a_real_broker_throttles_for_as_long(kafka: int, sizes: list[int]) -> None:
    """It records by its own clock: the time lies between those of the earliest and the latest that this can be."""
    client = QuotaClient("ANONYMOUS", f"client of {sizes}")
    connection = Connection("127.0.0.1", kafka, str(client.client_id))
    at_once, spread = of_default_quota(), of_default_quota()
    first_ms = now_ms()
    for number, size in enumerate(sizes):
        request = ProduceRequest(acks=1, timeout_ms=9000, topic_data=[produced("t", bytes(batch(1, size=size)))])
        frame_bytes = len(joined(request_frame(request, 9, 1, connection.client_id))) - 4
        throttle_ms = connection.ask(ProduceResponse, request, 9).throttle_time_ms
        longest = produce_throttle_ms(at_once, client, frame_bytes, 0, 1, first_ms)
        shortest = produce_throttle_ms(spread, client, frame_bytes, 0, 1, now_ms() if number else first_ms)
        if number == 0:
            shortest = longest  # nothing but its own time counts
        assert shortest <= throttle_ms <= longest, (number, size)
        if throttle_ms:
            break  # the connection is muted
    connection.close()


def test_a_real_broker_refuses_mutations_for_as_long(kafka: int) -> None:
    """A bucket of 11 tokens is overdrawn by 12 partitions; the next topic is refused until it is filled again."""
    quotas = of_default_quota()
    quotas.put(QuotaEntity(None, "mutator"), {QuotaKind.CONTROLLER_MUTATION_RATE: 1})
    connection = Connection("127.0.0.1", kafka, "mutator")

    def create(name: str, partitions: int, version: int) -> tuple[int, int]:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = connection.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), version)
        return answer.topics[0].error_code, answer.throttle_time_ms

    def ours(partitions: int, version: int, at_ms: int) -> tuple[int, int]:
        quota, code = quotas.mutation_quota("ANONYMOUS", "mutator", CREATE_TOPICS, version, at_ms), 0
        try:
            quota.record(partitions, at_ms)
        except ThrottlingQuotaExceeded as error:
            code = error.code
        return code, quota.throttle_ms(at_ms)

    begun_ms = now_ms()
    assert create("mutated", 300, 7) == ours(300, 7, begun_ms) == (0, 0)
    code, throttle_ms = create("refused", 1, 7)
    ended_ms = now_ms()
    connection.close()  # it is muted
    assert ours(1, 7, begun_ms) == (code, 289_000)
    assert ours(1, 7, ended_ms)[1] <= throttle_ms <= 289_000
    connection = Connection("127.0.0.1", kafka, "mutator")
    code, throttle_ms = create("permitted", 10, 5)
    connection.close()
    assert ours(10, 5, now_ms())[1] <= throttle_ms <= 299_000
    assert code == 0


def now_ms() -> int:
    return time.time_ns() // 1_000_000

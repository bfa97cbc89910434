"""What is counted of requests: those that wait, whose fetch it is, and errors of fast paths."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import cast

import pytest

from leadline.api.context import Services
from leadline.api.request_metrics import FETCH, OF_FOLLOWER, RequestMetrics
from leadline.broker.reply_queue import PendingReply
from leadline.broker.requests import Requests
from leadline.metrics.collectors.requests import LOCAL, REMOTE, THROTTLE, TOTAL, measured_times
from leadline.model import TopicPartition
from leadline.security.client_quotas import ClientQuotas
from leadline.wire.messages import HeartbeatResponse
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch

HEARTBEAT, PRODUCE, VERSION = 12, 0, 4
KIND = HEARTBEAT << 8 | VERSION


class Clock:
    now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


def requests_at(clock: Clock) -> Requests:
    return Requests(cast(Services, SimpleNamespace(quotas=ClientQuotas())), clock.monotonic_s)


def test_a_request_that_waits_has_a_remote_time_and_one_that_does_not_has_none() -> None:
    async def main() -> None:
        clock = Clock()
        requests, answer = requests_at(clock), asyncio.get_running_loop().create_future()
        metrics = requests.metrics
        metrics.times[KIND].record(0.002)
        pending = requests._timed(PendingReply(answer, lambda value: b"%d" % value, True), KIND, 100.0, 0.001)
        assert isinstance(pending, PendingReply)
        clock.now_s = 100.5
        assert pending.frame(7) == b"7"
        assert metrics.requests == 2
        measured = {families: by_request["Heartbeat"] for families, by_request in measured_times(metrics).items()}
        assert measured[TOTAL].total_s == pytest.approx(0.502)
        assert measured[LOCAL].total_s == pytest.approx(0.003)
        assert measured[REMOTE].total_s == pytest.approx(0.499)
        assert {families: sum(times.snapshot) for families, times in measured.items()} == {
            TOTAL: 2,
            LOCAL: 2,
            REMOTE: 2,
            THROTTLE: 2,
        }

    asyncio.run(main())


def test_a_reply_that_is_awaited_as_a_whole_is_timed_as_well() -> None:
    async def reply() -> bytes:
        return b"reply"

    async def main() -> None:
        requests = requests_at(Clock())
        served = requests._timed(reply(), KIND, 99.0, 0.25)
        assert isinstance(served, Awaitable)
        assert await served == b"reply"
        waits = requests.metrics.times[KIND].waits
        assert waits is not None
        assert (waits.total.total_s, waits.remote.total_s) == (1.0, 0.75)

    asyncio.run(main())


def test_a_fetch_is_that_of_a_consumer_or_of_a_follower_and_both_together() -> None:
    metrics = RequestMetrics()
    for kind in (FETCH << 8 | 16, FETCH << 8 | 16, FETCH << 8 | 16 | OF_FOLLOWER):
        metrics.times[kind].record(0.001)
    counts = {name: sum(times.counts) for name, times in measured_times(metrics)[TOTAL].items()}
    assert counts == {"Fetch": 3, "FetchConsumer": 2, "FetchFollower": 1}


def test_errors_and_throttle_times_are_counted_by_request() -> None:
    metrics = RequestMetrics()
    metrics.count_errors(HEARTBEAT, HeartbeatResponse(error_code=25))
    metrics.count_errors(HEARTBEAT, HeartbeatResponse())
    metrics.throttled(HEARTBEAT, 250)
    metrics.times[KIND].record(0.001)
    assert metrics.errors == {(HEARTBEAT, 25): 1}
    assert measured_times(metrics)[THROTTLE]["Heartbeat"].total_s == 0.25


def test_an_error_on_the_fast_path_of_produce_is_counted_and_its_bytes_are_rejected() -> None:
    async def test(client: InMemoryClient) -> None:
        tp, large = TopicPartition("small", 0), batch(1, size=2000)
        await client.create(tp.topic, max_message_bytes="1000")
        assert (await client.produce(tp)).error_code == 0  # the template of those that follow
        for _ in range(2):
            assert (await client.produce(tp, large)).error_code == 10
        metrics = client.broker.requests.metrics
        assert metrics.errors[PRODUCE, 10] == 2
        counted = client.broker.replicas.hosted[tp].topic_metrics
        assert (counted.messages_in, counted.bytes_rejected) == (1, 2 * len(cast(bytes, large)))

    run(test)

"""The HTTP server on a broker in memory: what it answers, and whom it does not harm."""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from leadline.broker.broker_lifecycle import BrokerLifecycle
from leadline.metrics import metrics_server
from leadline.metrics.exposition import TextForm
from leadline.metrics.http_messages import MAX_HEAD_BYTES
from leadline.metrics.metrics_server import MAX_CONNECTIONS, MAX_SCRAPES, MetricsServer
from leadline.metrics.scrape import FAMILY_SETS, BrokerMetrics
from leadline.metrics.sources import metrics_sources
from leadline.model import TopicPartition
from leadline.runtime.selector import TimedSelector
from tests.support.failing_network import FailingNetwork
from tests.support.http_client import ByteStream, HttpAnswer, exchanged, get, parsed
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.waiting import eventually

ORDERS = TopicPartition("orders", 0)

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


class Scraped:
    """A broker in memory, and a client of its metrics."""

    def __init__(self, client: InMemoryClient) -> None:
        self.client, self.broker = client, client.broker
        self.network = client.broker.ports.network
        self.server = MetricsServer(BrokerMetrics(metrics_sources(self.broker, TimedSelector())), self.network)
        self.address = self.server.listen("127.0.0.1", 0)
        self.server.start()

    async def get(self, path: str, **headers: str) -> HttpAnswer:
        return await get(self.network, self.address, path, **headers)

    async def values(self) -> Values:
        text = (await self.get("/metrics")).body.decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


def scraped(test: Callable[[Scraped], Awaitable[None]], **settings: str) -> None:
    async def main(client: InMemoryClient) -> None:
        metrics = Scraped(client)
        try:
            await test(metrics)
        finally:
            metrics.server.stop()

    run(main, **settings)


def value(values: Values, name: str, **labels: str) -> float:
    return values[name, frozenset(labels.items())]


def test_requests_records_and_logs_are_counted() -> None:
    async def test(metrics: Scraped) -> None:
        await metrics.client.create("orders")
        for _ in range(3):
            await metrics.client.produce(ORDERS)
        await metrics.client.produce(TopicPartition("nowhere", 0))
        values = await metrics.values()
        topics = "kafka_server_brokertopicmetrics"
        assert value(values, f"{topics}_messagesin_total", topic="orders") == 3
        assert value(values, f"{topics}_bytesin_total", topic="orders") == value(values, f"{topics}_bytesin_total")
        requests = "kafka_network_requestmetrics"
        assert value(values, f"{requests}_requests_total", request="Produce", version="9") == 4
        assert value(values, f"{requests}_errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
        assert value(values, f"{requests}_totaltimems_count", request="Produce") == 4
        assert value(values, f"{requests}_totaltimems", request="Produce", quantile="0.50") > 0
        assert value(values, f"{requests}_remotetimems", request="Produce", quantile="0.999") == 0
        assert value(values, "kafka_log_log_logendoffset", topic="orders", partition="0") == 3
        assert value(values, "kafka_topic_partition_current_offset", topic="orders", partition="0") == 3
        assert value(values, "kafka_server_replicamanager_leadercount") == 1
        assert value(values, "kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert value(values, "kafka_server_kafkaserver_brokerstate") == 3

    scraped(test)


def test_both_forms_have_the_same_samples_and_every_family_is_in_the_table() -> None:
    async def test(metrics: Scraped) -> None:
        await metrics.client.create("orders", 2)
        await metrics.client.produce(ORDERS)
        plain = await metrics.get("/metrics")
        openmetrics = await metrics.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert plain.headers["content-type"] == TextForm.PROMETHEUS.value
        assert openmetrics.headers["content-type"] == TextForm.OPENMETRICS.value
        families = [family for families in FAMILY_SETS for family in families.families]
        by_name = {family.name: family for family in families}
        assert len(by_name) == len(families)
        names = set()
        for family in text_string_to_metric_families(plain.body.decode()):
            for sample in family.samples:
                names.add(sample.name)
                assert set(sample.labels) <= set(by_name[sample.name].labels), sample
        others = openmetrics_families(openmetrics.body.decode())  # type: ignore[no-untyped-call]
        assert {sample.name for family in others for sample in family.samples} == names

    scraped(test)


def test_a_counter_of_all_topics_does_not_go_back_when_a_topic_leaves() -> None:
    async def test(metrics: Scraped) -> None:
        name = "kafka_server_brokertopicmetrics_messagesin_total"
        for topic in ("orders", "others"):
            await metrics.client.create(topic)
            await metrics.client.produce(TopicPartition(topic, 0))
        assert value(await metrics.values(), name) == 2
        await metrics.broker.replicas.drop(TopicPartition("others", 0))
        values = await metrics.values()
        assert value(values, name) == 2
        assert (name, frozenset({("topic", "others")})) not in values

    scraped(test)


def test_percentiles_are_those_of_the_last_minutes() -> None:
    async def test(metrics: Scraped) -> None:
        name, labels = "kafka_network_requestmetrics_totaltimems", {"request": "Produce", "quantile": "0.99"}
        await metrics.client.create("orders")
        await metrics.client.produce(ORDERS)
        assert value(await metrics.values(), name, **labels) > 0
        metrics.server.process.end_period()
        values = await metrics.values()
        assert value(values, name, **labels) == 0
        assert value(values, f"{name}_count", request="Produce") == 1

    scraped(test)


def test_health_and_readiness_follow_the_state_of_the_broker() -> None:
    async def test(metrics: Scraped) -> None:
        assert await metrics.get("/healthz") == (200, metrics_head(3), b"ok\n")
        assert (await metrics.get("/readyz")).status == 200
        for state, reason in (
            (BrokerLifecycle.RECOVERY, "it loads its logs: 0 of 0 partitions"),
            (BrokerLifecycle.STARTING, "it starts"),
            (BrokerLifecycle.SHUTTING_DOWN, "it stops"),
        ):
            metrics.broker.state = state
            answer = await metrics.get("/readyz")
            assert (answer.status, answer.body.decode()) == (503, f"not ready: {reason}\n")
            assert (await metrics.get("/healthz")).status == 200
            values = await metrics.values()
            assert value(values, "kafka_server_kafkaserver_brokerstate") == state
        metrics.broker.state = BrokerLifecycle.RUNNING

    def metrics_head(length: int) -> dict[str, str]:
        return {
            "content-type": "text/plain; charset=utf-8",
            "connection": "close",
            "content-length": str(length),
        }

    scraped(test)


def test_a_broker_without_a_log_directory_is_not_ready() -> None:
    async def test(metrics: Scraped) -> None:
        dirs = metrics.broker.dirs
        online, dirs.dirs = dirs.dirs, {}
        dirs.offline["/data"] = "the disk failed"
        answer = await metrics.get("/readyz")
        dirs.dirs = online
        assert answer.status == 503
        assert b"no log directory is online: the disk failed" in answer.body

    scraped(test)


def test_other_requests_are_answered_with_what_is_wrong() -> None:
    async def test(metrics: Scraped) -> None:
        assert (await metrics.get("/")).status == 404
        for request, status in (
            (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
            (b"nonsense\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * MAX_HEAD_BYTES, 431),
        ):
            answer = await exchanged(metrics.network, metrics.address, request)
            assert parsed(answer).status == status
        head = parsed(await exchanged(metrics.network, metrics.address, b"HEAD /metrics HTTP/1.1\r\n\r\n"))
        assert (head.status, head.body) == (200, b"")

    scraped(test)


def test_an_old_client_gets_the_text_without_chunks() -> None:
    async def test(metrics: Scraped) -> None:
        answer = parsed(await exchanged(metrics.network, metrics.address, b"GET /metrics HTTP/1.0\r\n\r\n"))
        assert "transfer-encoding" not in answer.headers
        assert answer.body.startswith(b"# HELP kafka_server_kafkaserver_brokerstate")

    scraped(test)


def test_a_client_that_does_not_read_holds_up_nobody_and_costs_little() -> None:
    async def test(metrics: Scraped) -> None:
        await metrics.client.create("orders", 300)
        slow = []
        for _ in range(MAX_SCRAPES):
            stream = await metrics.network.connect(ByteStream, *metrics.address)
            stream.transport.pause_reading()
            stream.transport.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            slow.append(stream)
        await eventually(lambda: metrics.server.scrapes == MAX_SCRAPES)
        assert (await metrics.get("/metrics")).status == 503
        assert (await metrics.get("/healthz")).status == 200
        for connection in metrics.server.connections:
            assert len(connection.unsent) < 2 * metrics_server.STEP_BYTES
        await metrics.client.produce(ORDERS)
        for stream in slow:
            stream.transport.resume_reading()
            await asyncio.wait_for(stream.is_closed, 60)
            assert b"kafka_server_replicamanager_leadercount 300\n" in parsed(bytes(stream.received)).body
            stream.transport.close()
        assert metrics.server.scrapes == 0

    scraped(test)


def test_of_too_many_connections_the_oldest_gives_way() -> None:
    async def test(metrics: Scraped) -> None:
        idle = [await metrics.network.connect(ByteStream, *metrics.address) for _ in range(MAX_CONNECTIONS)]
        await eventually(lambda: len(metrics.server.connections) == MAX_CONNECTIONS)
        assert (await metrics.get("/healthz")).status == 200
        await asyncio.wait_for(idle[0].is_closed, 60)
        assert not idle[1].is_closed.done()
        for stream in idle:
            stream.transport.close()

    scraped(test)


def test_a_connection_is_closed_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_server, "TIMEOUT_S", 0.01)

    async def test(metrics: Scraped) -> None:
        stream = await metrics.network.connect(ByteStream, *metrics.address)
        stream.transport.write(b"GET /metr")
        await asyncio.wait_for(stream.is_closed, 60)
        assert len(metrics.server.connections) == 0
        stream.transport.close()

    scraped(test)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_a_shortage_makes_scrapers_wait_and_the_loop_does_not_spin(error: int) -> None:
    """Of the turns of the loop in twice SHORTAGE_S, only a few try to accept."""

    class Idle:
        def scrape(self, form: TextForm) -> Iterator[str]:
            yield ""

        def reasons_not_ready(self) -> list[str]:
            return []

        def end_period(self) -> None: ...

    async def test() -> None:
        network = FailingNetwork()
        server = MetricsServer(Idle(), network)
        address = server.listen("127.0.0.1", 0)
        server.start()
        try:
            network.listener.error = error
            answer = asyncio.ensure_future(get(network, address, "/healthz"))
            await eventually(lambda: network.listener.accepts > 0)
            loop = asyncio.get_running_loop()
            turns, ends_s = 0, loop.time() + 2 * metrics_server.SHORTAGE_S
            while loop.time() < ends_s:
                turns += 1
                await asyncio.sleep(0)
            assert turns > 10 * network.listener.accepts
            network.listener.error = 0
            assert (await answer).status == 200
        finally:
            server.stop()

    asyncio.run(test())

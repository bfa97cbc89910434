"""A cluster inside a test: its life, topics and records, snapshots, and what it leaves alone."""

import asyncio
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from leadline.testing import ClusterError, LocalCluster
from leadline.testing.async_cluster import AsyncCluster

POLL_S = 60.0


@pytest.mark.parametrize(("brokers", "limit_s"), [(1, 0.15), (3, 0.5)])
def test_it_is_ready_soon(brokers: int, limit_s: float) -> None:
    """In CPU time, which another load on the machine changes little: the best of three starts."""
    taken_s = []
    for _ in range(3):
        began_s = time.process_time()
        with LocalCluster(brokers=brokers):
            taken_s.append(time.process_time() - began_s)
    assert min(taken_s) < limit_s


def test_a_client_writes_and_reads(one: LocalCluster) -> None:
    topic = one.create_topic("written-by-a-client")
    producer = Producer({"bootstrap.servers": one.bootstrap_servers})
    producer.produce(topic, b"3 apples", key=b"anna")
    assert producer.flush(POLL_S) == 0
    consumer = Consumer({"bootstrap.servers": one.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(POLL_S)
    consumer.close()
    assert message is not None
    assert (message.key(), message.value()) == (b"anna", b"3 apples")
    assert one.values(topic) == ["3 apples"]


def test_records_go_in_and_out_in_one_line_each(one: LocalCluster) -> None:
    assert one.produce("in-and-out", ["plain", ("anna", {"apples": 3})], headers={"from": "test"}) == {0: 0}
    plain, order = one.records("in-and-out")
    assert (plain.key, plain.text, order.key, order.json) == (None, "plain", b"anna", {"apples": 3})
    assert [(header.key, header.value) for header in order.headers] == [("from", b"test")]
    assert one.end_offsets("in-and-out") == {0: 2}
    assert str(one.schema("in-and-out")).splitlines()[-1] == "    apples: integer"


def test_records_of_a_transaction_are_there_when_it_is_committed(one: LocalCluster) -> None:
    topic = one.create_topic("transactions")
    producer = Producer({"bootstrap.servers": one.bootstrap_servers, "transactional.id": "shop"})
    producer.init_transactions(POLL_S)
    for value, ends in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(POLL_S)
        ends(POLL_S)
    one.wait_for(lambda: one.values(topic) == ["committed"], "the marker of the commit")
    assert [record.text for record in one.records(topic, committed=False)] == ["aborted", "committed"]


def test_a_snapshot_starts_another_cluster_with_the_same_records_and_groups(tmp_path: Path) -> None:
    with LocalCluster(brokers=2, settings={"num.partitions": 2}) as before:
        before.create_topic("orders", partitions=3)
        before.produce("orders", [("a", "1"), ("b", "2"), ("c", "3")])
        expected = before.records("orders")
        before.snapshot(tmp_path / "orders")
        with pytest.raises(ClusterError, match="there is a snapshot"):
            before.snapshot(tmp_path / "orders")
    with LocalCluster(snapshot=tmp_path / "orders") as after:
        assert after.ids == [1, 2]
        assert after.records("orders") == expected
        after.produce("other", ["4"])
        assert len(after.end_offsets("other")) == 2
    with pytest.raises(ValueError, match="is of 2 brokers, not of 3"):
        LocalCluster(brokers=3, snapshot=tmp_path / "orders")


def test_a_seed_repeats_the_random_choices_of_the_brokers() -> None:
    ids = set()
    for _ in range(2):
        with LocalCluster(seed=7) as cluster:
            ids.add(cluster.broker(1).run(lambda broker: broker.metadata.cluster_id))
    assert len(ids) == 1


def test_a_single_broker_continues_after_a_kill() -> None:
    with LocalCluster() as cluster:
        cluster.produce("orders", ["one"])
        cluster.broker(1).kill()
        cluster.broker(1).start()
        cluster.produce("orders", ["two"])
        assert cluster.values("orders") == ["one", "two"]


def test_it_works_on_an_event_loop() -> None:
    async def main() -> None:
        async with LocalCluster() as cluster:
            await cluster.produce("orders", ["one"])
            assert await cluster.values("orders", 1) == ["one"]
            await cluster.broker(1).restart()
            await cluster.wait_for(lambda: cluster.broker(1).is_running)
            await cluster.clock.advance(seconds=1)
            assert "broker 1 leads" in await cluster.explain("orders")
            assert (await cluster.schema("orders")).values == {"text": 1}

    asyncio.run(main())


def test_an_event_loop_has_all_calls_of_a_cluster() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    of_brokers = {"broker_at", "changed", "wait_until_joined"}
    assert calls(LocalCluster) - calls(AsyncCluster) == of_brokers | {"start", "close"}  # `async with` does these

    async def main() -> None:
        async with LocalCluster() as cluster:
            topic = await cluster.topic("orders", configs={"retention.ms": 3_600_000})
            await cluster.produce(topic, ["old"])
            assert await cluster.end_offsets(topic) == {0: 1}
            await cluster.clock.advance(hours=2)

            async def is_deleted() -> bool:
                return await cluster.start_offsets(topic) == {0: 1}

            await cluster.wait_for(is_deleted, "the record is deleted")
            assert (await cluster.controller()).id == 1
            await cluster.delete_topics(topic)
            assert await cluster.topics() == []

    asyncio.run(main())


LEAVES_NOTHING = """
import gc, logging, os, resource, threading
from pathlib import Path
from leadline.testing import LocalCluster

def state():
    gc.collect()
    logger = logging.getLogger("leadline.broker.presence")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "collector": (gc.isenabled(), gc.get_freeze_count()),
        "limit": limit,
        "logger": (logger.level, logger.propagate, logger.filters),
        "threads": [thread.name for thread in threading.enumerate()],
        "descriptors": len(os.listdir("/proc/self/fd")),
    }

with LocalCluster(brokers=2):
    pass  # what is made once for the process is there now
before = state()
with LocalCluster(brokers=2) as cluster:
    cluster.produce("orders", ["one"])
    cluster.broker(2).kill()
    cluster.broker(2).start()
    directory = Path(cluster.broker(1).settings["log.dirs"]).parent
    assert directory.exists()
assert state() == before, f"{state()} instead of {before}"
assert not directory.exists()
"""


def test_it_leaves_the_process_as_it_was() -> None:
    """Limits, the collector, threads, descriptors, logging and files; and nothing is reported as left open."""
    result = subprocess.run([sys.executable, "-W", "error", "-c", LEAVES_NOTHING], capture_output=True, text=True)
    assert (result.returncode, [line for line in result.stderr.splitlines() if "Warning" in line]) == (0, []), result


def test_log_lines_of_brokers_reach_the_test_as_without_a_cluster(caplog: pytest.LogCaptureFixture) -> None:
    with LocalCluster(brokers=2) as cluster:
        assert any("is registered" in line for line in cluster.log_lines.last())
    assert not [record for record in caplog.records if record.levelno < logging.WARNING]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"nume.partitions": 3},
            r"settings that Kafka does not have: nume.partitions \(did you mean num\.partitions\?\)",
        ),
        ({"broker.id": 3}, "broker.id cannot be set: the cluster sets it for each broker"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        LocalCluster(settings=settings)


def test_a_broker_that_cannot_start_says_why() -> None:
    with (
        pytest.raises(ClusterError, match=r"broker 1 cannot start: .*bad"),
        LocalCluster(
            settings={"super.users": "bad", "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
        ),
    ):
        pass


def test_errors_name_what_was_wrong(one: LocalCluster) -> None:
    with pytest.raises(ClusterError, match="there is no broker 4: the brokers are 1"):
        one.broker(4)
    with pytest.raises(ClusterError, match=r"topic nothing cannot be read, after 0\.1 s: UnknownTopicOrPartition"):
        one.records("nothing", timeout_s=0.1)
    with pytest.raises(ClusterError, match="topic one-partition has no partition 5: it has 1, from 0"):
        one.produce(one.create_topic("one-partition"), ["x"], partition=5)
    with pytest.raises(TypeError, match="records are a list, not str"):
        one.produce("t", "x")
    with pytest.raises(ValueError, match="a clock can only be moved forward, not by -1 day"):
        one.clock.advance(days=-1)
    with pytest.raises(ClusterError, match=r"not so after 0\.05 s: the sea is dry\n<cluster of 1: 1 running>"):
        one.wait_for(lambda: False, "the sea is dry", timeout_s=0.05)
    with pytest.raises(ClusterError, match="not started"):
        _ = LocalCluster().bootstrap_servers
    with pytest.raises(ClusterError, match="there is no snapshot in nowhere"):
        LocalCluster(snapshot="nowhere")

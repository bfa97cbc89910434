"""Kafka's own tools on a cluster of three Leadline brokers: they print what they print on one of three Kafka brokers.

And beside them the commands of Leadline, on both clusters. What may differ is what `plain` leaves out.
"""

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition

from leadline.wire.messages import (
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection, produced
from tests.conformance.kafka.broker import Broker, broker, zookeeper
from tests.conformance.kafka.replica_verification import verified
from tests.conformance.kafka.tools import run as run_tool
from tests.support.broker import RunningBroker, leadline
from tests.support.commands import leadline as command
from tests.support.commands import lines
from tests.support.logs import batch
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

IDS = (1, 2, 3)
PATIENCE_S = 60
RATE = 2_000_000  # bytes a second, of moves
SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "auto.create.topics.enable": "false",
    "min.insync.replicas": 2,
    "offsets.topic.num.partitions": 3,
    "log.retention.ms": -1,
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "zookeeper.session.timeout.ms": 6000,
}
FILTERS = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--at-min-isr-partitions",
    "--under-min-isr-partitions",
)
Member = Broker | RunningBroker
T = TypeVar("T")


class Cluster:
    """Three brokers of one kind."""

    def __init__(self, name: str, place: Path, start: Callable[[int], AbstractContextManager[Member]]) -> None:
        self.name, self.place, self._start = name, place, start
        self._stack = ExitStack()
        self.members: dict[int, Member] = {}

    @property
    def bootstrap(self) -> str:
        return self.members[1].bootstrap

    def start(self, *ids: int) -> None:
        self.join(*ids)
        for topic in self.topics():
            until(partial(self.is_in_sync, topic.name or ""), PATIENCE_S)

    def join(self, *ids: int) -> None:
        """As `start`, but some replicas may stay away."""
        with ThreadPoolExecutor(len(IDS)) as at_once:
            started = at_once.map(lambda id: self._stack.enter_context(self._start(id)), ids)
            self.members |= zip(ids, started, strict=True)

    def close(self) -> None:
        self._stack.close()

    @property
    def folders(self) -> dict[int, Path]:
        return {id: self.place / f"{self.name}{id}" / "data" for id in IDS}

    def stop(self, id: int) -> None:
        self.members.pop(id).stop()
        until(lambda: all(part.leader_id != id for topic in self.topics() for part in topic.partitions), PATIENCE_S)

    def kill(self, id: int) -> None:
        self.members.pop(id).kill()
        until(lambda: all(part.leader_id != id for topic in self.topics() for part in topic.partitions), PATIENCE_S)

    def tool(self, name: str, *arguments: object) -> str:
        """What one of Kafka's tools prints from any broker, and a line with its exit code."""
        until(self.agree, PATIENCE_S)
        done = run_tool(name, "--bootstrap-server", self.bootstrap, *arguments)
        return f"{done.out}exit code {done.code}\n"

    def agree(self) -> bool:
        """Whether all brokers have heard the same."""
        answers = [sorted(self.topics(broker=id), key=lambda topic: topic.name or "") for id in self.members]
        for topic in (topic for topics in answers for topic in topics):
            topic.partitions.sort(key=lambda part: part.partition_index)
        return all(topics == answers[0] for topics in answers)

    def topics(self, *names: str, broker: int = 1) -> list[MetadataResponse.MetadataResponseTopic]:
        requested = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        with closing(Connection("127.0.0.1", self.members[broker].port)) as connection:
            return connection.ask(MetadataResponse, MetadataRequest(topics=requested or None), 9).topics

    def is_in_sync(self, topic: str) -> bool:
        (description,) = self.topics(topic)
        parts = description.partitions
        return bool(parts) and all(len(part.isr_nodes) == len(part.replica_nodes) for part in parts)

    def produce(self, topic: str, partition: int, data: bytes) -> None:
        (description,) = self.topics(topic)
        leader = next(part.leader_id for part in description.partitions if part.partition_index == partition)
        request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[produced(topic, data, partition)])
        with closing(Connection("127.0.0.1", self.members[leader].port)) as connection:
            answer = connection.ask(ProduceResponse, request, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


class Both:
    def __init__(self, kafka: Cluster, ours: Cluster) -> None:
        self.kafka, self.ours = kafka, ours
        self.clusters = (kafka, ours)

    def map(self, call: Callable[[Cluster], T]) -> list[T]:
        with ThreadPoolExecutor(2) as at_once:
            return list(at_once.map(call, self.clusters))

    def tool(self, name: str, *arguments: object) -> str:
        """What a tool prints on both alike."""
        theirs, ours = (plain(cluster.tool(name, *arguments)) for cluster in self.clusters)
        assert ours == theirs
        return ours

    def create(self, topic: str, assignment: str, *more: str) -> None:
        self.tool("topics", "--create", "--topic", topic, "--replica-assignment", assignment, *more)
        for cluster in self.clusters:
            until(partial(cluster.is_in_sync, topic), PATIENCE_S)


def described(cluster: Cluster, *which: str) -> str:
    return cluster.tool("topics", "--describe", *which).partition("exit code")[0]


def plain(text: str) -> str:
    """Without what each cluster has of its own: topic ids, folders, the words of errors, in which order ISRs grew."""
    text = re.sub(r"(Exception: ).*", r"\1*", text)
    text = re.sub(r"(TopicId: )\S+", r"\1*", text)
    text = re.sub(r'("logDir":")[^"]+', r"\1*", text)
    return re.sub(r"(Isr: )([\d,]+)", lambda match: match[1] + ",".join(sorted(match[2].split(","))), text)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    place = tmp_path_factory.mktemp("clusters")
    with zookeeper(place / "zookeeper") as coordinator:

        def settings(name: str, id: int) -> dict[str, object]:
            return {**SETTINGS, "broker.id": id, "broker.rack": f"rack{id}", "log.dirs": place / f"{name}{id}" / "data"}

        def a_kafka(id: int) -> AbstractContextManager[Broker]:
            return broker(place / f"Kafka{id}", f"{coordinator.connect}/kafka", **settings("Kafka", id))

        def one_of_ours(id: int) -> AbstractContextManager[RunningBroker]:
            own = {"listeners": "PLAINTEXT://127.0.0.1:0", "zookeeper.connect": f"{coordinator.connect}/ours"}
            return leadline(place / f"Leadline{id}", **settings("Leadline", id), **own)

        clusters = Both(Cluster("Kafka", place, a_kafka), Cluster("Leadline", place, one_of_ours))
        with closing(clusters.kafka), closing(clusters.ours):
            clusters.map(lambda cluster: cluster.start(*IDS))
            yield clusters


def test_topics_are_described_as_on_kafkas_and_by_both_tools_alike(both: Both) -> None:
    both.create("orders", "1:2:3,2:3:1,3:1:2", "--config", "retention.ms=9000000")
    both.create("lone", "2,3")
    both.tool("topics", "--describe", "--topic", "nothing")
    assert "Leader: 3\tReplicas: 3,1,2\tIsr: 1,2,3" in both.tool("topics", "--describe", "--topic", "orders")
    for cluster in both.clusters:
        assert command(cluster, "topics", "describe", "orders")[0] == described(cluster, "--topic", "orders")


def test_replicas_move_at_the_throttled_rate_and_their_sizes_are_kafkas(both: Both, tmp_path: Path) -> None:
    both.create("moved", "1:2,2:3")
    full = bytes(batch(size=900_000))
    for cluster in both.clusters:
        for partition in (0, 0, 0, 0, 0, 1):
            cluster.produce("moved", partition, full)
    sizes = both.tool("log-dirs", "--describe", "--topic-list", "moved")
    assert '"partition":"moved-0","size":4500' in sizes
    plan = write_plan(tmp_path / "plan.json", {0: [2, 3], 1: [3, 1, 2]})
    file = ("--reassignment-json-file", plan)

    def moves(cluster: Cluster) -> str:
        began = time.monotonic()
        output = cluster.tool("reassign", "--execute", *file, "--throttle", RATE)
        until(partial(has_replicas, cluster, "moved", [[2, 3], [3, 1, 2]]), PATIENCE_S)
        assert 5 * len(full) / (time.monotonic() - began) < 1.5 * RATE
        return plain(output)

    theirs, ours = both.map(moves)
    assert ours == theirs
    assert "Successfully started partition reassignments for moved-0,moved-1" in ours
    for entity, named in (("brokers", f"follower.replication.throttled.rate={RATE} "), ("topics", "replicas=0:1,0:2,")):
        assert named in both.tool("configs", "--describe", "--entity-type", entity)
    output = both.tool("reassign", "--verify", *file)
    assert "Reassignment of partition moved-1 is completed." in output
    assert "Clearing topic-level throttles on topic moved" in output
    for entity in ("brokers", "topics"):
        assert "throttled" not in both.tool("configs", "--describe", "--entity-type", entity)
    assert "No partition reassignments found." in both.tool("reassign", "--list")
    assert "None of the specified partition reassignments are active." in both.tool("reassign", "--cancel", *file)
    both.tool("topics", "--describe", "--topic", "moved")
    both.tool("log-dirs", "--describe", "--topic-list", "moved")


def test_what_is_on_its_way_is_shown_alike_and_can_be_called_back(both: Both, tmp_path: Path) -> None:
    """A throttle lets the first megabyte through, and then nothing for a while."""
    both.create("slow", "1:2,2:1")
    for cluster in both.clusters:
        for n in range(16):
            cluster.produce("slow", n % 2, bytes(batch(size=900_000)))
    plan = write_plan(tmp_path / "both.json", {0: [1, 3], 1: [2, 3]}, "slow")
    first, second = (
        write_plan(tmp_path / f"{n}.json", {n: replicas}, "slow") for n, replicas in enumerate(([1, 3], [2, 3]))
    )
    both.tool("reassign", "--execute", "--reassignment-json-file", plan, "--throttle", 1000)
    for cluster in both.clusters:
        until(partial(has_replicas, cluster, "slow", [[1, 3, 2], [2, 3, 1]]), PATIENCE_S)
    output = both.tool("topics", "--describe", "--topic", "slow")
    assert "Replicas: 1,3,2\tIsr: 1,2\tAdding Replicas: 3\tRemoving Replicas: 2\t" in output
    assert "slow-1: replicas: 2,3,1. adding: 3. removing: 1." in both.tool("reassign", "--list")
    output = both.tool("reassign", "--verify", "--reassignment-json-file", plan)
    assert "Reassignment of partition slow-0 is still in progress." in output
    theirs = {cluster: described(cluster, "--topic", "slow") for cluster in both.clusters}

    def by_our_commands(cluster: Cluster) -> None:
        assert command(cluster, "topics", "describe", "slow")[0] == theirs[cluster]
        assert command(cluster, "topics", "describe", "slow", "--under-replicated-partitions")[0] == ""
        assert lines(cluster, "reassign", "list")[1].split() == ["slow-0", "1,3,2", "3", "2"]
        verification, _ = command(cluster, "reassign", "verify", str(plan), code=1)
        assert "Reassignment of partition slow-1 is still in progress." in verification
        (line,) = lines(cluster, "reassign", "cancel", str(second))
        assert line == "Successfully cancelled partition reassignments for: slow-1"

    both.map(by_our_commands)
    output = both.tool("reassign", "--cancel", "--reassignment-json-file", first)
    assert "Successfully cancelled partition reassignment for: slow-0" in output
    for cluster in both.clusters:
        until(partial(has_replicas, cluster, "slow", [[1, 2], [2, 1]]), PATIENCE_S)
        until(partial(is_not_throttled, cluster, "slow"), PATIENCE_S)
    both.tool("topics", "--describe", "--topic", "slow")


def is_not_throttled(cluster: Cluster, topic: str) -> bool:
    """Any broker may answer: all of them have seen that the throttle is gone."""
    return all("throttled" not in described(cluster, "--topic", topic) for _ in range(3))


def test_what_cannot_be_reassigned_is_refused_alike(both: Both, tmp_path: Path) -> None:
    both.create("stays", "1:2")
    for replicas in ({0: [1, 4]}, {7: [1, 2]}):
        both.tool("reassign", "--execute", "--reassignment-json-file", write_plan(tmp_path / "p", replicas, "stays"))


def test_leadlines_own_commands_move_and_verify_on_both(both: Both, tmp_path: Path) -> None:
    both.create("again", "1:2,1:2")

    def moves_there_and_back(cluster: Cluster) -> None:
        plan = tmp_path / f"{cluster.name}.json"
        cluster.produce("again", 0, bytes(batch(size=5000)))
        _, summary = command(cluster, "reassign", "plan", "again", "--to", "2,3", "--out", str(plan))
        assert summary.startswith("2 partitions change; to be copied: 5.1 KB (5.1 KB to broker 3)\n")
        output = lines(cluster, "reassign", "execute", str(plan), "--throttle", "50000000")
        assert output[0].split() == "PARTITION NOW ON THEN ON TO COPY".split()
        assert output[-1].startswith("Done after ")
        assert lines(cluster, "reassign", "verify", str(plan))[1:] == [
            "Reassignment of partition again-0 is completed.",
            "Reassignment of partition again-1 is completed.",
        ]
        assert "throttled" not in command(cluster, "topics", "describe", "again")[0]
        assert lines(cluster, "reassign", "execute", str(plan))[0].startswith("Nothing to move")
        lines(cluster, "reassign", "execute", str(plan.with_suffix(".before.json")))
        assert has_replicas(cluster, "again", [[1, 2], [1, 2]])

    both.map(moves_there_and_back)


def write_plan(file: Path, replicas: dict[int, list[int]], topic: str = "moved") -> Path:
    entries = [{"topic": topic, "partition": number, "replicas": brokers} for number, brokers in replicas.items()]
    file.write_text(json.dumps({"version": 1, "partitions": entries}))
    return file


def has_replicas(cluster: Cluster, topic: str, expected: list[list[int]]) -> bool:
    parts = sorted(cluster.topics(topic)[0].partitions, key=lambda part: part.partition_index)
    return [part.replica_nodes for part in parts] == expected


def test_replicas_agree_for_the_tool_that_compares_them(both: Both) -> None:
    both.create("compared", "1:2:3")

    def is_verified(cluster: Cluster) -> None:
        for _ in range(20):
            cluster.produce("compared", 0, bytes(batch(size=500)))
        assert (
            verified(cluster.bootstrap, "compared")
            == "max lag is 0 for partition compared-0 at offset 20 among 1 partitions"
        )

    both.map(is_verified)


def test_with_a_broker_away_the_same_partitions_are_in_trouble_and_the_same_elections_help(
    both: Both, tmp_path: Path
) -> None:
    both.create("three", "1:2:3,2:3:1,3:1:2")
    both.create("two", "3:1,1:3,1:2")
    both.create("only", "3,1")
    both.map(lambda cluster: cluster.stop(3))
    for name in FILTERS:
        assert "Topic: " in both.tool("topics", "--describe", name)
    theirs = {(cluster, name): described(cluster, name) for cluster in both.clusters for name in FILTERS}

    def by_our_command(cluster: Cluster) -> None:
        for name in FILTERS:
            description = command(cluster, "topics", "describe", name, "--internal")[0]
            assert plain(description).splitlines() == sorted(plain(theirs[cluster, name]).splitlines())

    both.map(by_our_command)
    election = ("leader-election", "--election-type")
    assert "only-0" in both.tool(*election, "unclean", "--topic", "only", "--partition", 0)
    both.tool(*election, "preferred", "--topic", "three", "--partition", 2)
    both.tool(*election, "unclean", "--all-topic-partitions")
    for cluster in both.clusters:
        _, err = command(cluster, "leader-election", "preferred", "three:2", code=1)
        assert "three-2: " in err
        assert "(PREFERRED_LEADER_NOT_AVAILABLE)" in err
    both.tool("topics", "--create", "--topic", "later", "--replica-assignment", "1:3,2:3")
    assert "Replicas: 2,3\tIsr: 2\t" in both.tool("topics", "--describe", "--topic", "later")
    both.map(lambda cluster: cluster.start(3))
    happened = [event["what"] for event in explained(both.ours, "three:2")["events"]]
    assert happened[0] == "in sync 1,2,3 instead of 1,2: replica 3 holds all records up to 0"
    assert happened[-1].startswith("broker 3 leads: epoch 0, in sync 3,1,2")
    file = tmp_path / "partitions.json"
    file.write_text(json.dumps({"partitions": [{"topic": "three", "partition": number} for number in (0, 2)]}))
    output = both.tool(*election, "preferred", "--path-to-json-file", file)
    assert "Successfully completed leader election (PREFERRED) for partitions three-2" in output
    assert "Valid replica already elected for partitions three-0" in output
    for cluster in both.clusters:
        (done,) = lines(cluster, "leader-election", "preferred", "--all")
        assert done.startswith("Successfully completed leader election (PREFERRED) for partitions ")
        assert "two-0" in done
        assert lines(cluster, "leader-election", "preferred", "--all") == [
            "Valid replica already elected for all partitions"
        ]
    assert both.tool(*election, "preferred", "--all-topic-partitions") == "exit code 0\n"
    both.tool("topics", "--describe", "--topic", "two")


def test_a_partition_is_explained_as_far_as_its_brokers_tell(both: Both) -> None:
    both.create("told", "1:2:3")

    def explains(cluster: Cluster) -> None:
        cluster.produce("told", 0, bytes(batch()))
        until(lambda: explained(cluster)["high_watermark"] == 1, PATIENCE_S)
        explanation = explained(cluster)
        assert (explanation["leader"], explanation["replicas"], explanation["last_stable_offset"]) == (1, [1, 2, 3], 1)
        assert [(epoch["epoch"], epoch["start_offset"]) for epoch in explanation["epochs"]] == [(0, 0)]
        copies = [(replica["broker"], replica["lag"], replica["in_sync"]) for replica in explanation["replica_states"]]
        assert copies == [(1, 0, True), (2, 0, True), (3, 0, True)]
        assert explanation["history_kept"] == (cluster is both.ours)
        if cluster is both.kafka:
            assert lines(cluster, "explain", "told")[-1].startswith("These brokers keep no history")
        else:
            assert {replica["log_end"] for replica in explanation["replica_states"]} == {1}
            assert [event["what"] for event in explanation["events"]] == ["broker 1 leads: epoch 0, in sync 1,2,3"]

    both.map(explains)


def explained(cluster: Cluster, partition: str = "told:0") -> dict[str, Any]:
    explanation: dict[str, Any] = json.loads(lines(cluster, "explain", partition, "--json")[0])
    return explanation


def test_unclean_elections_lose_the_same_records_and_leave_the_same_files(both: Both) -> None:
    """One topic allows it by its settings, for the other it is requested."""
    allowed = ("--config", "min.insync.replicas=1", "--config", "unclean.leader.election.enable=true")
    both.create("lost", "2:3", *allowed)
    both.create("asked", "2:3", *allowed[:2])

    def produce(cluster: Cluster, *sizes: int) -> None:
        for topic in ("lost", "asked"):
            for size in sizes:
                cluster.produce(topic, 0, bytes(batch(size=size)))

    def lose(cluster: Cluster) -> None:
        produce(cluster, 10, 20, 30)
        cluster.stop(3)
        produce(cluster, 40, 50)
        cluster.kill(2)
        assert {leader(cluster, "lost"), leader(cluster, "asked")} == {-1}
        cluster.join(3)
        until(lambda: leader(cluster, "lost") == 3, PATIENCE_S)
        assert leader(cluster, "asked") == -1

    both.map(lose)
    output = both.tool("leader-election", "--election-type", "unclean", "--topic", "asked", "--partition", 0)
    assert "Successfully completed leader election (UNCLEAN) for partitions asked-0" in output

    def go_on(cluster: Cluster) -> None:
        until(lambda: leader(cluster, "asked") == 3, PATIENCE_S)
        produce(cluster, 60)
        cluster.start(2)
        produce(cluster, 70)

    both.map(go_on)
    for partition in ("lost-0", "asked-0"):
        for name in (f"{0:020}.log", "leader-epoch-checkpoint"):
            files = [cluster.folders[id] / partition / name for cluster in both.clusters for id in (2, 3)]
            until(lambda files=files: len({file.read_bytes() for file in files}) == 1, PATIENCE_S)  # type: ignore[misc]
    for topic in ("lost", "asked"):
        happened = [event["what"] for event in explained(both.ours, f"{topic}:0")["events"]]
        assert happened[1:3] == [
            "broker 2 truncated 2 records, from 5 back to 3, to follow broker 3 in epoch 3",
            "broker 3 leads: epoch 3, in sync 3, without 2; "
            "unclean: it was not in sync, and the records that it lacks are lost",
        ]
        log_text = both.ours.folders[3].parent.with_suffix(".log").read_text()
        assert f"{topic}-0: unclean election: records from 3 on that only other replicas hold are lost" in log_text


def leader(cluster: Cluster, topic: str) -> int:
    (part,) = cluster.topics(topic)[0].partitions
    return part.leader_id


def test_a_consumer_reads_from_the_follower_in_its_rack(both: Both) -> None:
    both.create("near", "1:2:3")
    data = bytes(batch(size=100_000))
    for cluster in both.clusters:
        for _ in range(20):
            cluster.produce("near", 0, data)
    for rack, replica in {"rack3": 3, "rack1": -1, "elsewhere": -1, "": -1}.items():
        theirs, ours = (fetched(cluster, "near", rack) for cluster in both.clusters)
        assert ours == theirs
        assert (ours.preferred_read_replica, bool(ours.records)) == (replica, replica == -1)
    for read in (by_the_java_client, by_librdkafka):
        for cluster in both.clusters:
            before = {id: bytes_out(member) for id, member in cluster.members.items()}
            assert read(cluster, "near", "rack3") == 20
            out = {id: bytes_out(member) - before[id] for id, member in cluster.members.items()}
            assert out[3] >= 20 * len(data)
            assert max(out[1], out[2]) < 10 * len(data)


def fetched(cluster: Cluster, topic: str, rack: str) -> FetchResponse.PartitionData:
    """From the start, of the leader."""
    part = FetchRequest.FetchPartition(partition=0, partition_max_bytes=150_000)
    request = FetchRequest(rack_id=rack, topics=[FetchRequest.FetchTopic(topic=topic, partitions=[part])])
    with closing(Connection("127.0.0.1", cluster.members[1].port)) as connection:
        (response,) = connection.ask(FetchResponse, request, 12).responses
    return response.partitions[0]


def bytes_out(member: Member) -> int:
    """Of files and sockets; sendfile's are counted, other messages on sockets are not."""
    return psutil.Process(member.process.pid).io_counters().write_chars


def by_the_java_client(cluster: Cluster, topic: str, rack: str) -> int:
    where = ("--topic", topic, "--partition", 0, "--offset", "earliest", "--max-messages", 20)
    output = cluster.tool("console-consumer", *where, "--consumer-property", f"client.rack={rack}")
    return output.count("\n") - 1


def by_librdkafka(cluster: Cluster, topic: str, rack: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "none", "client.rack": rack})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        return len(consumer.consume(20, PATIENCE_S))

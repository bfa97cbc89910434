"""Kafka's own command-line tools on a Leadline broker, and its dump on the files that Leadline wrote."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from tests.clients import cases
from tests.clients.client import Client
from tests.conformance.kafka import jars
from tests.conformance.kafka.tools import TOOL_S, run, tool
from tests.support.broker import RunningBroker

pytestmark = pytest.mark.conformance

Clients = Callable[[str], Client]

ARRIVAL_S = 120
PERF = "org.apache.kafka.tools.ProducerPerformance"


class Tools:
    """Kafka's tools, pointed at the broker."""

    def __init__(self, broker: RunningBroker) -> None:
        self.bootstrap = broker.bootstrap

    def __call__(self, name: str, *arguments: str) -> str:
        return tool(name, "--bootstrap-server", self.bootstrap, *arguments)

    def say(self, topic: str, lines: str, *arguments: str) -> None:
        """The console producer with these lines on stdin."""
        where = ("--bootstrap-server", self.bootstrap, "--topic", topic)
        done = run("console-producer", *where, *arguments, stdin=lines)
        assert done.code == 0, done.err
        assert "ERROR" not in done.out + done.err


@pytest.fixture(scope="module")
def tools(broker: RunningBroker) -> Tools:
    return Tools(broker)


def test_topics_and_their_settings_are_changed(tools: Tools, clients: Clients) -> None:
    topic = "tooled"
    made = tools("topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=-1")
    assert made == f"Created topic {topic}.\n"
    tools("topics", "--alter", "--topic", topic, "--partitions", "3")
    output = tools("topics", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=-1\n", output)
    assert re.search(r"Partition: 2\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", output)

    whose = ("--entity-type", "topics", "--entity-name", topic)
    add, delete = ("--add-config", "cleanup.policy=[compact,delete]"), ("--delete-config", "retention.ms")
    tools("configs", "--alter", *whose, *add, *delete)
    output = tools("configs", "--describe", *whose)
    assert "cleanup.policy=compact,delete" in output
    assert "retention.ms" not in output

    assert topic in tools("topics", "--list").split()
    tools("topics", "--delete", "--topic", topic)
    assert topic not in clients("librdkafka").ask("list_topics")


def test_settings_of_the_broker_are_changed(tools: Tools) -> None:
    whose = ("--entity-type", "brokers", "--entity-default")
    tools("configs", "--alter", *whose, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in tools("configs", "--describe", *whose)
    tools("configs", "--alter", *whose, "--delete-config", "log.cleaner.threads")


def test_the_versions_of_requests_are_listed(tools: Tools) -> None:
    output = tools("api-versions")
    assert "Produce(0): 0 to 11 [usable: 11]" in output
    assert "Fetch(1): 0 to 16" in output or "Fetch(1): 4 to 16" in output


def test_records_by_the_consoles_and_what_lies_on_disk(
    tools: Tools, clients: Clients, broker: RunningBroker, tmp_path: Path
) -> None:
    topic = "consoled"
    clients("librdkafka").ask("create_topic", topic=topic, partitions=1, config={})
    parse = ("--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL")
    tools.say(topic, "a:1,b:2\tk1\tfirst\nc:3\tNULL\tsecond\nd:4\tk3\tNULL\n", *parse, "--compression-codec", "zstd")
    tools.say(topic, "fourth\nfifth\n", "--compression-codec", "lz4")

    shown = [f"print.{what}=true" for what in ("key", "headers", "partition", "offset")]
    properties = [part for name in shown for part in ("--property", name)]
    where = ("--topic", topic, "--partition", "0", "--timeout-ms", "120000")
    output = tools("console-consumer", *where, "--offset", "earliest", "--max-messages", "5", *properties)
    assert output.splitlines() == [
        "Partition:0\tOffset:0\ta:1,b:2\tk1\tfirst",
        "Partition:0\tOffset:1\tc:3\tnull\tsecond",
        "Partition:0\tOffset:2\td:4\tk3\tnull",
        "Partition:0\tOffset:3\tNO_HEADERS\tnull\tfourth",
        "Partition:0\tOffset:4\tNO_HEADERS\tnull\tfifth",
    ]
    assert tools("console-consumer", *where, "--offset", "3", "--max-messages", "2") == "fourth\nfifth\n"

    assert tools("get-offsets", "--topic", topic) == f"{topic}:0:5\n"
    assert tools("get-offsets", "--topic", topic, "--time", "max-timestamp") == f"{topic}:0:4\n"
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 3}]}))
    assert f"partition: {topic}-0\tlow_watermark: 3" in tools("delete-records", "--offset-json-file", str(cut))
    assert clients("librdkafka").ask("list_offset", topic=topic, partition=0, at="earliest") == 3

    output = tools("log-dirs", "--describe", "--topic-list", topic)
    (directory,) = json.loads(output.splitlines()[-1])["brokers"][0]["logDirs"]
    segment = broker.directory / f"{topic}-0" / "00000000000000000000.log"
    assert directory["logDir"] == str(broker.directory)
    assert directory["partitions"] == [
        {"partition": f"{topic}-0", "size": segment.stat().st_size, "offsetLag": 0, "isFuture": False}
    ]

    dumped = tool("dump-log", "--print-data-log", "--files", segment)
    assert re.findall(r"compresscodec: (\w+)", dumped) == ["zstd", "lz4"]
    assert "isvalid: false" not in dumped
    assert len(re.findall(r"^\| offset: ", dumped, re.MULTILINE)) == 5


def test_a_leader_that_is_preferred_already_needs_no_election(tools: Tools, clients: Clients) -> None:
    clients("librdkafka").ask("create_topic", topic="elected", partitions=1, config={})
    output = tools("leader-election", "--election-type", "PREFERRED", "--topic", "elected", "--partition", "0")
    assert "Valid replica already elected for partitions elected-0" in output


@pytest.mark.parametrize("acks", ["0", "all"])
def test_the_performance_tool_loses_nothing(tools: Tools, clients: Clients, acks: str) -> None:
    topic, count = f"performed-{acks}", 10_000
    clients("librdkafka").ask("create_topic", topic=topic, partitions=3, config={})
    options = ("--topic", topic, "--num-records", str(count), "--record-size", "500", "--throughput", "-1")
    properties = (f"bootstrap.servers={tools.bootstrap}", f"acks={acks}")
    done = subprocess.run(
        jars.command(PERF, *options, "--producer-props", *properties), capture_output=True, text=True, timeout=TOOL_S
    )
    assert done.returncode == 0, done.stderr
    assert f"{count} records sent" in done.stdout
    deadline = time.monotonic() + ARRIVAL_S
    while time.monotonic() < deadline:  # with acks=0 nobody has waited for it
        ends = [clients("librdkafka").ask("list_offset", topic=topic, partition=n, at="latest") for n in range(3)]
        if sum(ends) == count:
            break
    assert sum(ends) == count


def test_producers_are_described(tools: Tools, clients: Clients) -> None:
    record = cases.Written(0, b"k", b"v", (), cases.START_MS).as_values()
    clients("librdkafka").ask("produce", topic="produced", codec="none", idempotent=True, records=[record] * 3)
    output = tools("transactions", "describe-producers", "--topic", "produced", "--partition", "0")
    (_, epoch, _, last_sequence, last_timestamp, _) = output.splitlines()[1].split()
    assert (epoch, last_sequence, last_timestamp) == ("0", "2", str(cases.START_MS))


def fill(clients: Clients, topic: str, count: int) -> None:
    clients("librdkafka").ask("create_topic", topic=topic, partitions=2, config={})
    records = [cases.Written(n % 2, b"k", b"v", (), cases.START_MS + n).as_values() for n in range(count)]
    clients("librdkafka").ask("produce", topic=topic, codec="none", idempotent=True, records=records)


def rows(output: str) -> list[list[str]]:
    """The cells of a table, without its heading."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    return sorted(lines[1:])


def test_a_group_is_described_reset_and_deleted(tools: Tools, clients: Clients) -> None:
    topic = group = "grouped"
    fill(clients, topic, 20)
    clients("librdkafka").ask("read_in_group", topic=topic, group=group, count=20, isolation="read_committed")
    assert [group, "Empty"] in [row[:2] for row in rows(tools("groups", "--list", "--state"))]
    described = rows(tools("groups", "--describe", "--group", group))
    assert [row[:6] for row in described] == [[group, topic, str(n), "10", "10", "0"] for n in range(2)]
    (state,) = rows(tools("groups", "--describe", "--group", group, "--state"))
    assert state[-2:] == ["Empty", "0"]

    reset = ("--reset-offsets", "--group", group, "--topic", topic)
    planned = tools("groups", *reset, "--to-earliest", "--dry-run").split()[4:]  # all in one line, behind the heading
    assert sorted([planned[:4], planned[4:]]) == [[group, topic, str(n), "0"] for n in range(2)]
    assert clients("java").ask("committed_offsets", group=group) == {"0": 10, "1": 10}
    tools("groups", *reset, "--shift-by", "-3", "--execute")
    assert clients("java").ask("committed_offsets", group=group) == {"0": 7, "1": 7}
    when = time.strftime("%Y-%m-%dT%H:%M:%S.000", time.gmtime(cases.START_MS / 1000))
    tools("groups", *reset, "--to-datetime", when, "--execute")
    assert clients("java").ask("committed_offsets", group=group) == {"0": 0, "1": 0}

    assert "Request succeed" in tools("groups", "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    assert clients("java").ask("committed_offsets", group=group) == {"1": 0}
    assert "was successful" in tools("groups", "--delete", "--group", group)
    assert group not in clients("java").ask("list_groups")


def test_a_group_in_use_shows_its_members_and_stays(tools: Tools, clients: Clients) -> None:
    topic = group = "in-use"
    fill(clients, topic, 4)
    settings = {"group.id": group, "client.id": "someone", "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": tools.bootstrap, **settings})
    consumer.subscribe([topic])
    deadline = time.monotonic() + ARRIVAL_S
    while len(consumer.assignment()) < 2:
        consumer.poll(0.05)
        assert time.monotonic() < deadline, "nothing was assigned"
    (member,) = rows(tools("groups", "--describe", "--group", group, "--members", "--verbose"))
    assert member[3:] == ["someone", "2", "(0,1)"]
    (state,) = rows(tools("groups", "--describe", "--group", group, "--state"))
    assert state[-3:] == ["range", "Stable", "1"]
    assert "GroupNotEmptyException" in tools("groups", "--delete", "--group", group)
    assert "current state is Stable" in tools(
        "groups", "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
    )
    consumer.close()


def test_an_open_transaction_is_found_and_aborted(tools: Tools, clients: Clients) -> None:
    topic, id = "opened", "of-an-open-one"
    fill(clients, topic, 2)
    producer = Producer({"bootstrap.servers": tools.bootstrap, "transactional.id": id, "log_level": 0})
    producer.init_transactions(ARRIVAL_S)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(ARRIVAL_S) == 0
    listed = {row[0]: row[3] for row in rows(tools("transactions", "list"))}
    assert listed[id] == "Ongoing"
    (transaction,) = rows(tools("transactions", "describe", "--transactional-id", id))
    assert transaction[1] == id
    assert transaction[4] == "Ongoing"
    assert transaction[-1] == f"{topic}-1"
    where = ("--topic", topic, "--partition", "1")
    (start,) = [row[-1] for row in rows(tools("transactions", "describe-producers", *where)) if row[-1] != "None"]
    assert start == "1"
    tools("transactions", "abort", *where, "--start-offset", start)
    producers = rows(tools("transactions", "describe-producers", *where))
    assert [row[-1] for row in producers if row[-1] != "None"] == [], "nothing is open any more"


def test_the_verifiable_tools_agree_on_what_was_sent(tools: Tools, clients: Clients) -> None:
    topic, count = "verified", 200
    clients("librdkafka").ask("create_topic", topic=topic, partitions=3, config={})
    sent = tools("verifiable-producer", "--topic", topic, "--max-messages", str(count))
    acked = {event["value"] for event in map(json.loads, sent.splitlines()) if event["name"] == "producer_send_success"}
    assert len(acked) == count
    options = ("--topic", topic, "--group-id", "verifying", "--max-messages", str(count), "--reset-policy", "earliest")
    read = [json.loads(line) for line in tools("verifiable-consumer", *options, "--verbose").splitlines()]
    assert {event["value"] for event in read if event["name"] == "record_data"} == acked
    assert [event["success"] for event in read if event["name"] == "offsets_committed"][-1] is True

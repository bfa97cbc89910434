"""Kafka's own command-line tools on a Leadline broker, and its dump on the files that Leadline wrote."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import cases
from tests.clients.client import Client
from tests.conformance.kafka import jars
from tests.conformance.kafka.broker import TOOL_S, TOOLS, tool
from tests.support.broker import RunningBroker

pytestmark = pytest.mark.conformance

Clients = Callable[[str], Client]

ARRIVAL_S = 10
PERF = "org.apache.kafka.tools.ProducerPerformance"


class Tools:
    """Kafka's tools, pointed at the broker."""

    def __init__(self, broker: RunningBroker) -> None:
        self.bootstrap = broker.bootstrap

    def __call__(self, name: str, *arguments: str) -> str:
        return tool(name, "--bootstrap-server", self.bootstrap, *arguments)

    def say(self, topic: str, lines: str, *arguments: str) -> None:
        """What the console producer is told on its stdin."""
        command = jars.command(
            TOOLS["console-producer"], "--bootstrap-server", self.bootstrap, "--topic", topic, *arguments
        )
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=TOOL_S)
        assert done.returncode == 0, done.stderr
        assert "ERROR" not in done.stdout + done.stderr


@pytest.fixture(scope="module")
def tools(broker: RunningBroker) -> Tools:
    return Tools(broker)


def test_topics_and_settings(tools: Tools, clients: Clients) -> None:
    topic = "tooled"
    made = tools("topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=-1")
    assert made == f"Created topic {topic}.\n"
    tools("topics", "--alter", "--topic", topic, "--partitions", "3")
    told = tools("topics", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=-1\n", told)
    assert re.search(r"Partition: 2\tLeader: (\d+)\tReplicas: \1\tIsr: \1\t", told)

    whose = ("--entity-type", "topics", "--entity-name", topic)
    add, delete = ("--add-config", "cleanup.policy=[compact,delete]"), ("--delete-config", "retention.ms")
    tools("configs", "--alter", *whose, *add, *delete)
    told = tools("configs", "--describe", *whose)
    assert "cleanup.policy=compact,delete" in told
    assert "retention.ms" not in told

    assert topic in tools("topics", "--list").split()
    tools("topics", "--delete", "--topic", topic)
    assert topic not in clients("librdkafka").ask("list_topics")


def test_settings_of_the_broker(tools: Tools) -> None:
    whose = ("--entity-type", "brokers", "--entity-default")
    tools("configs", "--alter", *whose, "--add-config", "log.cleaner.threads=2")
    assert "log.cleaner.threads=2" in tools("configs", "--describe", *whose)
    tools("configs", "--alter", *whose, "--delete-config", "log.cleaner.threads")


def test_the_versions_of_requests(tools: Tools) -> None:
    told = tools("api-versions")
    assert "Produce(0): 0 to 11 [usable: 11]" in told
    assert "Fetch(1): 0 to 16" in told or "Fetch(1): 4 to 16" in told


def test_records_by_the_consoles_and_what_lies_on_disk(
    tools: Tools, clients: Clients, broker: RunningBroker, tmp_path: Path
) -> None:
    topic = "consoled"
    clients("librdkafka").ask("create_topic", topic=topic, partitions=1, config={})
    parse = ("--property", "parse.key=true", "--property", "parse.headers=true", "--property", "null.marker=NULL")
    tools.say(topic, "a:1,b:2\tk1\tfirst\nc:3\tNULL\tsecond\nd:4\tk3\tNULL\n", *parse, "--compression-codec", "zstd")
    tools.say(topic, "fourth\nfifth\n", "--compression-codec", "lz4")

    shown = [f"print.{what}=true" for what in ("key", "headers", "partition", "offset")]
    properties = [part for each in shown for part in ("--property", each)]
    where = ("--topic", topic, "--partition", "0", "--timeout-ms", "10000")
    told = tools("console-consumer", *where, "--offset", "earliest", "--max-messages", "5", *properties)
    assert told.splitlines() == [
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

    told = tools("log-dirs", "--describe", "--topic-list", topic)
    (directory,) = json.loads(told.splitlines()[-1])["brokers"][0]["logDirs"]
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
    told = tools("leader-election", "--election-type", "PREFERRED", "--topic", "elected", "--partition", "0")
    assert "Valid replica already elected for partitions elected-0" in told


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
    record = cases.Written(0, b"k", b"v", (), cases.START_MS).asked()
    clients("librdkafka").ask("produce", topic="produced", codec="none", idempotent=True, records=[record] * 3)
    told = tools("transactions", "describe-producers", "--topic", "produced", "--partition", "0")
    (_, epoch, _, last_sequence, last_timestamp, _) = told.splitlines()[1].split()
    assert (epoch, last_sequence, last_timestamp) == ("0", "2", str(cases.START_MS))

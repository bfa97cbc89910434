"""The commands against a real Kafka: they print what Kafka's own tools print, and those see what they did."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from select import select

import pytest

from tests.conformance.kafka.broker import Broker, broker, zookeeper
from tests.conformance.kafka.tools import tool
from tests.support.commands import COMMAND_S, LEADLINE, leadline, lines, started

pytestmark = pytest.mark.conformance

ALL_FIELDS = "key,partition,offset,timestamp,headers"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("kafka")
    with (
        zookeeper(directory / "zookeeper") as coordinator,
        broker(directory / "broker", coordinator, broker_id=1, num_partitions=2, log_flush_interval_ms=7000) as server,
    ):
        yield server


def topics_tool(kafka: Broker, *arguments: str) -> str:
    return tool("topics", "--bootstrap-server", kafka.bootstrap, *arguments)


def configs_tool(kafka: Broker, *arguments: str) -> str:
    return tool("configs", "--bootstrap-server", kafka.bootstrap, *arguments)


def test_a_topic_is_described_byte_for_byte_as_kafkas_tool_does(kafka: Broker) -> None:
    settings = ("segment.bytes=20000", "cleanup.policy=compact,delete", "retention.ms=9", "max.message.bytes=5000")
    configs = [part for setting in settings for part in ("--config", setting)]
    out, _ = leadline(
        kafka, "topics", "create", "described", "--partitions", "3", "--replication-factor", "1", *configs
    )
    assert out == "Created topic described.\n"
    described = topics_tool(kafka, "--describe", "--topic", "described")
    assert leadline(kafka, "topics", "describe", "described")[0] == described
    (topic,) = map(json.loads, lines(kafka, "topics", "describe", "described", "--json"))
    assert topic["topic_id"] in described
    assert topic["configs"]["cleanup.policy"] == "compact,delete"
    assert [partition["leader"] for partition in topic["partitions"]] == [1, 1, 1]


def test_topics_are_created_with_the_clusters_defaults_listed_altered_and_deleted(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "passing")
    assert len(lines(kafka, "topics", "describe", "passing")) == 1 + 2
    assert "passing" in topics_tool(kafka, "--list").splitlines()
    assert lines(kafka, "topics", "list") == topics_tool(kafka, "--list", "--exclude-internal").splitlines()

    leadline(kafka, "topics", "alter", "passing", "--partitions", "4", "--config", "retention.ms=5")
    leadline(kafka, "topics", "alter", "passing", "--delete-config", "retention.ms")
    assert leadline(kafka, "topics", "describe", "passing")[0] == topics_tool(kafka, "--describe", "--topic", "passing")
    assert len(lines(kafka, "topics", "describe", "passing")) == 1 + 4

    assert leadline(kafka, "topics", "delete", "passing")[0] == "Deleted topic passing.\n"
    assert "passing" not in topics_tool(kafka, "--list").splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("topics create existing", "Topic 'existing' already exists. (TOPIC_ALREADY_EXISTS)"),
        ("topics create x --config retention=1", "Unknown topic config name: retention (INVALID_CONFIG)"),
        ("topics create x --config retentin.ms=1", "retentin.ms (INVALID_CONFIG) (did you mean retention.ms?)"),
        ("topics create x --replication-factor 3", "(INVALID_REPLICATION_FACTOR)"),
        ("topics create a/b", "(INVALID_TOPIC_EXCEPTION)"),
        ("topics describe exsting", "there is no topic exsting (did you mean existing?)"),
        ("topics alter exsting --partitions 9", "there is no topic exsting (did you mean existing?)"),
        ("topics alter existing --partitions 1", "(INVALID_PARTITIONS)"),
        ("topics delete exsting", "there is no topic exsting (did you mean existing?)"),
        ("configs describe --topic exsting", "there is no topic exsting (did you mean existing?)"),
        ("configs describe --broker 7", "there is no broker 7: the only broker is 1"),
        ("configs alter --topic existing --set retention.mss=1", "a topic has no setting retention.mss (did you mean"),
        ("configs alter --topic existing --set retention.ms=soon", "(INVALID_CONFIG)"),
        ("configs alter --broker 1 --set broker.id=2", "(INVALID_REQUEST)"),
        ("consume exsting", "there is no topic exsting (did you mean existing?)"),
        ("consume existing --partition 5", "existing has the partitions 0 to 1: there is no 5"),
        ("consume existing --offset 5", "existing-0 holds the offsets 0 to 0: there is no 5"),
        ("produce existing --partition 5", "existing has the partitions 0 to 1: there is no 5"),
        ("perf produce exsting --records 1", "there is no topic exsting (did you mean existing?)"),
    ],
)
def test_what_the_cluster_refuses_is_one_line(kafka: Broker, arguments: str, message: str) -> None:
    leadline(kafka, "topics", "create", "existing", "--if-not-exists")
    _, err = leadline(kafka, *arguments.split(), code=1)
    (line,) = err.splitlines()
    assert line.startswith("leadline: ")
    assert message in line


def test_what_may_be_missing_or_there_already_is_no_error(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "existing", "--if-not-exists")
    assert leadline(kafka, "topics", "create", "existing", "--if-not-exists") == ("", "")
    assert leadline(kafka, "topics", "delete", "nowhere", "--if-exists") == ("", "")


def test_settings_of_a_topic_are_shown_and_changed_as_kafkas_tool_does(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "tuned")
    whose = ("--topic", "tuned")
    leadline(kafka, "configs", "alter", *whose, "--set", "retention.ms=5", "--append", "cleanup.policy=compact")
    for every in ([], ["--all"]):
        shown, _ = leadline(kafka, "configs", "describe", *whose, *every)
        assert shown == configs_tool(kafka, "--describe", *whose, *every)
    assert "cleanup.policy=delete,compact" in shown
    leadline(kafka, "configs", "alter", *whose, "--subtract", "cleanup.policy=delete", "--delete", "retention.ms")
    (only,) = map(json.loads, lines(kafka, "configs", "describe", *whose, "--json"))
    assert (only["name"], only["value"], only["source"]) == ("cleanup.policy", "compact", "DYNAMIC_TOPIC_CONFIG")


def test_settings_of_brokers_are_shown_as_kafkas_tool_does(kafka: Broker) -> None:
    configs_tool(kafka, "--alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    out, _ = leadline(kafka, "configs", "alter", "--broker", "1", "--set", "background.threads=9")
    assert out == "Completed updating config for broker 1.\n"
    for whose in (["--broker-defaults"], ["--broker", "1"], ["--broker", "1", "--all"]):
        assert leadline(kafka, "configs", "describe", *whose)[0] == configs_tool(kafka, "--describe", *whose)


def test_what_is_produced_is_consumed_byte_for_byte_as_by_the_console_consumer(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "talk", "--partitions", "1")
    produced = b"h:1,i:two\tk1\tfirst\n\tk2\tNULL\n\tNULL\tthird\n"
    options = ("--parse-headers", "--key-separator", r"\t", "--null-marker", "NULL", "--header", "all=yes")
    _, err = leadline(kafka, "produce", "talk", *options, stdin=produced)
    assert err.startswith("produced 3 records (")
    leadline(kafka, "produce", "talk", "--compression", "zstd", "--timestamp", "2024-05-01T12:00Z", stdin=b"plain")
    printed = [f"print.{name}=true" for name in ALL_FIELDS.split(",")]
    theirs = tool(
        "console-consumer",
        "--bootstrap-server", kafka.bootstrap, "--topic", "talk", "--from-beginning", "--max-messages", "4",
        *(part for name in printed for part in ("--property", name)),
    )  # fmt: skip
    ours, err = leadline(kafka, "consume", "talk", "--from-beginning", "--to-end", "--print", ALL_FIELDS)
    assert ours == theirs
    assert err.startswith("consumed 4 records (")
    last = json.loads(lines(kafka, "consume", "talk", "--offset", "-1", "--to-end", "--output", "jsonl")[0])
    assert (last["offset"], last["timestamp"], last["key"], last["value"]) == (3, 1714564800000, None, "plain")


def test_a_whole_file_is_one_record(kafka: Broker, tmp_path: Path) -> None:
    leadline(kafka, "topics", "create", "files", "--partitions", "1")
    (tmp_path / "a").write_bytes(b"two\nlines")
    leadline(kafka, "produce", "files", "--file", str(tmp_path / "a"), "--key", "a")
    leadline(kafka, "produce", "files", "--file", "-", stdin=b"\n\n")
    rows = [
        json.loads(line) for line in lines(kafka, "consume", "files", "--offset", "0", "--max", "2", "--output=jsonl")
    ]
    assert [(row["key"], row["value"]) for row in rows] == [("a", "two\nlines"), (None, "\n\n")]


def test_failed_records_are_reported_and_counted_and_the_others_are_stored(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "small", "--partitions", "1", "--config", "max.message.bytes=1000")
    produced = b"a\n" + b"x" * 5000 + b"\nb\n"
    _, err = leadline(kafka, "produce", "small", "--property", "batch.size=100", stdin=produced, code=1)
    refused, summary = err.splitlines()
    assert "it has 5,000 B (5.0 KB); the topic's limit is 1,000 B" in refused
    assert summary.startswith("produced 2 records (")
    assert summary.endswith("; 1 record not stored")
    _, err = leadline(kafka, "produce", "small", "--key-separator", ":", stdin=b"a:c\nnothing\nb:d\n", code=1)
    assert "line 2: no key separator ':' in 'nothing'" in err
    assert lines(kafka, "consume", "small", "--from-beginning", "--to-end") == ["a", "b", "c"]


def test_a_transaction_is_seen_whole_or_not_at_all(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "deals", "--partitions", "1")
    leadline(kafka, "produce", "deals", "--transactional-id", "t", stdin=b"a\nb\n")
    _, err = leadline(
        kafka, "produce", "deals", "--transactional-id", "t", "--key-separator", ":", stdin=b"k:c\nno\n", code=1
    )
    assert "the transaction was aborted" in err
    whole = ("consume", "deals", "--from-beginning", "--to-end")
    assert lines(kafka, *whole, "--isolation", "read_committed") == ["a", "b"]
    assert lines(kafka, *whole) == ["a", "b", "c"]


def test_where_reading_starts_and_ends(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "ten", "--partitions", "2", "--config", "retention.ms=-1")
    for partition, at in (("0", "2024-01-01T00:00Z"), ("1", "now")):
        options = ("--partition", partition, "--timestamp", at)
        leadline(kafka, "produce", "ten", *options, stdin="".join(f"{partition}{n}\n" for n in range(5)).encode())
    assert lines(kafka, "consume", "ten", "--partition", "1", "--offset", "-2", "--to-end") == ["13", "14"]
    assert lines(kafka, "consume", "ten", "--partition", "0", "--offset", "1", "--max", "2") == ["01", "02"]
    assert lines(kafka, "consume", "ten", "--from-time", "-1h", "--to-end") == ["10", "11", "12", "13", "14"]
    assert len(lines(kafka, "consume", "ten", "--from-time", "2023-12-31", "--to-end")) == 10
    assert lines(kafka, "consume", "ten", "--to-end") == []


def test_a_group_goes_on_where_what_was_written_out_ends(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "queue", "--partitions", "2")
    leadline(kafka, "produce", "queue", stdin="".join(f"{n}\n" for n in range(10)).encode())
    read = ("consume", "queue", "--group", "readers", "--from-beginning")
    first = lines(kafka, *read, "--max", "3")
    rest = lines(kafka, *read, "--to-end")
    assert len(first) == 3
    assert sorted(first + rest, key=int) == [str(n) for n in range(10)]
    lag = tool("groups", "--bootstrap-server", kafka.bootstrap, "--describe", "--group", "readers")
    assert {row.split()[5] for row in lag.splitlines() if row.startswith("readers")} == {"0"}


def test_a_reader_that_goes_away_ends_consume_quietly(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "long", "--partitions", "1")
    leadline(kafka, "produce", "long", stdin=b"x" * 100 + b"\n" + (b"y" * 100 + b"\n") * 20_000)
    process = started(kafka, "consume", "long", "--from-beginning")
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"x" * 100 + b"\n"
    process.stdout.close()
    assert process.wait(COMMAND_S) == 0
    assert process.stderr.read() == b""
    process.communicate()


def test_ctrl_c_ends_consume_with_a_summary(kafka: Broker) -> None:
    leadline(kafka, "topics", "create", "live", "--partitions", "1")
    process = started(kafka, "consume", "live")
    assert process.stdout is not None
    while not select([process.stdout], [], [], 1)[0]:  # it reads what comes once it knows where the topic ends
        assert process.poll() is None
        leadline(kafka, "produce", "live", stdin=b"now\n")
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0
    read = (first + out).splitlines()
    assert set(read) == {b"now"}
    count = "1 record" if len(read) == 1 else f"{len(read)} records"
    assert err.decode().strip().startswith(f"consumed {count} ({3 * len(read)} B) from live")


def test_files_are_dumped_byte_for_byte_as_by_kafkas_tool(kafka: Broker) -> None:
    settings = [part for name in ("segment.bytes=3000", "index.interval.bytes=100") for part in ("--config", name)]
    leadline(kafka, "topics", "create", "dumped", "--partitions", "1", *settings)
    for n in range(8):
        leadline(kafka, "produce", "dumped", "--transactional-id", "d", "--header", "h=1", stdin=b"v" * 300)
        bad = ("--key-separator", ":", "--compression", "lz4") if n % 2 else ()
        leadline(kafka, "produce", "dumped", "--transactional-id", "d", *bad, stdin=b"k:\xff\nw\n", code=n % 2)
    directory = kafka.log_dir / "dumped-0"
    segments = sorted(path for path in directory.iterdir() if path.suffix in DUMPED)
    assert {path.suffix for path in segments} == DUMPED
    dump = ("dump-log", "--check")
    for ours, theirs, kinds in (
        ((), (), DUMPED),
        (("--deep",), ("--deep-iteration",), {".log"}),
        (("--data",), ("--print-data-log",), {".log"}),
    ):
        chosen = [str(path) for path in segments if path.suffix in kinds]
        done = subprocess.run([*LEADLINE, *dump, *ours, *chosen], capture_output=True, text=True, check=True)
        assert done.stdout == tool("dump-log", "--files", ",".join(chosen), *theirs)


DUMPED = {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


def test_a_log_directory_of_kafkas_is_dumped_without_a_complaint(kafka: Broker) -> None:
    command = [*LEADLINE, "dump-log", "--deep", "--check", "--json", str(kafka.log_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    types = {json.loads(line)["type"] for line in done.stdout.splitlines()}
    assert types >= {"meta_properties", "offset_checkpoint", "leader_epoch", "partition_metadata", "batch", "record"}


@pytest.mark.parametrize(
    ("arguments", "latencies"),
    [
        ("produce --records 5000 --size 50", {"latency_ms"}),
        ("consume --records 5000", set()),
        ("latency --records 50", {"stored_ms", "received_ms"}),
        ("produce --seconds 0.5 --rate 200 --acks 1 --compression lz4", {"latency_ms"}),
    ],
)
def test_performance_is_measured(kafka: Broker, arguments: str, latencies: set[str]) -> None:
    leadline(kafka, "topics", "create", "fast", "--partitions", "1", "--if-not-exists")
    kind, *rest = arguments.split()
    measured = json.loads(leadline(kafka, "perf", kind, "fast", *rest, "--json")[0])
    expected = int(rest[1]) if rest[0] == "--records" else 100
    assert measured["records"] == pytest.approx(expected, rel=0.2)
    assert measured["records_per_second"] == pytest.approx(measured["records"] / measured["seconds"], rel=0.05)
    assert latencies <= measured.keys()
    for name in latencies:
        assert 0 < measured[name]["p50"] <= measured[name]["p95"] <= measured[name]["p99"] <= measured[name]["p99.9"]

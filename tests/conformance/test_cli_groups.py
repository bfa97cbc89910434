"""`leadline groups` against a real Kafka and against Leadline: it tells what Kafka's own tool tells of the same."""

import json
import os
import pty
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.conformance.both import ANSWER_S, Both, Side
from tests.conformance.kafka.tools import tool
from tests.support.commands import COMMAND_S, LEADLINE, leadline, lines

pytestmark = pytest.mark.conformance

JOIN_S = 60
OLD_MS, YOUNG_MS = 1_600_000_000_000, 1_700_000_000_000


@pytest.fixture(scope="module", params=["Kafka", "Leadline"])
def cluster(request: pytest.FixtureRequest, both: Both) -> Side:
    return next(side for side in both.sides if side.name == request.param)


def topic_with_records(cluster: Side, name: str, partitions: int = 2, records: int = 10) -> str:
    """In each partition: old records, then as many young ones."""
    leadline(cluster, "topics", "create", name, "--partitions", str(partitions))
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in range(partitions):
        for n in range(records):
            producer.produce(name, b"x", partition=partition, timestamp=OLD_MS if n < records // 2 else YOUNG_MS)
    assert producer.flush(JOIN_S) == 0
    return name


def consumer(cluster: Side, group: str, **settings: str) -> Consumer:
    own_settings = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": "false"} | own_settings
    )


def commit(cluster: Side, group: str, topic: str, *offsets: int, metadata: str = "") -> None:
    """As a consumer without a group's protocol does it."""
    client = consumer(cluster, group)
    partitions = [TopicPartition(topic, n, offset, metadata) for n, offset in enumerate(offsets)]
    assert all(done.error is None for done in client.commit(offsets=partitions, asynchronous=False) or [])
    client.close()


def committed(cluster: Side, group: str) -> dict[int, int]:
    (described,) = map(json.loads, lines(cluster, "groups", "describe", group, "--json"))
    return {row["partition"]: row["committed"] for row in described["partitions"]}


@contextmanager
def members(cluster: Side, group: str, topic: str, *client_ids: str) -> Iterator[None]:
    """Active members, all of which have partitions."""
    clients = [consumer(cluster, group, client_id=name, group_instance_id=f"desk-{name}") for name in client_ids]
    try:
        for client in clients:
            client.subscribe([topic])
        deadline = time.monotonic() + JOIN_S
        while not all(client.assignment() for client in clients):
            assert time.monotonic() < deadline, f"no assignment after {JOIN_S} s"
            for client in clients:
                client.poll(0.1)
        yield
    finally:
        for client in clients:
            client.close()


def kafkas(cluster: Side, *arguments: str) -> list[list[str]]:
    """The rows that Kafka's own tool prints, without the head."""
    printed = tool("groups", "--bootstrap-server", cluster.bootstrap, *arguments).splitlines()
    rows = [line.split() for line in printed if line.strip()]
    return [row for row in rows if row[0] not in ("GROUP", "Consumer")]


def test_an_active_group_is_described_as_kafkas_tool_does(cluster: Side) -> None:
    topic = topic_with_records(cluster, "described-group")
    commit(cluster, "described", topic, 4, 10)
    with members(cluster, "described", topic, "anna", "ben"):
        (described,) = map(json.loads, lines(cluster, "groups", "describe", "described", "--json"))
        theirs = kafkas(cluster, "--describe", "--group", "described")
        listed = kafkas(cluster, "--list", "--state")
        ours = [line.split()[:2] for line in lines(cluster, "groups", "list")[1:]]
        text = "\n".join(lines(cluster, "groups", "describe", "described"))
        refused = [
            leadline(cluster, "groups", *arguments.split(), code=1)[1]
            for arguments in ("delete described", "reset-offsets described --all-topics --to-latest --execute")
        ]
    ids = {member["member_id"]: member for member in described["members"]}
    rows = [
        [
            "described",
            *(str(row[name]) for name in ("topic", "partition", "committed", "log_end", "lag", "owner")),
            ids[row["owner"]]["host"],
            ids[row["owner"]]["client_id"],
        ]
        for row in described["partitions"]
    ]
    assert rows == sorted(theirs)
    assert (described["state"], described["total_lag"]) == ("Stable", 6)
    assert [row for row in ours if row[0] == "described"] == [row[:2] for row in listed if row[0] == "described"]
    assert {row[0] for row in ours} == {row[0] for row in listed}
    assert "desk-anna" in text
    for line in refused:
        assert line.startswith("leadline: group described is active")
        assert "anna on " in line
        assert "ben on " in line


def test_the_last_rebalances_are_shown_where_the_cluster_keeps_them(cluster: Side) -> None:
    topic = topic_with_records(cluster, "rebalanced")
    with members(cluster, "watched", topic, "anna"):
        text = "\n".join(lines(cluster, "groups", "describe", "watched"))
    if cluster.name == "Kafka":
        assert text.endswith("This cluster keeps no history of rebalances.")
    else:
        assert "desk-anna on " in text
        assert " joined" in text


def test_a_reset_is_what_kafkas_tool_would_do_and_can_be_undone(cluster: Side, tmp_path: Path) -> None:
    topic = topic_with_records(cluster, "reset")
    commit(cluster, "rewound", topic, 4, 10, metadata="mine")
    whose = ("rewound", "--topic", topic)
    assert resets(cluster, *whose, "--to-datetime", str(YOUNG_MS)) == {0: 5, 1: 5}
    tools = ("--reset-offsets", "--group", "rewound", "--topic", topic, "--dry-run")
    for way in (["--shift-by", "-6"], ["--to-datetime", "2021-01-01T00:00:00.000"]):
        row = tool("groups", "--bootstrap-server", cluster.bootstrap, *tools, *way).split()  # all in one line
        assert resets(cluster, *whose, *way) == {int(row[n + 2]): int(row[n + 3]) for n in range(4, len(row), 4)}, way
    assert committed(cluster, "rewound") == {0: 4, 1: 10}

    resets(cluster, *whose, "--to-earliest", "--execute")
    assert {int(row[2]): int(row[3]) for row in kafkas(cluster, "--describe", "--group", "rewound")} == {0: 0, 1: 0}
    resets(cluster, "rewound", "--undo", "--execute")
    (described,) = map(json.loads, lines(cluster, "groups", "describe", "rewound", "--json"))
    assert [(row["committed"], row["metadata"]) for row in described["partitions"]] == [(4, "mine"), (10, "mine")]

    file = tmp_path / "offsets.csv"
    exported, _ = leadline(cluster, "groups", "reset-offsets", *whose, "--to-latest", "--export")
    file.write_text(exported)
    resets(cluster, "rewound", "--from-file", str(file), "--execute")
    assert committed(cluster, "rewound") == {0: 10, 1: 10}


def resets(cluster: Side, *arguments: str) -> dict[int, int | None]:
    """The new offset of each partition, as a reset shows it."""
    shown = map(json.loads, lines(cluster, "groups", "reset-offsets", *arguments, "--json"))
    return {row["partition"]: row["new"] and row["new"]["offset"] for row in shown}


def test_a_reset_is_shown_with_the_times_of_records_and_what_it_means(cluster: Side) -> None:
    topic = topic_with_records(cluster, "shown")
    commit(cluster, "looking", topic, 4, 10)
    call = ("reset-offsets", "looking", "--topic", f"{topic}:0-1", "--to-offset", "6")
    head, first, second, summary = lines(cluster, "groups", *call)
    assert head.split() == ["PARTITION", "CURRENT", "WRITTEN", "NEW", "WRITTEN", "MEANS"]
    old, young = (time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(at_ms / 1000)) for at_ms in (OLD_MS, YOUNG_MS))
    assert first.split() == [f"{topic}-0", "4", old, "6", young, "skips", "2"]
    assert second.split() == [f"{topic}-1", "10", "the", "end", "6", young, "reads", "4", "again"]
    assert summary.startswith("Of the records, 4 will be read again, 2 will be skipped. Nothing has been changed")
    assert committed(cluster, "looking") == {0: 4, 1: 10}


def test_undo_forgets_what_was_never_committed_and_is_too_late_after_a_commit(cluster: Side) -> None:
    topic = topic_with_records(cluster, "undone")
    resets(cluster, "fresh", "--topic", topic, "--to-offset", "3", "--execute")
    commit(cluster, "fresh", topic, 8)
    out, err = leadline(cluster, "groups", "reset-offsets", "fresh", "--undo", "--execute", "--json")
    assert [(row["partition"], row["new"]) for row in map(json.loads, out.splitlines())] == [(1, None)]
    assert f"too late for {topic}-0: the group has committed 8 there since" in err
    assert committed(cluster, "fresh") == {0: 8}
    _, err = leadline(cluster, "groups", "reset-offsets", "fresh", "--undo", code=1)
    assert err.startswith("leadline: nothing to undo: group fresh was not reset by this command")


def test_a_group_is_deleted_once_a_person_agrees(cluster: Side) -> None:
    topic = topic_with_records(cluster, "parted")
    commit(cluster, "parted-1", topic, 4)
    commit(cluster, "parted-2", topic, 4)
    assert answered(cluster, "n", "groups", "delete", "parted-1") == 1
    assert answered(cluster, "y", "groups", "delete", "parted-1") == 0
    assert leadline(cluster, "groups", "delete", "parted-2")[0] == "Deleted group parted-2.\n"
    assert not {"parted-1", "parted-2"} & {row[0] for row in kafkas(cluster, "--list")}


def answered(cluster: Side, answer: str, *arguments: str) -> int:
    """The exit code of a command on a terminal where a person types an answer."""
    ours, theirs = pty.openpty()
    try:
        command = [*LEADLINE, *arguments, "--bootstrap-server", cluster.bootstrap]
        process = subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.write(ours, f"{answer}\n".encode())
        _, err = process.communicate(timeout=COMMAND_S)
    finally:
        os.close(ours)
        os.close(theirs)
    assert b"Delete group parted-1 and its 1 committed offsets? [y/N]" in err
    return process.returncode


@pytest.fixture(scope="module")
def sorted_group(cluster: Side) -> None:
    topic_with_records(cluster, "sorted")
    commit(cluster, "sorted-group", "sorted", 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("describe sorted-grup", "there is no group sorted-grup (did you mean sorted-group?)"),
        ("delete sorted-grup", "there is no group sorted-grup (did you mean sorted-group?)"),
        ("reset-offsets nobody --all-topics --to-latest", "group nobody has committed nothing"),
        ("reset-offsets sorted-group --topic sortd --to-latest", "there is no topic sortd (did you mean sorted?)"),
        ("reset-offsets sorted-group --topic sorted:7 --to-latest", "sorted has the partitions 0 to 1: there is no 7"),
        ("reset-offsets sorted-group --topic sorted --shift-by 1", "sorted-1: no committed offset to shift by 1"),
    ],
)
@pytest.mark.usefixtures("sorted_group")
def test_what_cannot_be_done_is_one_line(cluster: Side, arguments: str, message: str) -> None:
    _, err = leadline(cluster, "groups", *arguments.split(), "--timeout", str(ANSWER_S), code=1)
    (line,) = err.splitlines()
    assert line.startswith("leadline: ")
    assert message in line

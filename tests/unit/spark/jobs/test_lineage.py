"""Lineage of commits as OpenLineage events, and how they are sent."""

import json
import threading
import uuid
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from leadline.model import TopicPartition
from leadline.spark.errors import JobFailed
from leadline.spark.jobs import lineage_sender
from leadline.spark.jobs.lineage import CommitFacts, Event, events_of, table_dataset, topic_dataset
from leadline.spark.jobs.lineage_sender import LineageSender, sender_to
from leadline.spark.ranges import Range

WAIT_S = 60
RANGES = [Range(TopicPartition("orders", 0), 5, 9), Range(TopicPartition("orders", 1), 0, 3)]
COMMIT = CommitFacts(
    "localhost:9092,other:9092", "orders", "abc", "delta", "/lake/orders", 7, RANGES, 7, 1, 2, 1_700_000_000_500, 1.5
)


def test_a_commit_is_a_run_with_a_start_and_an_end() -> None:
    start, end = (json.loads(json.dumps(event)) for event in events_of(COMMIT))
    assert (start["eventType"], start["eventTime"]) == ("START", "2023-11-14T22:13:19.000Z")
    assert (end["eventType"], end["eventTime"]) == ("COMPLETE", "2023-11-14T22:13:20.500Z")
    assert start["run"]["runId"] == end["run"]["runId"] == str(uuid.UUID(end["run"]["runId"]))
    assert (end["job"]["namespace"], end["job"]["name"]) == ("kafka://localhost:9092", "leadline.table.orders")
    (read,), (written,) = end["inputs"], end["outputs"]
    assert (read["namespace"], read["name"]) == ("kafka://localhost:9092", "orders")
    assert read["inputFacets"]["leadline_offsets"]["partitions"] == {
        "0": {"first": 5, "until": 9},
        "1": {"first": 0, "until": 3},
    }
    assert (written["namespace"], written["name"]) == ("file", "/lake/orders")
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (6, 2)


def test_the_same_commit_has_the_same_run_and_another_one_another() -> None:
    def run_id(commit: CommitFacts) -> Any:
        run: Any = events_of(commit)[0]["run"]
        return run["runId"]

    assert run_id(COMMIT) == run_id(replace(COMMIT, committed_ms=1))
    assert len({run_id(replace(COMMIT, batch=batch)) for batch in range(5)}) == 5


@pytest.mark.parametrize(
    ("kind", "table", "namespace", "name"),
    [
        ("delta", "/lake/orders", "file", "/lake/orders"),
        ("delta", "file:///lake/orders", "file", "/lake/orders"),
        ("delta", "s3://lake/raw/orders", "s3://lake", "raw/orders"),
        ("delta", "s3://me:secret@lake/orders", "s3://lake", "orders"),
        (
            "delta",
            "abfss://box@account.dfs.core.windows.net/orders",
            "abfss://box@account.dfs.core.windows.net",
            "orders",
        ),
        ("iceberg", "prod:sales.orders", "iceberg://prod", "sales.orders"),
    ],
)
def test_tables_have_the_names_of_openlineages_conventions(kind: str, table: str, namespace: str, name: str) -> None:
    assert table_dataset(kind, table) == {"namespace": namespace, "name": name}


def test_the_first_server_names_the_cluster() -> None:
    assert topic_dataset("SASL_SSL://a:9092, b:9092", "t") == {"namespace": "kafka://a:9092", "name": "t"}


def test_events_are_lines_of_a_file(tmp_path: Path) -> None:
    sender = LineageSender(sender_to(str(tmp_path / "lineage.jsonl")), print)
    sender.add(events_of(COMMIT))
    assert sender.stop(WAIT_S) == 0
    lines = (tmp_path / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_events_are_posted_with_the_key_of_the_environment() -> None:
    received: list[tuple[str, str | None, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.append((self.path, self.headers["Authorization"], body))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        send = sender_to(f"http://127.0.0.1:{server.server_port}", {"OPENLINEAGE_API_KEY": "k"})
        sender = LineageSender(send, print)
        sender.add(events_of(COMMIT))
        assert sender.stop(WAIT_S) == 0
        server.shutdown()
        thread.join()
    assert [(path, key) for path, key, _ in received] == [("/api/v1/lineage", "Bearer k")] * 2
    assert [body["eventType"] for *_, body in received] == ["START", "COMPLETE"]


class Place:
    """Refuses events until it is let."""

    def __init__(self) -> None:
        self.is_open, self.events = False, list[Event]()
        self.refused, self.taken = threading.Event(), threading.Event()

    def send(self, event: Event) -> None:
        if not self.is_open:
            self.refused.set()
            raise OSError("away")
        self.events.append(event)
        self.taken.set()


def test_events_wait_while_the_place_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_sender, "FIRST_PAUSE_S", 0.01)
    place, lines = Place(), list[str]()
    sender = LineageSender(place.send, lines.append)
    sender.add([{"n": 1}, {"n": 2}])
    assert place.refused.wait(WAIT_S)
    place.is_open = True
    assert place.taken.wait(WAIT_S)
    assert sender.stop(WAIT_S) == 0
    assert place.events == [{"n": 1}, {"n": 2}]
    assert lines == ["lineage: away. Events wait, and commits continue", "lineage: events are taken again"]


def test_the_oldest_events_are_dropped_when_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage_sender, "MAX_EVENTS", 3)
    place = Place()
    sender = LineageSender(place.send, lambda _: None)
    sender.add([{"n": number} for number in range(10)])
    assert place.refused.wait(WAIT_S)
    assert (sender.dropped, sender.stop(WAIT_S)) == (7, 10)


def test_a_place_that_is_neither_a_url_nor_a_file_is_refused() -> None:
    with pytest.raises(JobFailed, match="expected http://, https:// or the path of a file"):
        sender_to("kafka://localhost:9092")

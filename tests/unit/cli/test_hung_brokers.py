"""A broker that hangs never hangs a command: each ends by itself when --timeout is over, and names it."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leadline.testing import LocalCluster
from tests.support.forked_commands import ForkedResult, run_forked, run_in_time
from tests.support.leaf_commands import leaf_commands

TIMEOUT_S, LONGER_S = 1, 4  # --timeout
OVERRUN_S = 1.5  # by which a command may exceed it: a last request, the end of its clients
PLAN = '{"version": 1, "partitions": [{"topic": "x", "partition": 0, "replicas": [1]}]}'

# FOLDER is a new one.
CALLS = """
topics create x
topics list
topics describe x
topics alter x --partitions 3
topics delete x --yes
produce x --file FOLDER/record
consume x --to-end --from-beginning
groups list
groups describe g
groups reset-offsets g --topic x --to-earliest
groups delete g --yes
transactions list
transactions describe tx
transactions blocking x
transactions find-hanging
transactions abort x:0 --start-offset 0 --execute
leader-election preferred x
reassign plan x
reassign execute FOLDER/plan.json
reassign verify FOLDER/plan.json
reassign cancel FOLDER/plan.json
reassign list
explain x
configs describe --topic x
configs alter --topic x --set retention.ms=1000
log-levels list
log-levels set root=INFO
log-levels reset a
acls list
acls add --allow-principal User:a --operation read --topic x
acls remove --topic x --yes
acls why --principal User:a --operation read --topic x
users list
users add a --password-file FOLDER/record
users remove a --yes
quotas list
quotas set --user a producer_byte_rate=1
quotas remove --user a
tokens create
tokens list
tokens renew Bw1QuMShQAaHT-qfoVdObA
tokens expire Bw1QuMShQAaHT-qfoVdObA --yes
migrate check
perf produce x --records 3
perf consume x --records 3
perf latency x --records 3
""".strip().splitlines()
SERVES = "console"  # its pages say what does not answer
AFTER_METADATA = (  # a choice: each kind of client, and both ways of waiting
    "topics create x",
    "topics describe x",
    "produce x --file FOLDER/record",
    "consume x --to-end --from-beginning",
    "consume x --to-end --from-beginning --group g",
    "groups describe g",
    "explain x",
    "reassign plan x",
    "log-levels list",
    "acls list",
    "perf produce x --records 3",
    "perf latency x --records 3",
)


@contextmanager
def silent_server() -> Iterator[str]:
    """It accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1000) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def hung_broker(*answered: str) -> Iterator[str]:
    """It answers these requests, and never another one."""
    with LocalCluster(brokers=1) as cluster:
        cluster.create_topic("x", partitions=2)
        cluster.produce("x", ["a"])
        cluster.requests.delay(seconds=1_000_000, when=lambda request: request.api not in answered)
        yield cluster.bootstrap_servers


def results(calls: list[str], servers: str, folder: Path, timeout_s: int) -> dict[str, ForkedResult]:
    (folder / "plan.json").write_text(PLAN)
    (folder / "record").write_text("a\n")
    words = [call.replace("FOLDER", str(folder)).split() for call in calls]
    options = ["--timeout", str(timeout_s), "--bootstrap-server", servers]
    done = run_in_time([[*call, *options] for call in words], timeout_s + OVERRUN_S)
    return dict(zip(calls, done, strict=True))


def problems(calls: list[str], servers: str, folder: Path, timeout_s: int = TIMEOUT_S) -> list[str]:
    return [
        f"{call}: {end}"
        for call, end in results(calls, servers, folder, timeout_s).items()
        if end.code not in (1, 2) or "(--timeout)" not in end.err or end.took_s > timeout_s + OVERRUN_S
    ]


def test_every_command_that_connects_is_here() -> None:
    connecting = [name for name, parser in leaf_commands().items() if "--timeout" in parser._option_string_actions]
    named = [name for name in connecting if any(call.startswith(f"{name} ") or call == name for call in CALLS)]
    assert {*connecting} - {*named} == {SERVES, *(name for name in connecting if name.startswith("pipeline "))}


def test_a_server_that_never_answers_hangs_no_command(tmp_path: Path) -> None:
    with silent_server() as servers:
        assert problems(CALLS, servers, tmp_path) == []


def test_a_command_waits_as_long_as_it_is_told_to(tmp_path: Path) -> None:
    with hung_broker("ApiVersions", "Metadata") as servers:
        ended = results([*AFTER_METADATA], servers, tmp_path, LONGER_S)
    late_or_early = {
        call: end.took_s for call, end in ended.items() if not LONGER_S / 2 < end.took_s < LONGER_S + OVERRUN_S
    }
    assert late_or_early == {}


def test_a_broker_that_answers_nothing_but_api_versions_hangs_no_command(tmp_path: Path) -> None:
    with hung_broker("ApiVersions") as servers:
        assert problems(CALLS, servers, tmp_path) == []


def test_a_broker_that_hangs_after_its_metadata_hangs_no_command(tmp_path: Path) -> None:
    with hung_broker("ApiVersions", "Metadata") as servers:
        assert problems([*AFTER_METADATA], servers, tmp_path) == []


def test_a_command_that_hangs_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.support.forked_commands.LIMIT_S", 0.1)
    with silent_server() as servers, pytest.raises(subprocess.TimeoutExpired):
        run_forked([["topics", "list", "--timeout", "60", "--bootstrap-server", servers]])

"""Commands on a cluster of which a broker is silent or away: each says so, in time, and tells what the others tell."""

import json
import subprocess
import time
from collections.abc import Iterator

import pytest

from tests.support import in_memory
from tests.support.cluster import Cluster, cluster, until
from tests.support.commands import COMMAND_S, LEADLINE, leadline, lines

SLOW_S = 25  # what a busy machine may add to a command that keeps its --timeout


@pytest.fixture(scope="module")
def served() -> Iterator[Cluster]:
    for path in in_memory.directory():
        with cluster(path, zookeeper_session_timeout_ms=60_000) as found:
            found.create("orders", 3, min_insync_replicas="3")
            leadline(found, "topics", "create", "single", "--replication-factor", "1", "--partitions", "3")
            yield found


# A replica that is away


def test_records_that_too_few_replicas_could_hold_are_told_and_given_up(served: Cluster) -> None:
    leader = served.leader("orders")
    other = next(id for id in served.brokers if id != leader)
    served.play(f"kill {other}")
    try:
        until(lambda: len(served.described("orders")[0][1]) == 2)
        isr = ",".join(map(str, served.described("orders")[0][1]))
        began = time.monotonic()
        given = ("produce", "orders", "--partition", "0", "--timeout", "4")
        _, err = leadline(served, *given, given=b"a\nb\n", code=1)
        took = time.monotonic() - began
        _, perf = leadline(served, "perf", "produce", "orders", "--records", "9", "--timeout", "4", code=1)
    finally:
        served.play(f"start {other}, settle")
    reason = f"orders-0 has only replicas {isr} in sync, and min.insync.replicas is 3 (NOT_ENOUGH_REPLICAS)"
    told, gave_up, summary = err.splitlines()
    assert told == f"leadline: not stored yet: {reason}; trying for 4 s (--timeout)"
    assert gave_up == f"leadline: gave up: {reason}"
    assert summary.startswith("produced 0 records (0 B) to orders, 0 partitions, in ")
    assert summary.endswith("; 2 records not stored")
    assert 4 <= took < 4 + SLOW_S
    assert perf.splitlines()[-1].startswith("leadline: 9 records not stored: orders-")
    assert lines(served, "consume", "orders", "--from-beginning", "--to-end") == []


def test_a_reason_is_told_while_the_pipe_is_idle_and_records_are_stored_once_it_is_gone(served: Cluster) -> None:
    leader = served.leader("orders")
    other = next(id for id in served.brokers if id != leader)
    served.play(f"kill {other}")
    try:
        until(lambda: len(served.described("orders")[0][1]) == 2)
        call = ("produce", "orders", "--partition", "0", "--timeout", "120", "--bootstrap-server", served.bootstrap)
        process = subprocess.Popen([*LEADLINE, *call], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert b"(NOT_ENOUGH_REPLICAS)" in process.stderr.readline(), "the pipe is still open"
    finally:
        served.play(f"start {other}, settle")
    _, err = process.communicate(timeout=COMMAND_S)
    assert err.startswith(b"produced 1 record (1 B) to orders, 1 partition, in ")
    assert process.returncode == 0


# A broker that leads alone


@pytest.fixture(scope="module")
def victim(served: Cluster) -> Iterator[int]:
    """The leader of single-0, killed: nobody else can lead it."""
    until(lambda: len(served.described("single")) == 3)
    leader = served.leader("single")
    leadline(served, "produce", "single", "--partition", "0", given=b"kept\n")
    leadline(served, "consume", "orders", "--group", "g", "--to-end")  # coordinators need all brokers to begin with
    served.play(f"kill {leader}")
    until(lambda: served.described("single")[0][0] < 0)
    yield leader
    if served.brokers[leader].process.poll() is not None:
        served.play(f"start {leader}")
    until(lambda: served.described("single")[0][0] > 0)


def test_a_partition_without_a_leader_is_told_to_who_writes(served: Cluster, victim: int) -> None:
    _, err = leadline(served, "produce", "single", "--partition", "0", "--timeout", "4", given=b"a\n", code=1)
    assert err.startswith(f"leadline: not stored yet: single:0 has no leader while broker {victim} is away; trying")
    assert err.splitlines()[-1].endswith("; 1 record not stored")


@pytest.mark.parametrize(
    "options", [["--from-beginning"], ["--from-time", "-1h"], ["--from-beginning", "--group", "g"]]
)
def test_a_partition_without_a_leader_is_told_to_who_reads_to_the_end_and_given_up(
    served: Cluster, victim: int, options: list[str]
) -> None:
    _, err = leadline(served, "consume", "single", *options, "--to-end", "--timeout", "4", code=1)
    *told, failure = err.splitlines()
    assert any(
        line.startswith(f"leadline: single:0 has no leader while broker {victim} is away; wait") for line in told
    )
    assert failure == f"leadline: single:0 has no leader while broker {victim} is away: not all of it can be read"


def test_who_follows_a_topic_reads_on_while_a_partition_has_no_leader_and_all_once_it_has(
    served: Cluster, victim: int
) -> None:
    call = ("consume", "single", "--from-beginning", "--max", "2", "--bootstrap-server", served.bootstrap)
    with subprocess.Popen([*LEADLINE, *call], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _follow(served, victim, process)


def _follow(served: Cluster, victim: int, process: "subprocess.Popen[bytes]") -> None:
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stderr.readline().startswith(f"leadline: single:0 has no leader while broker {victim}".encode())
    leadline(
        served, "produce", "single", "--partition", "1" if served.described("single")[1][0] > 0 else "2", given=b"b"
    )
    assert process.stdout.readline() == b"b\n"
    served.play(f"start {victim}")
    out, _ = process.communicate(timeout=COMMAND_S)
    assert (process.returncode, out) == (0, b"kept\n")


# A broker that is silent


@pytest.fixture
def silent(served: Cluster) -> Iterator[int]:
    """A broker that is no controller, stopped by SIGSTOP: it accepts connections, and says nothing."""
    served.settle("orders")
    controller = served.controller()
    chosen = next(id for id in served.brokers if id != controller)
    served.play(f"pause {chosen}")
    try:
        yield chosen
    finally:
        served.play(f"resume {chosen}, settle")


def timed(served: Cluster, *arguments: str, code: int, server: int | None = None) -> tuple[str, str]:
    """What a command says; it keeps to its --timeout."""
    at = served.bootstrap if server is None else f"127.0.0.1:{served.brokers[server].port}"
    began = time.monotonic()
    command = [*LEADLINE, *arguments, "--timeout", "9", "--bootstrap-server", at]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_S)
    assert time.monotonic() - began < 9 + SLOW_S
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_one_silent_broker_is_a_row_that_says_so(served: Cluster, silent: int) -> None:
    other = next(id for id in served.brokers if id != silent)
    (found,) = map(json.loads, timed(served, "explain", "orders:0", "--json", code=0, server=other)[0].splitlines())
    states = {copy["broker"]: copy["state"] for copy in found["copies"]}
    assert states.pop(silent) == "does not answer"
    assert len(states) == 2
    assert all(copy["logEnd"] is not None for copy in found["copies"] if copy["broker"] != silent)


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("topics list", 0, ""),
        ("topics describe orders", 0, "does not answer: partitions that it leads can be neither written nor read"),
        ("configs describe --topic orders", 0, ""),
        ("configs describe --broker SILENT", 1, "leadline: broker SILENT at"),
        ("configs describe --broker-defaults", 1, "does not answer: what it knows is not told"),
        ("groups list", 1, "does not answer: groups that it coordinates are not listed"),
        ("groups describe", 1, "does not answer: what it coordinates and leads is not told"),
        ("transactions list", 1, "does not answer: transactions that it coordinates are not listed"),
        ("transactions find-hanging", 1, "does not answer: what it leads and coordinates is not told"),
        ("transactions blocking orders", 1, "does not answer: what it leads and coordinates is not told"),
        ("reassign list", 0, ""),
        ("reassign plan orders --replication-factor 2", 0, "does not answer: the sizes of its replicas are not known"),
    ],
)
def test_each_command_says_which_broker_is_silent_in_time(
    served: Cluster, silent: int, call: str, code: int, said: str
) -> None:
    other = next(id for id in served.brokers if id != silent)
    _, err = timed(served, *call.replace("SILENT", str(silent)).split(), code=code, server=other)
    assert said.replace("SILENT", str(silent)) in err
    assert f"broker {silent} at 127.0.0.1:{served.brokers[silent].port} does not answer" in err or not said


def test_a_silent_server_among_others_is_passed_over(served: Cluster, silent: int) -> None:
    assert "orders" in timed(served, "topics", "list", code=0)[0]
    assert "Partition: 2" in timed(served, "topics", "describe", "orders", code=0)[0]


@pytest.mark.parametrize("call", ["topics list", "explain orders", "groups list", "consume orders", "produce orders"])
def test_a_server_that_is_silent_and_the_only_one_named_is_told(served: Cluster, silent: int, call: str) -> None:
    _, err = timed(served, *call.split(), code=1, server=silent)
    assert f"cannot reach 127.0.0.1:{served.brokers[silent].port}: it accepts connections and does not answer" in err


def test_a_silent_controller_is_told(served: Cluster) -> None:
    served.settle("orders")
    controller = served.controller()
    other = next(id for id in served.brokers if id != controller)
    served.play(f"pause {controller}")
    try:
        for call in ("topics create new", "topics delete orders", "reassign list", "leader-election preferred --all"):
            _, err = timed(served, *call.split(), code=1, server=other)
            assert f"broker {controller} at 127.0.0.1:" in err, call
            assert "does not answer" in err
            assert "controller" in err
    finally:
        served.play(f"resume {controller}, settle")

"""Commands on a cluster of which a broker is silent or away: each says so, in time, and tells what the others tell.

Most of these commands wait until their --timeout is over. So those that need the same state of the cluster run side by
side, in a fixture, and each test looks at the results that concern it.
"""

import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.support import in_memory
from tests.support.cluster import Cluster, cluster
from tests.support.commands import COMMAND_S, LEADLINE, leadline, lines
from tests.support.forked_commands import ForkedResult, run_in_time
from tests.support.waiting import until

SHORT_S, LONG_S = 4, 6  # --timeout
OVERRUN_S = 3  # by which a command may exceed it: less than the time limits of the clients below, 10 s and more


def side_by_side(servers: str, timeout_s: int, calls: Iterable[str]) -> dict[str, ForkedResult]:
    """Commands to which two records are given, if they read any. One that is late is tried again."""
    calls, options = list(calls), ("--timeout", str(timeout_s), "--bootstrap-server", servers)
    words = [[*call.split(), *options] for call in calls]
    return dict(zip(calls, run_in_time(words, timeout_s + OVERRUN_S, "a\nb\n"), strict=True))


@pytest.fixture(scope="module")
def served() -> Iterator[Cluster]:
    for path in in_memory.directory():
        # A broker counts as silent to the others after a third of a session: none is replaced while it is paused here.
        with cluster(path, zookeeper_session_timeout_ms=600_000) as running:
            running.create("orders", 3, min_insync_replicas="3")
            leadline(running, "topics", "create", "single", "--replication-factor", "1", "--partitions", "3")
            yield running


# A replica that is away


def test_records_that_too_few_replicas_could_hold_are_reported_and_given_up(served: Cluster) -> None:
    leader = served.leader("orders")
    other = next(id for id in served.brokers if id != leader)
    served.run_steps(f"kill {other}")
    try:
        until(lambda: any(len(isr) == 2 for _, isr in served.described("orders")[:1]))
        isr = ",".join(map(str, served.described("orders")[0][1]))
        produce, perf = side_by_side(
            served.bootstrap, SHORT_S, ["produce orders --partition 0", "perf produce orders --records 9"]
        ).values()
    finally:
        served.run_steps(f"start {other}, settle")
    reason = f"orders-0 has only replicas {isr} in sync, and min.insync.replicas is 3 (NOT_ENOUGH_REPLICAS)"
    assert produce.code == 1
    retrying, gave_up, summary = produce.err.splitlines()
    assert retrying == f"leadline: not stored yet: {reason}; trying for 4 s (--timeout)"
    assert gave_up == f"leadline: gave up: {reason}"
    assert summary.startswith("produced 0 records (0 B) to orders, 0 partitions, in ")
    assert summary.endswith("; 2 records not stored")
    assert SHORT_S <= produce.took_s < SHORT_S + OVERRUN_S
    assert perf.code == 1
    assert perf.err.splitlines()[-1].startswith("leadline: 9 records not stored: orders-")
    assert lines(served, "consume", "orders", "--from-beginning", "--to-end") == []


def test_a_reason_is_shown_while_the_pipe_is_idle_and_records_are_stored_once_it_is_gone(served: Cluster) -> None:
    leader = served.leader("orders")
    other = next(id for id in served.brokers if id != leader)
    served.run_steps(f"kill {other}")
    try:
        until(lambda: any(len(isr) == 2 for _, isr in served.described("orders")[:1]))
        call = ("produce", "orders", "--partition", "0", "--timeout", "120", "--bootstrap-server", served.bootstrap)
        process = subprocess.Popen([*LEADLINE, *call], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        assert b"(NOT_ENOUGH_REPLICAS)" in process.stderr.readline(), "the pipe is still open"
    finally:
        served.run_steps(f"start {other}, settle")
    _, err = process.communicate(timeout=COMMAND_S)
    assert err.startswith(b"produced 1 record (1 B) to orders, 1 partition, in ")
    assert process.returncode == 0


# A broker that leads alone

WRITE = "produce single --partition 0"
READ_TO_THE_END = [
    f"consume single {options} --to-end"
    for options in ("--from-beginning", "--from-time -1h", "--from-beginning --group g")
]


@pytest.fixture(scope="module")
def victim(served: Cluster) -> Iterator[int]:
    """The leader of single-0 is killed: it has no other replica."""
    until(lambda: len(served.described("single")) == 3)
    leader = served.leader("single")
    leadline(served, "produce", "single", "--partition", "0", stdin=b"kept\n")
    leadline(served, "consume", "orders", "--group", "g", "--to-end")  # coordinators need all brokers to begin with
    served.run_steps(f"kill {leader}")
    until(lambda: any(leader < 0 for leader, _ in served.described("single")[:1]))
    yield leader
    if served.brokers[leader].process.poll() is not None:
        served.run_steps(f"start {leader}")
    until(lambda: any(leader > 0 for leader, _ in served.described("single")[:1]))


@pytest.fixture(scope="module")
def without_leader(served: Cluster, victim: int) -> Mapping[str, ForkedResult]:
    return side_by_side(served.bootstrap, SHORT_S, [WRITE, *READ_TO_THE_END])


def test_a_producer_names_a_partition_without_a_leader(victim: int, without_leader: Mapping[str, ForkedResult]) -> None:
    code, _, err, _ = without_leader[WRITE]
    assert code == 1
    assert err.startswith(f"leadline: not stored yet: single:0 has no leader while broker {victim} is away; trying")
    assert err.splitlines()[-1].endswith("; 2 records not stored")


@pytest.mark.parametrize("call", READ_TO_THE_END)
def test_a_consumer_names_a_partition_without_a_leader_and_gives_up(
    victim: int, without_leader: Mapping[str, ForkedResult], call: str
) -> None:
    code, _, err, _ = without_leader[call]
    assert code == 1
    *notes, failure = err.splitlines()
    assert any(
        line.startswith(f"leadline: single:0 has no leader while broker {victim} is away; wait") for line in notes
    )
    problem = f"single:0 has no leader while broker {victim} is away"
    assert failure.startswith(f"leadline: {problem}: the topic cannot be read to its end")


def test_a_follow_reads_on_while_a_partition_has_no_leader_and_all_once_it_has(served: Cluster, victim: int) -> None:
    call = ("consume", "single", "--from-beginning", "--max", "2", "--bootstrap-server", served.bootstrap)
    with subprocess.Popen([*LEADLINE, *call], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        _follow(served, victim, process)


def _follow(served: Cluster, victim: int, process: "subprocess.Popen[bytes]") -> None:
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stderr.readline().startswith(f"leadline: single:0 has no leader while broker {victim}".encode())
    leadline(
        served, "produce", "single", "--partition", "1" if served.described("single")[1][0] > 0 else "2", stdin=b"b"
    )
    assert process.stdout.readline() == b"b\n"
    served.run_steps(f"start {victim}")
    out, _ = process.communicate(timeout=COMMAND_S)
    assert (process.returncode, out) == (0, b"kept\n")


# A broker that is silent

EXPLAIN = "explain orders:0 --json"
OF_ALL_BROKERS = [  # with the exit status, and what is said
    ("topics list", 0, ""),
    ("topics describe orders", 0, "does not answer: partitions that it leads can be neither written nor read"),
    ("configs describe --topic orders", 0, ""),
    ("configs describe --broker SILENT", 1, "leadline: broker SILENT at"),
    ("configs describe --broker-defaults", 1, "does not answer: its settings are missing"),
    ("groups list", 1, "does not answer: groups that it coordinates are not listed"),
    ("groups describe", 1, "does not answer: groups that it coordinates and partitions that it leads are missing"),
    ("transactions list", 1, "does not answer: transactions that it coordinates are not listed"),
    (
        "transactions find-hanging",
        1,
        "does not answer: partitions that it leads and transactions that it coordinates are missing",
    ),
    (
        "transactions blocking orders",
        1,
        "does not answer: partitions that it leads and transactions that it coordinates are missing",
    ),
    ("reassign list", 0, ""),
    ("reassign plan orders --replication-factor 2", 0, "does not answer: the sizes of its replicas are not known"),
]
OF_ONE_BROKER = ["topics list", "explain orders", "groups list", "consume orders", "produce orders"]


@dataclass(frozen=True)
class SilentBroker:
    """What commands say while a broker that is no controller is stopped by SIGSTOP: it accepts connections."""

    id: int
    address: str
    by_another: Mapping[str, ForkedResult]  # where another broker is named
    by_all: Mapping[str, ForkedResult]
    by_itself: Mapping[str, ForkedResult]


@pytest.fixture(scope="module")
def silent(served: Cluster) -> SilentBroker:
    served.settle("orders")
    controller = served.controller()
    id = next(id for id in served.brokers if id != controller)
    address, another = f"127.0.0.1:{served.brokers[id].port}", f"127.0.0.1:{served.brokers[controller].port}"
    calls = [EXPLAIN, *(call.replace("SILENT", str(id)) for call, _, _ in OF_ALL_BROKERS)]
    served.run_steps(f"pause {id}")
    try:
        with ThreadPoolExecutor(1) as executor:
            by_itself = executor.submit(side_by_side, address, LONG_S, OF_ONE_BROKER)  # which do nothing but wait
            by_another = side_by_side(another, LONG_S, calls)
            by_all = side_by_side(served.bootstrap, LONG_S, ["topics list", "topics describe orders"])
            return SilentBroker(id, address, by_another, by_all, by_itself.result())
    finally:
        served.run_steps(f"resume {id}, settle")


def check(result: ForkedResult, code: int) -> tuple[str, str]:
    """The output of a command, which must keep to its --timeout."""
    assert result.took_s < LONG_S + OVERRUN_S
    assert result.code == code, result.err
    return result.out, result.err


def test_one_silent_broker_is_a_row_that_says_so(silent: SilentBroker) -> None:
    out, _ = check(silent.by_another[EXPLAIN], code=0)
    (partition,) = map(json.loads, out.splitlines())
    states = {copy["broker"]: copy["state"] for copy in partition["replica_states"]}
    assert states.pop(silent.id) == "does not answer"
    assert len(states) == 2
    assert all(copy["log_end"] is not None for copy in partition["replica_states"] if copy["broker"] != silent.id)


@pytest.mark.parametrize(("call", "code", "message"), OF_ALL_BROKERS)
def test_each_command_says_which_broker_is_silent_in_time(
    silent: SilentBroker, call: str, code: int, message: str
) -> None:
    _, err = check(silent.by_another[call.replace("SILENT", str(silent.id))], code)
    assert message.replace("SILENT", str(silent.id)) in err
    assert f"broker {silent.id} at {silent.address} does not answer" in err or not message


def test_a_silent_server_among_others_is_passed_over(silent: SilentBroker) -> None:
    assert "orders" in check(silent.by_all["topics list"], code=0)[0]
    assert "Partition: 2" in check(silent.by_all["topics describe orders"], code=0)[0]


@pytest.mark.parametrize("call", OF_ONE_BROKER)
def test_a_silent_server_that_is_the_only_one_named_is_reported(silent: SilentBroker, call: str) -> None:
    _, err = check(silent.by_itself[call], code=1)
    assert f"cannot reach {silent.address}: it accepts connections and does not answer" in err


def test_a_silent_controller_is_reported(served: Cluster) -> None:
    served.settle("orders")
    controller = served.controller()
    other = next(id for id in served.brokers if id != controller)
    calls = ("topics create new", "topics delete orders", "reassign list", "leader-election preferred --all")
    served.run_steps(f"pause {controller}")
    try:
        results = side_by_side(f"127.0.0.1:{served.brokers[other].port}", LONG_S, calls)
    finally:
        served.run_steps(f"resume {controller}, settle")
    for call, result in results.items():
        _, err = check(result, code=1)
        assert f"broker {controller} at 127.0.0.1:" in err, call
        assert "does not answer" in err
        assert "controller" in err

"""Commands on a cluster of which a broker is silent or away: each says so, in time, and tells what the others tell."""

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

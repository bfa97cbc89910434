"""Records that are not acknowledged: why, within a moment, and until when they are tried."""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadline.admin.connection import ClusterConnection
from leadline.cli.delivery import DeliveryGivenUp, DeliveryWatch, RefusedBatches
from leadline.cli.options import connection_options
from leadline.cli.produce.lines import lines_from
from leadline.testing import LocalCluster
from tests.support.broker import RunningBroker
from tests.support.broker import leadline as started
from tests.support.commands import COMMAND_S, LEADLINE, leadline, lines
from tests.support.forked_commands import ATTEMPTS, run_forked
from tests.support.waiting import until


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder: Path = tmp_path_factory.mktemp("broker")
    with started(folder / "data", socket_request_max_bytes=3_000_000) as running:
        leadline(running, "topics", "create", "open")
        leadline(running, "topics", "create", "wide", "--config", "max.message.bytes=20000000")
        yield running


TOO_LARGE = [
    (
        "open",
        5_000_000,
        [],
        "a record was not stored: it has 5,000,000 B (5.0 MB); this client's limit is 1,000,000 B: "
        "--property message.max.bytes=5000512; the topic's limit is 1,048,588 B: "
        "leadline configs alter --topic open --set max.message.bytes=5000512 (MESSAGE_TOO_LARGE)",
    ),
    (
        "open",
        1_100_000,
        ["--property", "message.max.bytes=2000000"],
        "a record was not stored: it has 1,100,000 B (1.1 MB); the topic's limit is 1,048,588 B: "
        "leadline configs alter --topic open --set max.message.bytes=1100512",
    ),
    (
        "wide",
        4_000_000,
        ["--property", "message.max.bytes=5000000", "--timeout", "5"],
        "not stored yet: a record of 4,000,000 B is larger than a request may be: "
        "socket.request.max.bytes of the brokers is 3,000,000",
    ),
]


@pytest.fixture(scope="module")
def refusals(broker: RunningBroker) -> list[str]:
    """The output of `produce` for each record that is too large. One ends with a time-out, so all run at once."""

    def refused(case: tuple[str, int, list[str], str]) -> str:
        topic, size, options, _ = case
        return leadline(broker, "produce", topic, *options, stdin=b"x" * size, code=1)[1]

    with ThreadPoolExecutor() as executor:
        return list(executor.map(refused, TOO_LARGE))


@pytest.mark.parametrize("number", range(len(TOO_LARGE)))
def test_a_record_that_is_too_large_is_reported_with_its_size_the_limits_and_what_raises_them(
    refusals: list[str], number: int
) -> None:
    message, err = TOO_LARGE[number][3], refusals[number]
    assert err.splitlines()[0].startswith(f"leadline: {message}")
    assert "; 1 record not stored" in err.splitlines()[-1]


def test_a_broker_that_stops_answering_is_reported(tmp_path: Path) -> None:
    with started(tmp_path / "data") as broker:
        leadline(broker, "topics", "create", "quiet")
        command = [*LEADLINE, "produce", "quiet", "--timeout", "8", "--bootstrap-server", broker.bootstrap]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdin is not None
            assert process.stderr is not None
            process.stdin.write(b"a\n")
            process.stdin.flush()
            while lines(broker, "consume", "quiet", "--from-beginning", "--to-end") != ["a"]:
                assert process.poll() is None
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                process.stdin.write(b"b\n")
                process.stdin.flush()
                assert process.stderr.readline().startswith(b"leadline: not stored yet: no broker answers: ")
                assert process.wait(COMMAND_S) == 1
                assert (
                    process.stderr.read().splitlines()[-1].endswith(b"; 1 record not stored, 1 of which may be stored")
                )
            finally:
                os.kill(broker.pid, signal.SIGCONT)


def test_the_time_of_a_record_begins_when_it_is_handed_over_not_when_the_last_one_was_stored(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("leadline.cli.delivery.time.monotonic", lambda: now[0])
    parser = connection_options()
    watch = DeliveryWatch(ClusterConnection(parser.parse_args(["--bootstrap-server", broker.bootstrap])), "open", {})
    now[0] += 100  # a person thinks
    watch.handing_over(1)
    watch.producer.produce("open", b"x")
    now[0] += 0.5
    watch.check()
    now[0] += 100
    with pytest.raises(DeliveryGivenUp):
        watch.check()
    watch.give_up()


REFUSED = "short-0 has only replica 1 in sync, and min.insync.replicas is 2 (NOT_ENOUGH_REPLICAS)"
REPORTED_S = 1.0  # after so long the reason is printed, at the latest


@pytest.fixture(scope="module")
def short_of_replicas() -> Iterator[LocalCluster]:
    with LocalCluster(brokers=2) as cluster:
        cluster.create_topic("short", configs={"min.insync.replicas": 2})
        cluster.broker(2).stop()
        cluster.wait_for(lambda: (cluster.leader("short"), cluster.in_sync("short")) == (1, [1]))
        yield cluster


def test_the_reason_of_a_refusal_is_printed_within_a_second(
    short_of_replicas: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a clock that the test sets: no matter how long the requests take that find the reason."""
    now = [1000.0]
    monkeypatch.setattr("leadline.cli.delivery.time", SimpleNamespace(monotonic=lambda: now[0]))
    options = connection_options().parse_args(["--bootstrap-server", short_of_replicas.bootstrap_servers])
    watch = DeliveryWatch(ClusterConnection(options), "short", {"acks": "all"})
    watch.handing_over(1)
    watch.producer.produce("short", b"x")
    until(lambda: watch.producer.poll(0.01) is None or watch._refused.errors)
    while not (printed := capsys.readouterr().err) and now[0] < 1000 + REPORTED_S:
        now[0] += 0.1  # as often as `produce` checks
        watch.check()
    watch.give_up()
    assert printed.startswith(f"leadline: not stored yet: {REFUSED}; trying for ")


def test_the_reason_of_a_refusal_is_printed_before_a_time_limit_of_a_second_is_over(
    short_of_replicas: LocalCluster, tmp_path: Path
) -> None:
    """A busy machine may take all of it now and then, but not each time."""
    (tmp_path / "record").write_text("a\n")
    call = ["produce", "short", "--file", str(tmp_path / "record"), "--timeout", str(REPORTED_S)]
    printed: list[str] = []
    for _ in range(ATTEMPTS):
        (result,) = run_forked([[*call, "--bootstrap-server", short_of_replicas.bootstrap_servers]])
        printed = result.err.splitlines()
        if printed[0].startswith("leadline: not stored yet"):
            break
    assert printed[:2] == [
        f"leadline: not stored yet: {REFUSED}; trying for 1 s (--timeout)",
        f"leadline: gave up: {REFUSED}",
    ]


def test_lines_come_as_they_are_whatever_pieces_they_are_read_in() -> None:
    read, write = os.pipe()
    pieces = [b"a\n\nlo", b"ng" + b"x" * 50_000, b"\r\nlast"]

    def idle() -> None:
        if pieces:
            os.write(write, pieces.pop(0))
        else:
            os.close(write)

    assert list(lines_from(read, idle)) == [b"a", b"", b"long" + b"x" * 50_000 + b"\r", b"last"]
    os.close(read)


def test_what_a_broker_answered_is_read_from_the_clients_log() -> None:
    refused = RefusedBatches()
    line = (
        "MSGSET [rdkafka#producer-1] [thrd:h:1/1]: h:1/1: a.b-c [7]: MessageSet with 1 message(s) (MsgId 0) "
        "encountered error: Broker: Not enough in-sync replicas (actions Retry,MsgNotPersisted)"
    )
    refused.logger.debug(line)
    refused.logger.debug("PRODUCE h:1/1: a.b-c [7]: Produce MessageSet with 1 message(s)")
    assert refused.errors == {7: "Broker: Not enough in-sync replicas"}

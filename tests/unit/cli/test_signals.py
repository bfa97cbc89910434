"""An order to end and a terminal that is closed end a command as Ctrl-C does: what it holds is let go."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from leadline.cli.signals import ctrl_c, ending_signals, signal_of, terminable
from tests.support.broker import RunningBroker, leadline
from tests.support.commands import COMMAND_S, lines, started
from tests.support.topics import create_topic
from tests.support.waiting import until

ENDS = [signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def _at_rest() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *ENDS)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in ENDS:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with leadline(tmp_path / "data", group_initial_rebalance_delay_ms=0) as running:
        create_topic(running.bootstrap, "orders", 1)
        yield running


@pytest.mark.usefixtures("_at_rest")
def test_ctrl_c_interrupts_nothing_the_first_time() -> None:
    with ctrl_c() as pressed:
        signal.raise_signal(signal.SIGINT)
        assert pressed.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_at_rest")
def test_ctrl_c_stays_ignored_where_it_was() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with ctrl_c() as pressed:
        signal.raise_signal(signal.SIGINT)
    assert not pressed.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


@pytest.mark.usefixtures("_at_rest")
@pytest.mark.parametrize("number", ENDS)
def test_the_signals_interrupt_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with terminable():
        with pytest.raises(KeyboardInterrupt) as interrupt:
            signal.raise_signal(number)
        assert signal_of(interrupt.value) == number
        with ctrl_c() as pressed:
            signal.raise_signal(number)
        assert pressed.is_set()
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("_at_rest")
def test_they_end_a_command_also_where_ctrl_c_is_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with terminable(), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


@pytest.mark.usefixtures("_at_rest")
def test_a_hang_up_that_nohup_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert signal.SIGHUP not in ending_signals()
    with terminable():
        signal.raise_signal(signal.SIGHUP)


def test_beside_the_main_thread_no_signals_are_set() -> None:
    handlers: list[object] = []

    def run() -> None:
        with terminable():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert handlers == [before]


@pytest.mark.parametrize("number", ENDS)
def test_consume_leaves_its_group(broker: RunningBroker, number: signal.Signals) -> None:
    def members() -> int:
        """librdkafka may miss the coordinator while the topic of offsets is created: a new one asks again."""
        for _ in range(6):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            with suppress(KafkaException, TimeoutError):
                groups = admin.describe_consumer_groups(["billing"], request_timeout=10)
                return len(groups["billing"].result(30).members)
        raise TimeoutError("no coordinator describes the group")

    process = started(broker, "consume", "orders", "--group", "billing")
    until(members, "the group has a member", COMMAND_S)
    process.send_signal(number)
    _, err = process.communicate(timeout=COMMAND_S)
    assert (process.returncode, members()) == (0, 0)
    assert err.decode().strip().startswith("consumed 0 records")


@pytest.mark.parametrize("number", ENDS)
def test_produce_stores_what_it_has_read(broker: RunningBroker, number: signal.Signals) -> None:
    process = started(broker, "produce", "orders")
    assert process.stdin is not None
    process.stdin.write(b"first\nsecond\n")
    process.stdin.flush()
    deadline = time.monotonic() + COMMAND_S
    while not lines(broker, "consume", "orders", "--from-beginning", "--to-end"):
        assert time.monotonic() < deadline
    process.send_signal(number)
    _, err = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 130
    assert "produced 2 records" in err.decode()
    assert lines(broker, "consume", "orders", "--from-beginning", "--to-end") == ["first", "second"]

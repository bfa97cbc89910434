"""The coordinator on its journal: what is pending, what time does, markers that do not get through at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from leadline.coordinator.marker_writer import TransactionOutcome
from leadline.coordinator.runtime import CoordinatorRecord
from leadline.coordinator.transaction import EPOCH_MAX, ProducerIdAndEpoch, TransactionState
from leadline.coordinator.transaction_coordinator import ABORTS_PER_STEP
from leadline.coordinator.transaction_records import transaction_record
from leadline.errors import (
    ConcurrentTransactions,
    CoordinatorLoadInProgress,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    NotCoordinator,
    ProducerFenced,
    TransactionalIdNotFound,
    UnknownServerError,
)
from leadline.model import TopicPartition
from tests.support import in_memory
from tests.support.logs import ManualClock
from tests.support.transactions import JOURNAL, SETTINGS, Ended, Node, coordinator, ended_in
from tests.support.waiting import eventually

ONE, TWO, OFFSETS = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("__consumer_offsets", 0)
NAME = "id"


@pytest.fixture
def place() -> Iterator[Path]:
    yield from in_memory.directory()


def run(place: Path, *tests: Callable[[Node], Awaitable[None]]) -> None:
    """Each on a coordinator of its own, the next one on what the one before left."""

    async def main() -> None:
        clock, producer_ids = ManualClock(), list[int]()
        for epoch, test in enumerate(tests):
            async with coordinator(place, clock, producer_ids, [ONE, TWO, OFFSETS], epoch=epoch) as node:
                await test(node)

    asyncio.run(main())


async def begun(node: Node, *partitions: TopicPartition) -> ProducerIdAndEpoch:
    producer = await node.transactions.init(NAME, 1000, None)
    await node.transactions.add_partitions(NAME, producer, partitions)
    return producer


async def until_left(node: Node, *partitions: TopicPartition) -> None:
    """Until only these are without their marker."""
    await eventually(lambda: node.transactions.describe(NAME).partitions == frozenset(partitions))


def state(node: Node) -> TransactionState:
    return node.transactions.describe(NAME).state


def test_a_transaction_from_its_beginning_to_its_end(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE, TWO, OFFSETS)
        node.write(NAME, producer, ONE, 0, b"a")
        node.write(NAME, producer, ONE, 1, b"b")
        assert not node.is_stable(ONE)
        await node.transactions.end(NAME, producer, commit=True)
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_COMMIT
        assert ended_in(node, ONE) == [Ended(0, (b"a", b"b"), True)]
        assert all(map(node.is_stable, (ONE, TWO, OFFSETS)))
        assert node.offsets_ended == [(0, 0, True)]
        await node.transactions.end(NAME, producer, commit=True)  # asked once more, nothing happens
        assert node.replicas.hosted[ONE].log.log_end == 3

    run(place, test)


def test_the_state_of_a_coordinator_equals_its_journal(place: Path) -> None:
    async def first(node: Node) -> None:
        producer = await begun(node, ONE, TWO)
        await node.transactions.end(NAME, producer, commit=False)
        await node.settled()
        await node.transactions.add_partitions(NAME, producer, [TWO])

    async def then(node: Node) -> None:
        described = node.transactions.describe(NAME)
        assert (described.state, described.partitions, described.producer_epoch) == (
            TransactionState.ONGOING,
            frozenset({TWO}),
            0,
        )
        assert (described.timeout_ms, described.start_ms, described.last_update_ms) == (
            1000,
            node.clock.ms,
            node.clock.ms,
        )

    run(place, first, then)


def test_requests_during_a_write_get_a_retriable_error(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE)
        replicated = node.hold_commits()
        ending = asyncio.create_task(node.transactions.end(NAME, producer, commit=True))
        await asyncio.sleep(0)
        for attempt in (
            node.transactions.end(NAME, producer, commit=True),
            node.transactions.end(NAME, producer, commit=False),
            node.transactions.add_partitions(NAME, producer, [TWO]),
            node.transactions.init(NAME, 1000, None),
        ):
            with pytest.raises(ConcurrentTransactions):
                await attempt
        assert state(node) is TransactionState.ONGOING
        node.clock.ms += 10_000
        node.transactions.abort_timed_out()  # too late: its outcome is about to stand
        ending.cancel()  # who asked for it is gone, it goes on
        replicated.set()
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_COMMIT

    run(place, test)


@pytest.mark.parametrize("timeout_ms", [0, -1, SETTINGS.broker.transaction_max_timeout_ms + 1])
def test_a_timeout_that_is_not_allowed(place: Path, timeout_ms: int) -> None:
    async def test(node: Node) -> None:
        with pytest.raises(InvalidTransactionTimeout, match=r"transaction\.max\.timeout\.ms=900000"):
            await node.transactions.init(NAME, timeout_ms, None)

    run(place, test)


def test_unknown_and_empty_ids_are_refused(place: Path) -> None:
    async def test(node: Node) -> None:
        with pytest.raises(InvalidRequest):
            await node.transactions.init("", 1000, None)
        with pytest.raises(InvalidRequest):
            await node.transactions.end("", ProducerIdAndEpoch(0, 0), commit=True)
        with pytest.raises(InvalidProducerIdMapping):
            await node.transactions.add_partitions(NAME, ProducerIdAndEpoch(0, 0), [ONE])
        with pytest.raises(TransactionalIdNotFound):
            node.transactions.describe(NAME)
        (refused,) = node.transactions.verify(NAME, ProducerIdAndEpoch(0, 0), [ONE]).values()
        assert isinstance(refused, InvalidProducerIdMapping)
        assert list(node.transactions.all()) == []

    run(place, test)


def test_a_partition_of_the_journal_that_is_led_elsewhere_or_still_read(place: Path) -> None:
    async def test(node: Node) -> None:
        await begun(node, ONE)
        journal = node.transactions.runtime
        journal._became_leader(JOURNAL, node.replicas.hosted[JOURNAL])
        with pytest.raises(CoordinatorLoadInProgress):
            node.transactions.describe(NAME)
        await node.settled()
        assert state(node) is TransactionState.ONGOING
        journal._resigned(JOURNAL)
        with pytest.raises(NotCoordinator):
            await node.transactions.init(NAME, 1000, None)

    run(place, test)


def test_a_transaction_that_runs_out_of_time_is_aborted_and_its_producer_fenced(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE)
        node.write(NAME, producer, ONE, 0, b"a")
        node.clock.ms += 1000
        node.transactions.abort_timed_out()
        assert state(node) is TransactionState.ONGOING
        node.clock.ms += 1
        node.transactions.abort_timed_out()
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_ABORT
        assert ended_in(node, ONE) == [Ended(0, (b"a",), False)]
        with pytest.raises(ProducerFenced):
            await node.transactions.end(NAME, producer, commit=True)
        assert await node.transactions.init(NAME, 1000, None) == (0, 2)

    run(place, test)


def test_many_that_run_out_of_time_are_aborted_some_at_a_time(place: Path) -> None:
    async def test(node: Node) -> None:
        names = [f"slow-{n}" for n in range(ABORTS_PER_STEP + 10)]
        for name in names:
            producer = await node.transactions.init(name, 1000, None)
            await node.transactions.add_partitions(name, producer, [ONE])
        node.clock.ms += 1001
        assert [node.transactions.abort_timed_out() for _ in range(3)] == [True, False, False]
        await node.settled()
        assert {node.transactions.describe(name).state for name in names} == {TransactionState.COMPLETE_ABORT}

    run(place, test)


def test_an_id_that_is_idle_for_long_is_forgotten(place: Path) -> None:
    async def test(node: Node) -> None:
        await begun(node, ONE)
        for n in range(5):
            await node.transactions.init(f"idle-{n}", 1000, None)
        node.clock.ms += SETTINGS.broker.transactional_id_expiration_ms - 1
        node.transactions.delete_expired()
        await node.transactions.init("idle-4", 1000, None)
        node.clock.ms += 1
        replicated = node.hold_commits()
        node.transactions.delete_expired()
        with pytest.raises(ConcurrentTransactions):
            await node.transactions.init("idle-0", 1000, None)
        replicated.set()
        await node.settled()
        assert [held.name for held in node.transactions.all()] == [NAME, "idle-4"]

    async def then(node: Node) -> None:
        assert [held.name for held in node.transactions.all()] == [NAME, "idle-4"]
        assert await node.transactions.init("idle-0", 1000, None) == (6, 0)  # a new producer id, as if never seen

    run(place, test, then)


def test_many_idle_ids_are_forgotten_in_batches_that_fit(place: Path) -> None:
    async def test(node: Node) -> None:
        names = [f"{n}-" + "x" * 30_000 for n in range(40)]
        for name in names:
            await node.transactions.init(name, 1000, None)
        node.clock.ms += SETTINGS.broker.transactional_id_expiration_ms
        node.transactions.delete_expired()
        await node.settled()
        assert list(node.transactions.all()) == []

    run(place, test)


def test_without_epochs_left_the_id_changes(place: Path) -> None:
    async def first(node: Node) -> None:
        await node.transactions.init(NAME, 1000, None)
        (held,) = node.transactions.all()
        last = replace(held.metadata.to(TransactionState.EMPTY), producer_epoch=EPOCH_MAX - 1)
        node.transactions.runtime.write(0, [transaction_record(NAME, last)])

    async def then(node: Node) -> None:
        assert await node.transactions.init(NAME, 1000, ProducerIdAndEpoch(0, EPOCH_MAX - 1)) == (1, 0)
        assert await node.transactions.init(NAME, 1000, ProducerIdAndEpoch(0, EPOCH_MAX - 1)) == (
            1,
            0,
        )  # it was not told
        assert await node.transactions.init(NAME, 1000, None) == (1, 1)

    run(place, first, then)


def test_a_marker_is_brought_until_it_gets_through(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE, TWO)
        node.write(NAME, producer, TWO, 0, b"a")
        node.replicas.hosted[TWO].is_switching = True  # as when it moves to another log directory
        await node.transactions.end(NAME, producer, commit=True)
        await until_left(node, TWO)
        with pytest.raises(ConcurrentTransactions):
            await node.transactions.add_partitions(NAME, producer, [ONE])
        node.replicas.hosted[TWO].is_switching = False
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_COMMIT
        assert ended_in(node, TWO) == [Ended(0, (b"a",), True)]

    run(place, test)


def test_a_producer_that_goes_on_waits_for_its_last_transaction_to_be_completed(place: Path) -> None:
    """Refused, it would ask again later: an abort that comes first would end a transaction that never began."""

    async def test(node: Node) -> None:
        producer = await begun(node, ONE, TWO)
        node.replicas.hosted[TWO].is_switching = True
        await node.transactions.end(NAME, producer, commit=True)
        await until_left(node, TWO)
        adding = asyncio.create_task(node.transactions.add_partitions(NAME, producer, [ONE]))
        await asyncio.sleep(0)
        node.replicas.hosted[TWO].is_switching = False
        await adding
        assert (state(node), node.transactions.describe(NAME).partitions) == (
            TransactionState.ONGOING,
            frozenset({ONE}),
        )
        await node.transactions.end(NAME, producer, commit=False)

    run(place, test)


def test_a_waiting_request_fails_when_its_coordinator_changes(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE)
        node.replicas.hosted[ONE].is_switching = True
        await node.transactions.end(NAME, producer, commit=True)
        adding = asyncio.create_task(node.transactions.add_partitions(NAME, producer, [ONE]))
        await asyncio.sleep(0)
        await node.replicas.release(JOURNAL)
        with pytest.raises(NotCoordinator):
            await adding

    run(place, test)


def test_the_end_is_noted_as_soon_as_the_journal_takes_it(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE)
        one, journal = node.replicas.hosted[ONE], node.replicas.hosted[JOURNAL]
        one.is_switching = True
        await node.transactions.end(NAME, producer, commit=False)
        one.is_switching, journal.is_switching = False, True
        await until_left(node)
        await eventually(lambda: "is retried until it is CompleteAbort" in caplog.text)
        assert state(node) is TransactionState.PREPARE_ABORT
        journal.is_switching = False
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_ABORT

    run(place, test)


def test_a_partition_that_is_deleted_needs_no_marker(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE, TWO)
        node.deleted.add(TWO)
        await node.transactions.end(NAME, producer, commit=True)
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_COMMIT
        assert [node.replicas.hosted[tp].log.log_end for tp in (ONE, TWO)] == [1, 0]

    run(place, test)


def test_a_partition_that_knows_a_newer_epoch_needs_no_marker(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE)
        await node.markers.write(TransactionOutcome(ProducerIdAndEpoch(0, 5), 0, True), [ONE])
        await node.transactions.end(NAME, producer, commit=True)
        await node.settled()
        assert state(node) is TransactionState.COMPLETE_COMMIT

    run(place, test)


def test_what_a_newer_coordinator_is_at_is_left_to_it(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(node: Node) -> None:
        producer = await begun(node, ONE)
        await node.markers.write(TransactionOutcome(producer, 7, True), [ONE])
        await node.transactions.end(NAME, producer, commit=True)
        await node.settled()
        assert state(node) is TransactionState.PREPARE_COMMIT
        assert "left to a newer coordinator" in caplog.text

    run(place, test)


def test_too_many_partitions_for_one_record(place: Path) -> None:
    async def test(node: Node) -> None:
        producer = await node.transactions.init(NAME, 1000, None)
        many = [TopicPartition("x" * 240 + str(n), 0) for n in range(5000)]
        with pytest.raises(UnknownServerError, match=r"max\.message\.bytes"):
            await node.transactions.add_partitions(NAME, producer, many)
        await node.transactions.add_partitions(NAME, producer, [ONE])

    run(place, test)


def test_unreadable_records_of_the_journal_are_passed_over(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def first(node: Node) -> None:
        await begun(node, ONE)
        journal = node.transactions.runtime
        journal.write(
            0,
            [
                CoordinatorRecord(b"\0\0\0\2id", b"garbage"),
                CoordinatorRecord(b"\0", b""),
                CoordinatorRecord(b"\0\x09of a newer broker", b""),
            ],
        )
        await node.transactions.init("other", 1000, None)

    async def then(node: Node) -> None:
        assert {held.name for held in node.transactions.all()} == {NAME, "other"}
        assert state(node) is TransactionState.ONGOING
        assert caplog.text.count("is skipped") == 2

    run(place, first, then)

"""Markers in the partitions that this broker leads."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadline.coordinator.marker_writer import TransactionOutcome
from leadline.coordinator.transaction import ProducerIdAndEpoch
from leadline.errors import TransactionCoordinatorFenced, UnknownTopicOrPartition
from leadline.model import TopicPartition
from leadline.records.batch import walk
from leadline.records.control import ControlType, EndMarker, read_end_marker
from tests.support import in_memory
from tests.support.logs import ManualClock, whole_log
from tests.support.transactions import Node, coordinator

ONE, OFFSETS, ABSENT = TopicPartition("t", 0), TopicPartition("__consumer_offsets", 3), TopicPartition("absent", 0)
PRODUCER = ProducerIdAndEpoch(7, 2)


@pytest.fixture
def place() -> Iterator[Path]:
    yield from in_memory.directory()


def marker_in(node: Node, tp: TopicPartition) -> EndMarker | None:
    data = whole_log(node.replicas.hosted[tp].log)
    ((position, header),) = walk(data)
    return read_end_marker(data, position, header)


@pytest.mark.parametrize("committed", [False, True])
def test_a_marker_is_written_and_pending_offsets_are_ended(place: Path, committed: bool) -> None:
    async def run() -> None:
        async with coordinator(place, ManualClock(), [], [ONE, OFFSETS], epoch=0) as node:
            errors = await node.markers.write(TransactionOutcome(PRODUCER, 4, committed), [ONE, OFFSETS])
            assert errors == {ONE: None, OFFSETS: None}
            kind = ControlType.COMMIT if committed else ControlType.ABORT
            assert marker_in(node, ONE) == EndMarker(kind, 4, node.clock.ms)
            assert node.offsets_ended == [(3, 7, committed)]

    asyncio.run(run())


def test_a_partition_that_fails_does_not_keep_the_others_from_their_marker(place: Path) -> None:
    async def run() -> None:
        async with coordinator(place, ManualClock(), [], [ONE], epoch=0) as node:
            errors = await node.markers.write(TransactionOutcome(PRODUCER, 4, True), [ABSENT, ONE])
            assert errors[ONE] is None
            assert isinstance(errors[ABSENT], UnknownTopicOrPartition)

    asyncio.run(run())


def test_a_coordinator_with_an_older_epoch_is_fenced(place: Path) -> None:
    async def run() -> None:
        async with coordinator(place, ManualClock(), [], [ONE], epoch=0) as node:
            await node.markers.write(TransactionOutcome(PRODUCER, 4, True), [ONE])
            errors = await node.markers.write(TransactionOutcome(PRODUCER, 3, True), [ONE])
            assert isinstance(errors[ONE], TransactionCoordinatorFenced)

    asyncio.run(run())

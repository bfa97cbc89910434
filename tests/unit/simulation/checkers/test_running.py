"""Each law that is checked after a step is broken by a step that was made for it."""

import json

import pytest

from leadline.coordination import znodes
from leadline.coordination.tree import Change, Event
from leadline.model import TopicPartition
from leadline.simulation.checkers.running import LeaderMark, ProcessMarks, RunningChecks

TP = TopicPartition("records", 0)
STATE = "/brokers/topics/records/partitions/0/state"


@pytest.fixture
def violations() -> list[str]:
    return []


@pytest.fixture
def checks(violations: list[str]) -> RunningChecks:
    return RunningChecks(violations.append)


def test_the_high_watermark_never_goes_back_within_an_epoch(checks: RunningChecks, violations: list[str]) -> None:
    marks = ProcessMarks()
    for mark in (LeaderMark(1, 5), LeaderMark(1, 7), LeaderMark(2, 6)):
        checks.led(TP, 1, mark, marks)
    assert violations == []
    checks.led(TP, 1, LeaderMark(2, 5), marks)
    assert violations == ["high watermark went back: records-0 on broker 1, epoch 2: from 6 to 5"]


def test_a_leader_epoch_has_one_leader(checks: RunningChecks, violations: list[str]) -> None:
    checks.led(TP, 1, LeaderMark(1, 5), ProcessMarks())
    checks.led(TP, 1, LeaderMark(1, 3), ProcessMarks())  # another life of the same broker
    checks.led(TP, 2, LeaderMark(2, 5), ProcessMarks())
    assert violations == []
    checks.led(TP, 2, LeaderMark(1, 5), ProcessMarks())
    assert violations == ["two leaders: brokers 1 and 2 lead records-0 in epoch 1"]


def test_a_generation_only_grows(checks: RunningChecks, violations: list[str]) -> None:
    marks, shard = ProcessMarks(), object()
    for generation in (0, 1, 3):
        checks.generation_began("g", shard, generation, marks)
    checks.generation_began("g", later := object(), 3, marks)  # the coordinator has loaded it again
    assert violations == []
    checks.generation_began("g", later, 2, marks)
    assert violations == ["generation went back: g from 3 to 2"]


def test_a_controller_epoch_has_one_controller(checks: RunningChecks, violations: list[str]) -> None:
    for epoch in (0, 1, 2):
        checks.written(Event(Change.SET, znodes.CONTROLLER_EPOCH), znodes.encode_controller_epoch(epoch))
    assert violations == []
    checks.written(Event(Change.SET, znodes.CONTROLLER_EPOCH), znodes.encode_controller_epoch(2))
    assert violations == ["two controllers: epoch 2 began after epoch 2"]


@pytest.mark.parametrize(("leader", "controller", "broken"), [(3, 2, False), (4, 3, False), (2, 2, True), (3, 1, True)])
def test_the_epochs_of_a_partition_only_grow(
    checks: RunningChecks, violations: list[str], leader: int, controller: int, broken: bool
) -> None:
    for epochs in ((3, 2), (leader, controller)):
        node = dict(zip(("leader_epoch", "controller_epoch"), epochs, strict=True))
        checks.written(Event(Change.SET, STATE), json.dumps(node).encode())
    assert bool(violations) == broken


def test_a_partition_that_was_deleted_begins_again(checks: RunningChecks, violations: list[str]) -> None:
    node = json.dumps({"leader_epoch": 3, "controller_epoch": 2}).encode()
    checks.written(Event(Change.CREATED, STATE), node)
    checks.written(Event(Change.DELETED, STATE), b"")
    checks.written(Event(Change.CREATED, STATE), node.replace(b"3", b"0"))
    assert violations == []

"""Whatever is done to three replicas, in any order: nothing acknowledged is lost, those in sync go on without those
that are gone, and in the end all agree."""

import random
import struct
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.replication_invariants import Invariants
from tests.property.replication_steps import Model
from tests.support.replicas import LAG_MS

SOON_MS = LAG_MS // 3
ROUND_MS = 25
STEPS_BEFORE_LEAVING = 10


def walk(model: Model, choices: Iterable[int]) -> None:
    """Step by step, with an eye on the invariants; then without those that are gone; then let it come to rest."""
    invariants = Invariants(model)
    for number, choice in enumerate(choices, 1):
        model.step(choice)
        hold(invariants)
        if number % 50 == 0:
            go_on(invariants)
    go_on(invariants)
    come_to_rest(invariants)


def come_to_rest(invariants: Invariants) -> None:
    model = invariants.model
    model.recover()
    rounds = 40 + model.produced
    while invariants.unsettled() and rounds:
        rounds -= 1
        model.quiet_round()
        hold(invariants)
    assert invariants.unsettled() == []


def go_on(invariants: Invariants, *, leaving_are_missed: bool = True) -> None:
    """What is appended now is soon safe, without those that are gone."""
    model = invariants.model
    model.lose_the_departed(leaving_are_missed=leaving_are_missed)
    model.produce(model.nodes.get(model.controller.current.leader, model.nodes[1]))
    deadline_ms = model.now_ms + SOON_MS
    while invariants.stalled() and model.now_ms < deadline_ms:
        model.quiet_round(ROUND_MS)
        hold(invariants)
    assert invariants.stalled() == []


def hold(invariants: Invariants) -> None:
    invariants.model.acknowledge()
    for complaint in invariants.broken():
        pytest.fail(complaint)


def row(seed: int, length: int) -> list[int]:
    chosen = random.Random(seed)
    return [chosen.randrange(1 << 16) for _ in range(length)]


def numbers(data: bytes) -> list[int]:
    """Two bytes each."""
    return [number for (number,) in struct.iter_unpack(">H", data[: len(data) // 2 * 2])]


@settings(max_examples=200)
@given(data=st.binary(min_size=100, max_size=1000), min_isr=st.sampled_from([1, 2]))
def test_nothing_acknowledged_is_lost(data: bytes, min_isr: int) -> None:
    walk(Model(min_isr=min_isr), numbers(data))


@settings(max_examples=100)
@given(data=st.binary(min_size=100, max_size=1000))
def test_replicas_agree_in_the_end_even_after_unclean_elections(data: bytes) -> None:
    walk(Model(unclean=True), numbers(data))


@pytest.mark.parametrize(("min_isr", "unclean"), [(1, False), (2, False), (1, True)])
@pytest.mark.parametrize("seed", range(10))
def test_a_long_walk_breaks_no_law(seed: int, min_isr: int, unclean: bool) -> None:
    model = Model(min_isr=min_isr, unclean=unclean)
    walk(model, row(seed, 1000))
    assert model.acknowledged


@settings(max_examples=50)
@given(data=st.binary(min_size=40, max_size=400), min_isr=st.sampled_from([1, 2]))
def test_those_in_sync_go_on_without_one_that_leaves(data: bytes, min_isr: int) -> None:
    """Again and again: something happens, all is well again, and one leaves; it is registered a while longer."""
    model = Model(min_isr=min_isr)
    invariants, choices = Invariants(model), numbers(data)
    for start in range(0, len(choices), STEPS_BEFORE_LEAVING):
        for choice in choices[start : start + STEPS_BEFORE_LEAVING]:
            model.step(choice)
        come_to_rest(invariants)
        model.shut_down(model.nodes[1 + choices[start] % 3])
        go_on(invariants)
    come_to_rest(invariants)


@settings(max_examples=30)
@given(data=st.binary(min_size=40, max_size=200), min_isr=st.sampled_from([1, 2]))
def test_those_in_sync_go_on_without_one_that_leaves_as_it_joins(data: bytes, min_isr: int) -> None:
    """It was proposed, and the controller refuses it: it leaves, though it is still registered."""
    model = Model(min_isr=min_isr)
    invariants, choices = Invariants(model), numbers(data)
    for start in range(0, len(choices), STEPS_BEFORE_LEAVING):
        for choice in choices[start : start + STEPS_BEFORE_LEAVING]:
            model.step(choice)
        come_to_rest(invariants)
        model.quiet_round()  # all have heard who leads
        followers = [node for node in model.nodes.values() if node.following is not None]
        node = followers[choices[start] % len(followers)]
        if model.is_out_and_back(node):
            model.shut_down(node)
            go_on(invariants, leaving_are_missed=False)
    come_to_rest(invariants)


def test_with_truncation_to_the_high_watermark_the_laws_do_break() -> None:
    broken = []
    for seed in range(40):
        try:
            walk(Model(keeps_epochs=False), row(seed, 300))
        except pytest.fail.Exception as failure:
            broken.append(str(failure))
    assert any("was acknowledged" in text for text in broken), broken

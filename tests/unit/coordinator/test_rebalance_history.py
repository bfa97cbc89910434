"""The last rebalances of a group."""

import json

from leadline.coordinator.rebalance_history import (
    MAX_CAUSES,
    MAX_REBALANCES,
    Rebalance,
    RebalanceCause,
    RebalanceHistory,
    RebalanceOutcome,
    RebalanceReason,
)


def test_a_rebalance_is_under_way_until_it_ends() -> None:
    history = RebalanceHistory()
    assert history.under_way is None
    history.begin(Rebalance(5, "Empty", 0, 0))
    assert history.under_way is history.rebalances[-1]
    history.end(RebalanceOutcome.STABLE, 1, 2, 9)
    assert history.under_way is None
    ended = history.rebalances[-1]
    assert (ended.ended_ms, ended.generation_after, ended.members_after) == (9, 1, 2)


def test_causes_outside_of_a_rebalance_are_ignored() -> None:
    history = RebalanceHistory()
    history.add(RebalanceCause(RebalanceReason.LEFT))
    assert not history.rebalances


def test_only_the_last_rebalances_are_kept() -> None:
    history = RebalanceHistory()
    for began_ms in range(MAX_REBALANCES + 3):
        history.begin(Rebalance(began_ms, "Stable", 1, 1))
    assert [rebalance.began_ms for rebalance in history.rebalances] == list(range(3, MAX_REBALANCES + 3))


def test_further_causes_are_counted() -> None:
    rebalance = Rebalance(5, "Stable", 1, 1)
    for n in range(MAX_CAUSES + 4):
        rebalance.add(RebalanceCause(RebalanceReason.JOINED, f"m{n}"))
    assert (len(rebalance.causes), rebalance.more_causes) == (MAX_CAUSES, 4)
    assert rebalance.causes[0].member_id == "m0"


def test_a_rebalance_that_is_under_way_has_neither_duration_nor_outcome_in_json() -> None:
    rebalance = Rebalance(5, "Stable", 1, 1)
    rebalance.add(RebalanceCause(RebalanceReason.SESSION_TIMED_OUT, "m"))
    values = json.loads(json.dumps(rebalance.to_json()))
    assert (values["took_ms"], values["outcome"]) == (None, None)
    assert values["causes"][0]["what"] == "session timed out"
    rebalance.ended_ms, rebalance.outcome = 12, RebalanceOutcome.EMPTY
    assert (rebalance.to_json()["took_ms"], rebalance.to_json()["outcome"]) == (7, "empty")

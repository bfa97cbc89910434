"""Why a group rebalanced, in a line, from what a coordinator kept of it."""

from leadline.admin.formatting import moment_text
from leadline.admin.rebalances import SHOWN, rows
from leadline.coordinator.rebalance_history import (
    MAX_CAUSES,
    Rebalance,
    RebalanceCause,
    RebalanceOutcome,
    RebalanceReason,
)

BEGAN_MS = 1_700_000_000_000
JOINED = RebalanceCause(RebalanceReason.JOINED, "reader-0-1", None, "reader-0", "/127.0.0.1")
LEFT = RebalanceCause(
    RebalanceReason.LEFT, "desk-1-2", "desk-1", "reader-1", "/127.0.0.1", "the consumer is being closed"
)


def rebalance(
    *causes: RebalanceCause, took_ms: int | None = 1500, outcome: RebalanceOutcome = RebalanceOutcome.STABLE
) -> Rebalance:
    event = Rebalance(BEGAN_MS, "Stable", 3, 1)
    for cause in causes:
        event.add(cause)
    if took_ms is not None:
        event.ended_ms, event.outcome = BEGAN_MS + took_ms, outcome
        event.generation_after, event.members_after = 4, 2
    return event


def test_a_rebalance_is_shown_with_time_duration_members_and_causes() -> None:
    (row,) = rows([rebalance(JOINED, LEFT).to_json()])
    why = "reader-0 on 127.0.0.1 joined; desk-1 on 127.0.0.1 left (the consumer is being closed)"
    assert row == [moment_text(BEGAN_MS), "1 s", "3 to 4", "1 to 2", why]


def test_one_that_is_under_way_and_one_that_was_interrupted() -> None:
    under_way, interrupted = rows(
        [rebalance(JOINED, outcome=RebalanceOutcome.INTERRUPTED).to_json(), rebalance(JOINED, took_ms=None).to_json()]
    )
    assert under_way[1:4] == ["under way", "3", "1"]
    assert interrupted[1] == "1 s, interrupted"


def test_causes_beyond_what_was_kept_are_counted_and_of_many_the_newest_are_shown() -> None:
    (row,) = rows([rebalance(*[JOINED] * (MAX_CAUSES + 2)).to_json()])
    assert row[4].endswith("; and 2 more")
    assert len(rows([rebalance(JOINED).to_json()] * (SHOWN + 1))) == SHOWN

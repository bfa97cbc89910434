"""What a supervisor decides: every pair of state and event, back-off, and how brokers stop."""

from itertools import product

import pytest

from leadline.cli.supervisor.supervision import (
    FIRST_BACKOFF_S,
    HAVE_PROCESS,
    MAX_BACKOFF_S,
    NEXT_STATE,
    STABLE_S,
    Action,
    ProcessEvent,
    ProcessState,
    Supervision,
    SupervisionPolicy,
    Verb,
)

HOST = SupervisionPolicy(restarts=True, stops_in_turn=True, needs_all=False, kill_after_s=300)
CLUSTER = SupervisionPolicy(restarts=False, stops_in_turn=False, needs_all=True, kill_after_s=60)
START, TERMINATE, KILL = Verb.START, Verb.TERMINATE, Verb.KILL
FINISH, ANNOUNCE = Action(Verb.FINISH), Action(Verb.ANNOUNCE)


def supervision(policy: SupervisionPolicy = HOST, count: int = 3) -> Supervision:
    """Brokers 0, 1, ... that all serve."""
    decisions = Supervision(range(count), policy)
    decisions.begin()
    for id in range(count):
        decisions.serves(id, 0.0)
    return decisions


def can_happen(state: ProcessState, event: ProcessEvent) -> bool:
    match event:
        case ProcessEvent.SERVES:
            return state is ProcessState.STARTING
        case ProcessEvent.DIES:
            return state in HAVE_PROCESS - {ProcessState.STOPPING}
        case ProcessEvent.LEAVES:
            return state in HAVE_PROCESS
        case ProcessEvent.DUE:
            return state is ProcessState.WAITING
        case ProcessEvent.BACK:
            return state is ProcessState.AWAY
        case ProcessEvent.STOP:
            return state not in (ProcessState.STOPPING, ProcessState.ENDED)


@pytest.mark.parametrize(("state", "event"), list(product(ProcessState, ProcessEvent)))
def test_every_pair_of_state_and_event_leads_somewhere_or_cannot_be(state: ProcessState, event: ProcessEvent) -> None:
    after = NEXT_STATE.get((state, event))
    assert (after is not None) == can_happen(state, event)
    if after is not None:
        has_process = (state in HAVE_PROCESS, after in HAVE_PROCESS)
        assert (has_process == (True, False)) == (event in (ProcessEvent.DIES, ProcessEvent.LEAVES))
        assert (has_process == (False, True)) == (event in (ProcessEvent.DUE, ProcessEvent.BACK))


def test_all_are_started_and_announced_once_when_the_last_one_serves() -> None:
    decisions = Supervision([4, 5], HOST)
    assert decisions.begin() == [Action(START, 4), Action(START, 5)]
    assert decisions.serves(5, 1.0) == []
    assert decisions.serves(4, 2.0) == [ANNOUNCE]
    decisions.ended(4, 3.0, is_clean=False)
    decisions.pass_time(3.0 + FIRST_BACKOFF_S)
    assert decisions.serves(4, 4.0) == []


def test_a_broker_that_ends_is_started_again_after_a_back_off_that_doubles_up_to_its_maximum() -> None:
    decisions, now_s, waits = supervision(), 0.0, []
    for _ in range(9):
        assert decisions.ended(1, now_s, is_clean=False) == []
        due_s = decisions.next_due_s
        assert due_s is not None
        assert decisions.pass_time(due_s - 0.001) == []
        assert decisions.pass_time(due_s) == [Action(START, 1)]
        waits.append(due_s - now_s)
        now_s = due_s
    assert waits == [0.5, 1, 2, 4, 8, 16, MAX_BACKOFF_S, MAX_BACKOFF_S, MAX_BACKOFF_S]
    assert decisions.count(ProcessState.SERVING) == 2, "the others go on"


@pytest.mark.parametrize(("served_s", "wait_s"), [(STABLE_S, FIRST_BACKOFF_S), (STABLE_S - 1, 2 * FIRST_BACKOFF_S)])
def test_a_broker_that_has_served_for_long_begins_its_back_off_anew(served_s: float, wait_s: float) -> None:
    decisions = supervision()
    decisions.ended(0, 1.0, is_clean=False)
    decisions.pass_time(2.0)
    decisions.serves(0, 3.0)
    decisions.ended(0, 3.0 + served_s, is_clean=True)
    assert decisions.next_due_s == 3.0 + served_s + wait_s


def test_a_stop_goes_from_the_last_broker_to_the_first_and_waits_for_each() -> None:
    decisions = supervision()
    assert decisions.stop(1.0) == [Action(TERMINATE, 2)]
    assert decisions.ended(2, 2.0, is_clean=True) == [Action(TERMINATE, 1)]
    assert decisions.ended(1, 3.0, is_clean=True) == [Action(TERMINATE, 0)]
    assert decisions.ended(0, 4.0, is_clean=True) == [FINISH]
    assert decisions.exit_code == 0


def test_a_second_request_stops_the_others_at_once_and_a_third_kills() -> None:
    decisions = supervision()
    decisions.stop(1.0)
    assert decisions.stop(2.0) == [Action(TERMINATE, 1), Action(TERMINATE, 0)]
    decisions.ended(1, 3.0, is_clean=True)
    assert decisions.stop(4.0) == [Action(KILL, 0), Action(KILL, 2)]
    decisions.ended(0, 5.0, is_clean=False)
    assert decisions.ended(2, 5.0, is_clean=False) == [FINISH]
    assert (decisions.exit_code, decisions.unclean) == (1, {0, 2})


def test_a_broker_that_takes_too_long_to_stop_is_killed_and_the_next_one_follows() -> None:
    decisions = supervision(count=2)
    decisions.stop(1.0)
    assert decisions.next_due_s == 301.0
    assert decisions.pass_time(301.0) == [Action(KILL, 1)]
    assert decisions.pass_time(400.0) == []
    assert decisions.ended(1, 401.0, is_clean=False) == [Action(TERMINATE, 0)]
    decisions.ended(0, 402.0, is_clean=True)
    assert decisions.unclean == {1}


def test_a_broker_that_waits_for_its_next_start_is_not_started_during_a_stop_and_the_exit_code_tells() -> None:
    decisions = supervision(count=2)
    decisions.ended(1, 1.0, is_clean=False)
    assert decisions.stop(1.1) == [Action(TERMINATE, 0)]
    assert decisions.next_due_s == 301.1
    assert decisions.ended(0, 2.0, is_clean=True) == [FINISH]
    assert (decisions.exit_code, decisions.unclean) == (1, {1})


def test_a_broker_that_dies_while_it_waits_for_its_turn_to_stop_counts_as_unclean() -> None:
    decisions = supervision(count=2)
    decisions.stop(1.0)
    assert decisions.ended(0, 1.5, is_clean=True) == []
    assert decisions.ended(1, 2.0, is_clean=True) == [FINISH]
    assert decisions.unclean == {0}


def test_a_broker_that_serves_when_it_was_asked_to_end_is_still_stopping() -> None:
    decisions = Supervision([0], HOST)
    decisions.begin()
    assert decisions.stop(1.0) == [Action(TERMINATE, 0)]
    assert decisions.serves(0, 1.1) == []
    assert decisions.ended(0, 2.0, is_clean=True) == [FINISH]
    assert decisions.exit_code == 0


def test_a_stop_without_any_process_finishes_at_once() -> None:
    decisions = supervision(count=1)
    decisions.ended(0, 1.0, is_clean=False)
    assert decisions.stop(1.1) == [FINISH]
    assert decisions.exit_code == 1


def test_a_cluster_ends_if_a_broker_ends_before_all_have_served() -> None:
    decisions = Supervision([1, 2, 3], CLUSTER)
    decisions.begin()
    decisions.serves(1, 1.0)
    assert decisions.ended(2, 2.0, is_clean=False) == [Action(TERMINATE, 3), Action(TERMINATE, 1)]
    assert (decisions.missing, decisions.exit_code) == (2, 1)


def test_a_broker_of_a_cluster_stays_away_until_somebody_starts_it() -> None:
    decisions = supervision(CLUSTER, 2)
    assert decisions.ended(1, 1.0, is_clean=False) == []
    assert decisions.next_due_s is None
    decisions.came_back(1, 2.0)
    assert decisions.count(ProcessState.SERVING) == 2
    assert decisions.stop(3.0) == [Action(TERMINATE, 1), Action(TERMINATE, 0)]


def test_a_cluster_without_any_broker_finishes() -> None:
    decisions = supervision(CLUSTER, 2)
    decisions.ended(0, 1.0, is_clean=False)
    assert decisions.ended(1, 2.0, is_clean=False) == [FINISH]


def test_a_broker_of_a_cluster_that_was_away_leaves_the_exit_code_as_it_is() -> None:
    decisions = supervision(CLUSTER, 2)
    decisions.ended(1, 1.0, is_clean=False)
    assert decisions.stop(2.0) == [Action(TERMINATE, 0)]
    decisions.ended(0, 3.0, is_clean=True)
    assert decisions.exit_code == 0

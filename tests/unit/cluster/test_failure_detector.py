"""What attempts to reach a broker prove, when silence counts, and who may act on it."""

import pytest

from leadline.cluster.broker_client import PeerGone, PeerLost, probe_outcome
from leadline.cluster.failure_detector import (
    FAILED_PROBE_TIMEOUT_S,
    FIRST_RETRY_S,
    RETRY_S,
    FailureDetector,
    MajorityDetector,
    ProbeOutcome,
    Reachability,
    hears_most,
    is_isolated,
    silence_s,
)

ANSWERED, REFUSED, LOST = ProbeOutcome.ANSWERED, ProbeOutcome.REFUSED, ProbeOutcome.LOST
REACHABLE, NOT_LISTENING, GONE = Reachability.REACHABLE, Reachability.NOT_LISTENING, Reachability.GONE
UNHEARD, SILENT = Reachability.UNHEARD, Reachability.SILENT
SILENCE_S = 6.0

# Histories that lead to each state, as (time, outcome); the second of GONE: the broker was registered before
HISTORIES: dict[Reachability, list[tuple[float, ProbeOutcome]]] = {
    REACHABLE: [(1.0, ANSWERED)],
    NOT_LISTENING: [(1.0, REFUSED)],
    GONE: [(0.5, ANSWERED), (1.0, REFUSED)],
    UNHEARD: [(0.5, ANSWERED), (1.0, LOST)],
    SILENT: [(0.0, ANSWERED), (1.0, LOST), (6.0, LOST)],
}


def detector_in(state: Reachability) -> FailureDetector:
    detector = FailureDetector(0.0, SILENCE_S)
    for now_s, outcome in HISTORIES[state]:
        detector.judge(outcome, now_s)
    assert detector.verdict is state
    return detector


@pytest.mark.parametrize(
    ("before", "answered", "refused", "lost", "lost_for_long"),
    [
        (REACHABLE, REACHABLE, GONE, UNHEARD, SILENT),
        (NOT_LISTENING, REACHABLE, NOT_LISTENING, UNHEARD, SILENT),
        (GONE, REACHABLE, GONE, UNHEARD, SILENT),
        (UNHEARD, REACHABLE, GONE, UNHEARD, SILENT),
        (SILENT, REACHABLE, GONE, SILENT, SILENT),
    ],
)
def test_every_outcome_leads_from_every_state_to_one(
    before: Reachability,
    answered: Reachability,
    refused: Reachability,
    lost: Reachability,
    lost_for_long: Reachability,
) -> None:
    at_s = HISTORIES[before][-1][0] + 1
    assert detector_in(before).judge(ANSWERED, at_s) is answered
    assert detector_in(before).judge(REFUSED, at_s) is refused
    assert detector_in(before).judge(LOST, at_s) is lost
    assert detector_in(before).judge(LOST, at_s + SILENCE_S) is lost_for_long


def test_a_refusal_proves_nothing_about_a_broker_that_never_answered() -> None:
    detector = FailureDetector(0.0, SILENCE_S)
    assert detector.judge(REFUSED, 100.0) is NOT_LISTENING
    assert detector.judge(LOST, 101.0) is UNHEARD
    assert detector.judge(REFUSED, 102.0) is NOT_LISTENING


def test_a_refusal_by_a_broker_that_is_known_to_have_listened_proves_its_end() -> None:
    assert FailureDetector(0.0, has_answered=True).judge(REFUSED, 0.1) is GONE


def test_a_broker_is_silent_from_the_very_moment_at_which_the_silence_is_long_enough() -> None:
    detector = FailureDetector(0.0, SILENCE_S)
    detector.judge(ANSWERED, 10.0)
    assert detector.judge(LOST, 10.0 + SILENCE_S - 0.001) is UNHEARD
    assert detector.judge(LOST, 10.0 + SILENCE_S) is SILENT


def test_a_refused_connection_ends_a_silence() -> None:
    detector = detector_in(SILENT)
    detector.judge(REFUSED, 20.0)
    assert detector.judge(LOST, 20.0 + SILENCE_S - 0.001) is UNHEARD


def test_without_a_limit_no_broker_is_silent() -> None:
    assert FailureDetector(0.0).judge(LOST, 1e9) is UNHEARD


def test_retries_come_soon_at_first_and_then_less_often_until_an_answer() -> None:
    detector = FailureDetector(0.0)
    pauses = [detector.next_retry_s() for _ in range(6)]
    assert pauses == [FIRST_RETRY_S, 0.02, 0.04, 0.08, RETRY_S, RETRY_S]
    detector.judge(REFUSED, 1.0)
    assert detector.next_retry_s() == RETRY_S
    detector.judge(ANSWERED, 2.0)
    assert detector.next_retry_s() == FIRST_RETRY_S


def test_probes_fit_into_a_silence_and_those_of_a_silent_broker_end_soon() -> None:
    detector = FailureDetector(0.0, SILENCE_S)
    assert (detector.probe_interval_s, detector.probe_timeout_s) == (1.5, 2.0)
    assert detector_in(SILENT).probe_timeout_s == FAILED_PROBE_TIMEOUT_S


def test_a_refused_connection_is_a_refusal_and_any_other_failure_is_a_loss() -> None:
    assert probe_outcome(PeerGone("nobody listens")) is REFUSED
    assert probe_outcome(PeerLost("no answer in time")) is LOST


def test_a_broker_hears_most_after_it_did_so_for_as_long_as_a_silence_lasts() -> None:
    majority = MajorityDetector(0.0, SILENCE_S)
    assert not majority.hears_most(SILENCE_S - 0.001)
    assert majority.hears_most(SILENCE_S)
    majority.judge(3, 2, 10.0)
    assert not majority.hears_most(10.0)
    majority.judge(3, 1, 12.0)
    assert not majority.hears_most(10.0 + SILENCE_S - 0.001)
    assert majority.hears_most(10.0 + SILENCE_S)


def test_silence_counts_after_a_third_of_the_session_and_never_at_once() -> None:
    assert silence_s(18_000) == 6.0
    assert silence_s(60_000) == 20.0
    assert silence_s(1000) == 5.0


@pytest.mark.parametrize(
    ("brokers", "silent", "acts", "is_cut_off"),
    [
        (1, 0, True, False),
        (2, 0, True, False),
        (2, 1, False, False),  # neither half knows which of them is cut off
        (3, 1, True, False),
        (3, 2, False, True),
        (4, 1, True, False),
        (4, 2, False, False),
        (4, 3, False, True),
        (5, 2, True, False),
        (5, 3, False, True),
    ],
)
def test_only_the_side_that_hears_most_brokers_acts(brokers: int, silent: int, acts: bool, is_cut_off: bool) -> None:
    assert hears_most(brokers, silent) is acts
    assert is_isolated(brokers, silent) is is_cut_off


def test_two_sides_never_both_act() -> None:
    for brokers in range(1, 12):
        for one_side in range(1, brokers):
            assert not (hears_most(brokers, brokers - one_side) and hears_most(brokers, one_side))


def test_a_broker_that_refuses_the_login_runs_and_is_not_silent() -> None:
    detector = FailureDetector(0.0, silence_s=5.0)
    for second in range(100):
        assert detector.judge(ProbeOutcome.LOCKED, float(second)) is Reachability.REACHABLE
    assert detector.judge(ProbeOutcome.LOST, 101.0) is Reachability.UNHEARD
    assert detector.judge(ProbeOutcome.REFUSED, 102.0) is Reachability.NOT_LISTENING

"""A scenario that breaks a law is made small: what is not needed for that goes."""

from leadline.simulation.scenario import PlannedFault, Scenario, scenario_from
from leadline.simulation.shrinking import shrunk

FAULTS = tuple(PlannedFault(n, 2.0 * n, "kill", 1 + n % 3, "append" if n % 2 else None) for n in range(12))
CLIENTS = ("producer-0", "producer-1", "reader-0")
SCENARIO = Scenario(17, is_synced=True, faults=FAULTS, clients=CLIENTS)


def test_only_what_is_needed_to_break_the_law_is_left() -> None:
    def is_broken(scenario: Scenario) -> bool:
        return {FAULTS[3], FAULTS[7]} <= set(scenario.faults) and "producer-1" in scenario.clients

    smallest = shrunk(SCENARIO, is_broken)
    assert smallest.faults == (FAULTS[3], FAULTS[7])
    assert smallest.clients == ("producer-1",)
    assert (smallest.partitions, smallest.length_s) == (1, 15.0)


def test_faults_after_the_violation_go_first() -> None:
    played: list[Scenario] = []

    def is_broken(scenario: Scenario) -> bool:
        played.append(scenario)
        return FAULTS[0] in scenario.faults

    assert shrunk(SCENARIO, is_broken, broken_at_s=5.0).faults == FAULTS[:1]
    assert played[0].faults == FAULTS[:3]


def test_a_smaller_scenario_is_tried_with_other_delays_too() -> None:
    smallest = shrunk(SCENARIO, lambda scenario: scenario.variant == 1)
    assert smallest.variant == 1
    assert not smallest.faults


def test_what_cannot_be_made_smaller_stays_and_plays_are_limited() -> None:
    played: list[Scenario] = []

    def is_broken(scenario: Scenario) -> bool:
        played.append(scenario)
        return False

    assert shrunk(SCENARIO, is_broken, plays=9) == SCENARIO
    assert len(played) == 9


def test_a_scenario_can_be_kept_as_json() -> None:
    assert scenario_from(SCENARIO.to_json()) == SCENARIO

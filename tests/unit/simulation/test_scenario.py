"""A seed gives a scenario. A part of it that is left out changes nothing in the others."""

from dataclasses import replace

from leadline.simulation.disk_faults import DISK_KINDS, DiskFaults
from leadline.simulation.faults import KINDS, SYNCED_KINDS, Faults
from leadline.simulation.scenario import scenario_of


def test_the_same_seed_gives_the_same_scenario() -> None:
    assert (
        scenario_of(1, KINDS, SYNCED_KINDS)
        == scenario_of(1, KINDS, SYNCED_KINDS)
        != scenario_of(2, KINDS, SYNCED_KINDS)
    )


def test_power_goes_only_where_each_append_is_synced() -> None:
    scenarios = [scenario_of(seed, KINDS, SYNCED_KINDS) for seed in range(20)]
    assert {scenario.is_synced for scenario in scenarios} == {True, False}
    for scenario in scenarios:
        cuts = [fault for fault in scenario.faults if fault.kind == "power_cut"]
        assert scenario.is_synced or not cuts


def test_each_kind_of_fault_can_be_played() -> None:
    assert all(callable(getattr(DiskFaults if kind in DISK_KINDS else Faults, kind)) for kind in SYNCED_KINDS)


def test_a_fault_draws_the_same_without_those_before_it() -> None:
    scenario = scenario_of(1, KINDS, SYNCED_KINDS)
    smaller = replace(scenario, faults=scenario.faults[1:])
    assert smaller.faults[0].chance(1).random() == scenario.faults[1].chance(1).random()

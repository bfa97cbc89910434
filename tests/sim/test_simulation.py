"""Whole clusters with faults hold what they promise, a seed decides everything, and planted bugs are found."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import leadline
from leadline.cli import main
from leadline.simulation.scenario import Scenario, scenario_from
from leadline.simulation.simulation import Simulation
from tests.sim import planted_bugs
from tests.sim.planted_bugs import PlantedBug

SCENARIOS = Path(__file__).parent / "scenarios"  # each finds a planted bug
REPAIRED = Path(__file__).parent / "repaired"  # each broke a law once, by a mistake of the product
SEEDS = 6  # `--long` plays more
LONG_SEEDS = 200
VARIANTS = 30  # of the delays of such a scenario
SEARCHED_SEEDS = 2000  # for a planted bug, with `--long`


def test_no_seed_breaks_a_law(is_long: bool, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", str(LONG_SEEDS if is_long else SEEDS)]) == 0, capfd.readouterr()[0]
    assert "no violations" in capfd.readouterr()[0]


@pytest.mark.parametrize("path", sorted(REPAIRED.glob("*.json")), ids=lambda path: path.stem)
def test_what_was_repaired_stays_repaired(path: Path) -> None:
    assert Simulation(scenario_from(path.read_text())).run().violations == []


def test_the_same_seed_gives_the_same_steps_in_another_process() -> None:
    first, second = (_outcome(17) for _ in range(2))
    assert first == second
    assert first["digest"] != _outcome(18)["digest"]


def test_the_same_seed_gives_the_same_steps_on_other_pythons() -> None:
    """`LEADLINE_PYTHONS=/path/to/python3.12:/path/to/python3.13`: each with what a broker depends on."""
    others = list(filter(None, os.environ.get("LEADLINE_PYTHONS", "").split(":")))
    if not others:
        pytest.skip("LEADLINE_PYTHONS names no other Python")
    for seed in (17, 18):
        for python in others:
            assert _outcome(seed, python) == _outcome(seed), python


def _outcome(seed: int, python: str = sys.executable) -> dict[str, object]:
    command = [python, "-m", "leadline.simulation", str(seed), str(seed + 1), "1"]
    env = os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(Path(leadline.__file__).parent.parent)}
    output = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
    outcome: dict[str, object] = json.loads(output.stdout)
    return outcome


@pytest.mark.parametrize("bug", planted_bugs.BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: PlantedBug, is_long: bool) -> None:
    """By a scenario that is known to find it, and with `--long` by a seed that has to be searched for.

    The order of sets, and each change of the product, change the steps: then other delays may be needed.
    """
    scenario = scenario_from((SCENARIOS / f"{bug.name}.json").read_text())
    assert any(_finds(bug, replace(scenario, variant=scenario.variant + n)) for n in range(VARIANTS))
    assert not is_long or any(_finds(bug, seed) for seed in range(SEARCHED_SEEDS))


def test_seeds_find_planted_bugs_that_have_no_short_scenario(is_long: bool) -> None:
    for bug in planted_bugs.SEARCHED_BUGS if is_long else ():
        assert any(_finds(bug, seed) for seed in range(SEARCHED_SEEDS)), bug.name


def _finds(bug: PlantedBug, played: Scenario | int) -> bool:
    with bug.plant():
        violations = Simulation(played).run(until=bug.violation).violations
    return any(line.startswith(bug.violation) for line in violations)


def test_a_story_is_told_of_one_seed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "3"]) == 0
    out = capfd.readouterr()[0]
    assert "the faults are over" in out
    assert "seed 3: " in out.splitlines()[-1]


def test_a_trace_needs_its_seed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--trace"]) == 1
    assert "--trace needs --seed" in capfd.readouterr()[1]

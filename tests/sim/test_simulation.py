"""Whole clusters with faults hold what they promise, a seed decides everything, and planted bugs are found."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from leadline.cli import main
from leadline.simulation.simulation import Simulation
from tests.sim import planted_bugs

SEEDS = 6  # `--long` plays more
LONG_SEEDS = 200
SEEDS_PER_BUG = 10


def test_no_seed_breaks_a_law(is_long: bool, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seeds", str(LONG_SEEDS if is_long else SEEDS)]) == 0, capfd.readouterr()[0]
    assert "no violations" in capfd.readouterr()[0]


def test_the_same_seed_gives_the_same_steps_in_another_process() -> None:
    first, second = (_outcome(17) for _ in range(2))
    assert first == second
    assert first["digest"] != _outcome(18)["digest"]


def _outcome(seed: int) -> dict[str, object]:
    command = [sys.executable, "-m", "leadline.simulation", str(seed), str(seed + 1), "1"]
    output = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "0"}, stdout=subprocess.PIPE, check=True)
    outcome: dict[str, object] = json.loads(output.stdout)
    return outcome


@pytest.mark.parametrize(
    ("bug", "violation"),
    [
        (planted_bugs.acknowledged_by_the_leader_alone, "lost write"),
        (planted_bugs.repeated_batches_are_appended, "doubled write"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_a_planted_bug_is_found(bug: Callable[[], AbstractContextManager[None]], violation: str) -> None:
    for seed in range(1, SEEDS_PER_BUG + 1):
        with bug():
            violations = Simulation(seed).run().violations
        if violations:
            break
    assert any(violation in line for line in violations)


def test_a_story_is_told_of_one_seed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--seed", "3"]) == 0
    out = capfd.readouterr()[0]
    assert "the faults are over" in out
    assert "seed 3: " in out.splitlines()[-1]


def test_a_trace_needs_its_seed(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sim", "--trace"]) == 1
    assert "--trace needs --seed" in capfd.readouterr()[1]

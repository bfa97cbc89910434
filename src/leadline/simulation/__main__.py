"""A worker of `leadline sim`: plays the seeds of its arguments, and prints the outcome of each as one line of JSON.

    FIRST END STEP              seeds
    FIRST END STEP steps        the same, with every callback in the story
    FIRST END STEP trace        the same; a seed that breaks a law is shrunk, and its trace is printed
    replay                      the scenario on standard input, with its trace

It is a process of its own, whose hashes are those of every other run (PYTHONHASHSEED): the order of a set is part of
what a seed decides.
"""

import gc
import json
import logging
import sys
from dataclasses import asdict, replace

from leadline.simulation.outcome import SimulationOutcome
from leadline.simulation.scenario import Scenario, scenario_from
from leadline.simulation.shrinking import PLAYS, shrunk
from leadline.simulation.simulation import Simulation
from leadline.simulation.trace import Trace, story_of


def main() -> None:
    logging.disable(logging.CRITICAL)
    gc.freeze()  # modules: the collections between two seeds skip them
    if sys.argv[1:] == ["replay"]:
        scenario = scenario_from(sys.stdin.read())
        _print(_with_story(Simulation(scenario).run(), scenario))
        return
    first, end, step = map(int, sys.argv[1:4])
    for seed in range(first, end, step):
        simulation = Simulation(seed)
        if sys.argv[4:] == ["steps"]:
            simulation.cluster.loop.trace = simulation.story.append
        outcome = _run(simulation)
        if sys.argv[4:] == ["trace"] and outcome.violations:
            outcome = _with_story(outcome, _smallest(simulation.scenario, outcome))
        _print(outcome)


def _run(simulation: Simulation, until: str | None = None) -> SimulationOutcome:
    """First the garbage of the one before is collected: Python would wait for that of many."""
    gc.collect()
    return simulation.run(until)


def _print(outcome: SimulationOutcome) -> None:
    print(json.dumps(asdict(outcome)), flush=True)


def law_of(violation: str) -> str:
    return violation.partition(":")[0]


def _smallest(scenario: Scenario, outcome: SimulationOutcome) -> Scenario:
    law, plays = law_of(outcome.violations[0]), 0
    at_s = next((float(line.split()[0]) for line in outcome.story if f"VIOLATION  {law}" in line), None)

    def is_broken(smaller: Scenario) -> bool:
        nonlocal plays
        plays += 1
        progress = f"play {plays} of {PLAYS} at most: {len(smaller.faults)} faults, {len(smaller.clients)} clients"
        print(f"\r\033[K{progress}" if sys.stderr.isatty() else progress, end="", file=sys.stderr, flush=True)
        return any(law_of(text) == law for text in _run(Simulation(smaller), law).violations)

    smallest = shrunk(scenario, is_broken, at_s)
    print("\r\033[K" if sys.stderr.isatty() else "", end="", file=sys.stderr, flush=True)
    return smallest


def _with_story(outcome: SimulationOutcome, scenario: Scenario) -> SimulationOutcome:
    """Plays a scenario again until it breaks the same law, and returns its trace."""
    law = law_of(outcome.violations[0]) if outcome.violations else None
    simulation = Simulation(scenario)
    trace = Trace(simulation)
    logging.disable(logging.NOTSET)
    trace.attach()
    try:
        again = simulation.run(until=law)
    finally:
        trace.detach()
        logging.disable(logging.CRITICAL)
    broken = [text for text in again.violations if law_of(text) == law]
    return replace(
        outcome, scenario=scenario.to_json(), smallest=[*story_of(trace.events, broken[0] if broken else "")]
    )


if __name__ == "__main__":
    main()

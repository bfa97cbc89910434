"""How many simulated seconds of three brokers one CPU second gives, by load.

    python -m tests.sim.speed
    PYTHONPATH=/another/tree/src python -m tests.sim.speed      that tree, to compare with in turns

idle        no client
producers   three idempotent producers, some seven batches a second in all, four partitions, three replicas each
drawn       what `leadline sim` plays: the clients and faults of the first seeds that draw three brokers
"""

import logging
import time
from collections.abc import Mapping, Sequence

from leadline.simulation.faults import KINDS, SYNCED_KINDS
from leadline.simulation.scenario import PRODUCERS, Scenario, scenario_of
from leadline.simulation.simulation import Simulation

SEEDS = 4
BROKERS = 3


def loads() -> Mapping[str, Sequence[Scenario]]:
    drawn = [scenario_of(seed, KINDS, SYNCED_KINDS) for seed in range(10 * SEEDS)]
    return {
        "idle": [Scenario(1, is_synced=False, faults=(), clients=())],
        "producers": [Scenario(1, is_synced=False, faults=(), clients=PRODUCERS)],
        "drawn": [scenario for scenario in drawn if scenario.brokers == BROKERS][:SEEDS],
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    for name, scenarios in loads().items():
        for scenario in scenarios:
            began_s = time.process_time()
            outcome = Simulation(scenario).run()
            cpu_s = time.process_time() - began_s
            print(
                f"{name:10} seed {scenario.seed:2}: {outcome.virtual_s:6.1f} simulated s in {cpu_s:5.2f} CPU s: "
                f"{outcome.virtual_s / cpu_s:5.1f}; a simulated second has {outcome.steps / outcome.virtual_s:.0f} "
                f"steps and {outcome.acknowledged / outcome.virtual_s:.1f} acknowledged records",
                flush=True,
            )


if __name__ == "__main__":
    main()

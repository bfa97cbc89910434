"""A worker of `leadline sim`: plays the seeds of its arguments, and prints the outcome of each as one line of JSON.

It is a process of its own, whose hashes are those of every other run (PYTHONHASHSEED): the order of a set is part of
what a seed decides.
"""

import json
import logging
import sys
from dataclasses import asdict

from leadline.simulation.simulation import Simulation


def main() -> None:
    first, end, step = map(int, sys.argv[1:4])
    is_traced = sys.argv[4:] == ["trace"]
    logging.disable(logging.CRITICAL)
    for seed in range(first, end, step):
        simulation = Simulation(seed)
        if is_traced:
            simulation.cluster.loop.trace = simulation.story.append
        print(json.dumps(asdict(simulation.run())), flush=True)


if __name__ == "__main__":
    main()

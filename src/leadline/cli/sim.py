"""leadline sim: plays whole clusters in one process, with faults, and checks that nothing acknowledged is lost."""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

from leadline.cli import COMMANDS
from leadline.cli.errors import Failure
from leadline.cli.options import Commands, add_command
from leadline.simulation.outcome import SimulationOutcome

DESCRIPTION = """
Real brokers, controller, replication and logs of a cluster run in one process, on a
simulated clock, network, disk and ZooKeeper. Everything follows from one integer,
the seed: which broker is killed, paused, cut off or loses its power, and when.
Afterwards every acknowledged record must be there, once, in its order, and the same
on all replicas; and each partition must take records again.
"""
EXAMPLES = """
  leadline sim                            100 seeds
  leadline sim --seeds 1000 --jobs 2      in two processes
  leadline sim --seed 17                  one seed, as a story
  leadline sim --seed 17 --trace          with every callback of every process
"""
HASH_SEED = "0"  # the same hashes in every process, so that sets are iterated in the same order
END = None  # of the outcomes of a worker


def add_to(commands: "Commands[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "sim",
        run,
        help=COMMANDS["sim"].help,
        usage="sim [options]",
        examples=EXAMPLES,
        description=DESCRIPTION.strip(),
        connects=False,
    )
    parser.add_argument("--seeds", type=int, default=100, metavar="COUNT", help="how many seeds (default: 100)")
    parser.add_argument("--first", type=int, default=1, metavar="SEED", help="the first of them (default: 1)")
    parser.add_argument("--jobs", type=int, default=1, metavar="COUNT", help="processes (default: 1)")
    parser.add_argument("--seed", type=int, metavar="SEED", help="play this one, and print its story")
    parser.add_argument("--trace", action="store_true", help="with --seed: print each callback, too")


def run(options: argparse.Namespace) -> int:
    if options.trace and options.seed is None:
        raise Failure("--trace needs --seed: which one?")
    if options.seed is not None:
        return _play_one(options.seed, is_traced=options.trace)
    if options.seeds < 1 or options.jobs < 1:
        raise Failure("--seeds and --jobs are at least 1")
    return _play_many(options.first, options.first + options.seeds, options.jobs)


def outcomes(first: int, end: int, jobs: int, *, is_traced: bool = False) -> Iterator[SimulationOutcome]:
    """Of the seeds from `first` to before `end`, as they come."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read(worker: "subprocess.Popen[str]") -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            lines.put(line)
        lines.put(END)

    with ExitStack() as stack:
        workers = []
        for job in range(jobs):
            arguments = [str(first + job), str(end), str(jobs), *(["trace"] if is_traced else [])]
            worker = subprocess.Popen(
                [sys.executable, "-m", "leadline.simulation", *arguments],
                env=os.environ | {"PYTHONHASHSEED": HASH_SEED},
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            threading.Thread(target=read, args=(worker,), daemon=True).start()
            workers.append(worker)
        running = jobs
        while running:
            line = lines.get()
            if line is END:
                running -= 1
            else:
                yield SimulationOutcome(**json.loads(line))
        for worker in workers:
            if worker.wait() != 0:
                raise Failure(f"a worker ended with {worker.returncode}: its message is above")


def _play_one(seed: int, *, is_traced: bool) -> int:
    (outcome,) = outcomes(seed, seed + 1, 1, is_traced=is_traced)
    print("\n".join(outcome.story))
    print()
    _print_violations(outcome)
    print(
        f"seed {seed}: {outcome.virtual_s:.0f} simulated seconds, {outcome.steps} steps, "
        f"{outcome.acknowledged} of {outcome.attempts} records acknowledged, "
        f"{sum(outcome.faults.values())} faults, {len(outcome.violations)} violations; digest {outcome.digest}"
    )
    return 1 if outcome.violations else 0


def _play_many(first: int, end: int, jobs: int) -> int:
    faults: Counter[str] = Counter()
    count, seconds, acknowledged, failed = 0, 0.0, 0, []
    for outcome in outcomes(first, end, jobs):
        count, seconds = count + 1, seconds + outcome.virtual_s
        acknowledged += outcome.acknowledged
        faults.update(outcome.faults)
        if outcome.violations:
            failed.append(outcome.seed)
            _clear_progress()
            _print_violations(outcome)
        elif sys.stderr.isatty():
            done = (
                f"{count} of {end - first} seeds, {seconds / 3600:.1f} simulated hours, {len(failed)} with violations"
            )
            print(f"\r{done}", end="", file=sys.stderr, flush=True)
    _clear_progress()
    print(f"{count} seeds, {seconds / 3600:.1f} simulated hours, {acknowledged} records acknowledged")
    print(f"{faults.total()} faults: {', '.join(f'{n} {_words(kind)}' for kind, n in faults.most_common())}")
    if failed:
        print(f"{len(failed)} seeds with violations: {', '.join(map(str, sorted(failed)))}")
        print(f"  the story of one: leadline sim --seed {min(failed)}")
        return 1
    print("no violations: every acknowledged record is there, once, in order, and the same on all replicas")
    return 0


def _words(kind: str) -> str:
    return kind.replace("_", " ")


def _clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def _print_violations(outcome: SimulationOutcome) -> None:
    shown = 5
    for violation in outcome.violations[:shown]:
        print(f"seed {outcome.seed}: {violation}")
    if len(outcome.violations) > shown:
        print(f"seed {outcome.seed}: and {len(outcome.violations) - shown} more")

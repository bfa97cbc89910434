"""leadline sim: plays whole clusters in one process, with faults, and checks that nothing acknowledged is lost."""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from leadline.admin.errors import Failure
from leadline.admin.formatting import count_text
from leadline.cli import COMMANDS
from leadline.cli.options import Commands, add_command
from leadline.simulation.outcome import SimulationOutcome
from leadline.simulation.scenario import scenario_from

DESCRIPTION = """
Real brokers, controller, coordinators, replication and logs of a cluster run in one
process, on a simulated clock, network, disk and ZooKeeper. Everything follows from
one integer, the seed: what clients do, and which broker is killed, paused, cut off,
loses its power or its disk, and when. Every step and the end are checked: every
acknowledged record exists once, in order, and is the same on all replicas; and each
partition accepts records again.
"""
EXAMPLES = """
  leadline sim                            100 seeds
  leadline sim --seeds 1000 --jobs 2      in two processes
  leadline sim --minutes 6 --jobs 2       new seeds, for six minutes
  leadline sim --seed 17                  one seed: its faults, and what they broke
  leadline sim --seed 17 --trace          the fewest steps to the failure, with the
                                          lines of code that decided them
  leadline sim --replay smallest.json     the same steps again, from a file that --save wrote
"""
HASH_SEED = "0"  # the same hashes in every process, so that sets are iterated in the same order
END = None  # of the outcomes of a worker
NEVER = 1 << 62  # the end of the seeds that are simulated for a time
REPORT_S = 30.0  # between two lines of progress, without a terminal


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
    parser.add_argument("--seeds", type=int, default=100, metavar="COUNT", help="number of seeds (default 100)")
    parser.add_argument(
        "--first", type=int, metavar="SEED", help="first seed (default 1; with --minutes, the current time)"
    )
    parser.add_argument("--minutes", type=float, metavar="COUNT", help="simulate new seeds for this long")
    parser.add_argument("--jobs", type=int, default=1, metavar="COUNT", help="number of processes (default 1)")
    parser.add_argument("--seed", type=int, metavar="SEED", help="simulate only this seed, and print its faults")
    parser.add_argument(
        "--trace", action="store_true", help="with --seed: shrink the failing scenario and print its trace"
    )
    parser.add_argument("--steps", action="store_true", help="with --seed: print each callback of each process")
    parser.add_argument("--save", metavar="FILE", help="with --trace: write the smallest scenario to a file")
    parser.add_argument("--replay", metavar="FILE", help="simulate a scenario that --save wrote")


def run(options: argparse.Namespace) -> int:
    if (options.trace or options.steps) and options.seed is None:
        raise Failure(f"--{'trace' if options.trace else 'steps'} needs --seed: which one?")
    if options.save is not None and not options.trace:
        raise Failure("--save needs --trace: without, no scenario is made small")
    if options.replay is not None:
        return _replay(options.replay)
    if options.seed is not None:
        return _play_one(options.seed, "trace" if options.trace else "steps" if options.steps else None, options.save)
    if options.seeds < 1 or options.jobs < 1 or (options.minutes is not None and options.minutes <= 0):
        raise Failure("--seeds and --jobs are at least 1, and --minutes is more than 0")
    if options.minutes is not None:
        first = int(time.time()) if options.first is None else options.first
        print(f"seeds from {first} on, for {options.minutes:g} minutes", flush=True)
        return _play_many(first, NEVER, options.jobs, time.monotonic() + 60 * options.minutes)
    first = 1 if options.first is None else options.first
    return _play_many(first, first + options.seeds, options.jobs)


def outcomes(
    first: int, end: int, jobs: int, mode: str | None = None, until_s: float | None = None
) -> Iterator[SimulationOutcome]:
    """Outcomes of the seeds from `first` to before `end`, as they finish. `until_s`: by the monotonic clock."""
    arguments = [[str(first + job), str(end), str(jobs), *([mode] if mode else [])] for job in range(jobs)]
    return _outcomes_of(arguments, None, until_s)


def _outcomes_of(
    arguments: Sequence[Sequence[str]], input_text: str | None, until_s: float | None = None
) -> Iterator[SimulationOutcome]:
    """The outcomes of one worker for each list of arguments. `input_text` is its standard input."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read(worker: "subprocess.Popen[str]") -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            lines.put(line)
        lines.put(END)

    with ExitStack() as stack:
        workers = []
        for worker_arguments in arguments:
            worker = subprocess.Popen(
                [sys.executable, "-m", "leadline.simulation", *worker_arguments],
                env=os.environ | {"PYTHONHASHSEED": HASH_SEED},
                stdin=subprocess.DEVNULL if input_text is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(worker)
            stack.callback(worker.kill)
            if input_text is not None and worker.stdin is not None:
                worker.stdin.write(input_text)
                worker.stdin.close()
            threading.Thread(target=read, args=(worker,), daemon=True).start()
            workers.append(worker)
        running = len(workers)
        while running:
            try:
                line = lines.get(timeout=None if until_s is None else max(until_s - time.monotonic(), 0))
            except queue.Empty:
                return  # the time is over
            if line is END:
                running -= 1
            else:
                yield SimulationOutcome(**json.loads(line))
        for worker in workers:
            if worker.wait() != 0:
                raise Failure(f"a worker ended with {worker.returncode}: its message is above")


def _play_one(seed: int, mode: str | None, save: str | None) -> int:
    (outcome,) = outcomes(seed, seed + 1, 1, mode)
    if outcome.smallest:
        _print_smallest(outcome)
        if save is not None:
            with open(save, "w") as file:
                file.write(outcome.scenario)
            print(f"To play it again: leadline sim --replay {save}")
            print()
    else:
        print("\n".join(outcome.story))
        print()
        _print_violations(outcome)
        if mode == "trace":
            print(f"seed {seed} breaks nothing: there is nothing to make small")
    _print_summary(outcome)
    return 1 if outcome.violations else 0


def _replay(path: str) -> int:
    with open(path) as file:
        scenario = file.read()
    try:
        scenario_from(scenario)
    except (ValueError, TypeError, KeyError) as error:
        raise Failure(f"{path} does not hold a scenario that --save wrote: {error}") from error
    (outcome,) = _outcomes_of([["replay"]], scenario)
    _print_smallest(outcome)
    _print_summary(outcome)
    return 1 if outcome.violations else 0


def _print_smallest(outcome: SimulationOutcome) -> None:
    scenario = scenario_from(outcome.scenario)
    if outcome.violations:
        print(f"seed {outcome.seed} breaks a law: {outcome.violations[0]}")
        print()
        print("The smallest scenario that was found to break it:")
    print(f"  brokers  {scenario.brokers}, topic records with {count_text(scenario.partitions, 'partition')}")
    print(f"  clients  {', '.join(scenario.clients)}")
    for fault in scenario.faults:
        moment = "" if fault.moment is None else f", at the next {fault.moment}"
        print(f"  fault    {fault.at_s:6.3f} s  {_words(fault.kind)} of broker-{fault.broker}{moment}")
    if not scenario.faults:
        print("  fault    none: the clean stop at the end of every simulation is enough")
    print()
    print("What happened, with the lines of code that decided it:")
    print("\n".join(outcome.smallest))
    print()


def _print_summary(outcome: SimulationOutcome) -> None:
    print(
        f"seed {outcome.seed}: {outcome.virtual_s:.0f} simulated seconds, {outcome.steps} steps, "
        f"{outcome.acknowledged} of {outcome.attempts} records acknowledged, "
        f"{sum(outcome.faults.values())} faults, {len(outcome.violations)} violations; digest {outcome.digest}"
    )


def _play_many(first: int, end: int, jobs: int, until_s: float | None = None) -> int:
    faults: Counter[str] = Counter()
    count, seconds, acknowledged, failed = 0, 0.0, 0, []
    reported_s = time.monotonic()
    for outcome in outcomes(first, end, jobs, until_s=until_s):
        count, seconds = count + 1, seconds + outcome.virtual_s
        acknowledged += outcome.acknowledged
        faults.update(outcome.faults)
        if outcome.violations:
            failed.append(outcome.seed)
            _clear_progress()
            _print_violations(outcome)
        done = str(count) if until_s is not None else f"{count} of {end - first}"
        progress = f"{done} seeds, {seconds / 3600:.1f} simulated hours, {len(failed)} with violations"
        if sys.stderr.isatty():
            print(f"\r{progress}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() - reported_s > REPORT_S:
            reported_s = time.monotonic()
            print(progress, file=sys.stderr, flush=True)
    _clear_progress()
    seeds, records = count_text(count, "seed"), count_text(acknowledged, "record")
    print(f"{seeds}, {seconds / 3600:.1f} simulated hours, {records} acknowledged")
    kinds = ", ".join(f"{n} {_words(kind)}" for kind, n in faults.most_common())
    print(f"{count_text(faults.total(), 'fault')}: {kinds}")
    if failed:
        print(f"{count_text(len(failed), 'seed')} with violations: {', '.join(map(str, sorted(failed)))}")
        print(f"  what happened: leadline sim --seed {min(failed)} --trace")
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

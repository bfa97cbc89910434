"""`make fault`: faults on real processes, under load, from a seed; or a soak without faults.

Exit status: 0 if every promise was kept, 1 after a violation, 2 if this machine cannot play it.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from leadline.admin.formatting import table
from leadline.cli.terminal import StatusLine
from tests.fault.injection import kinds
from tests.fault.injection.fault_cluster import FaultCluster
from tests.fault.injection.features import FeatureRounds
from tests.fault.injection.injected_fault import InjectedFault
from tests.fault.injection.resources_of_brokers import ResourceHistory, sample
from tests.fault.injection.run import FaultRun, Stalled
from tests.fault.injection.tally import Tally, results
from tests.fault.injection.workload import INPUT, OUTPUT, PARTITIONS, Workload
from tests.support import in_memory
from tests.support.loop_disk import own_mounts
from tests.support.namespaced_cluster import CLIENT, hosts_of
from tests.support.namespaces import namespaces

TOOLS = ("ip", "tc", "strace", "mkfs.ext4", "fsck.ext4", "mount", "findmnt", "java")
SAMPLE_S = 5.0
Kinds = Sequence[type[InjectedFault]]

DESCRIPTION = """\
Inject faults into a cluster of real processes: three brokers and a ZooKeeper, each on a host (a network namespace) and
on a disk (ext4 on a loop device) of its own. Idempotent producers, transactions that read, transform and write, and a
group go on all the time. After each fault the cluster has to settle, and every promise is checked.

The table says for each kind of fault how many there were, how many records were acknowledged meanwhile, how many of
these are lost, there twice or out of order, and the longest time without an acknowledgement in a partition. With
--apache-minutes, the same faults on brokers of Apache Kafka 3.8 stand beside it, where these survive them.

The same seed gives the same faults in the same order. Exit status 1: a promise was broken; the logs are kept."""


@dataclass(frozen=True, slots=True)
class Plan:
    minutes: float
    seed: int
    kinds: Kinds
    is_apache: bool
    is_flushed: bool
    tell: Callable[[str], None]


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    if missing := missing_for(options):
        print(f"make fault: {missing}", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))  # what was started is ended first
    own_mounts()
    path = Path(tempfile.mkdtemp(prefix="leadline-fault-", dir=in_memory.SHARED_MEMORY))
    with StatusLine() as status:
        story = Story(path / "story.log", status)
        plan = Plan(options.minutes, options.seed, options.only, False, not options.unflushed, story.tell)
        violations = soak(plan, path) if options.soak else faults(plan, path, options.apache_minutes)
    if violations:
        print(f"\n{len(violations)} violations (seed {options.seed}):", *violations[:20], sep="\n  ")
        print(f"\nThe logs and disks are in {path}: story.log has all faults, broker1.log what the first broker wrote.")
        return 1
    print(f"\nEvery promise was kept (seed {options.seed}).")
    shutil.rmtree(path)
    return 0


def parser() -> argparse.ArgumentParser:
    listing = "\n".join(table(("fault", ""), [(kind.name, kind.what) for kind in kinds.ALL]))
    parser = argparse.ArgumentParser(
        "make fault",
        usage='make fault ARGS="--minutes 5 --seed 7 --only kill,pause"',
        description=DESCRIPTION,
        epilog=f"{listing}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=5.0, metavar="N", help="duration (default 5)")
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="choose the faults (default: the time)")
    parser.add_argument("--only", type=names, default=kinds.ALL, metavar="A,B", help="kinds of faults (default: all)")
    parser.add_argument("--unflushed", action="store_true", help="acknowledge before a flush: no power failures")
    parser.add_argument(
        "--apache-minutes", type=float, default=0.0, metavar="N", help="play on Apache Kafka as well (default: do not)"
    )
    parser.add_argument("--soak", action="store_true", help="no faults: all features; memory, descriptors, threads")
    return parser


def names(text: str) -> Kinds:
    unknown = [name for name in text.split(",") if name not in kinds.BY_NAME]
    if unknown:
        raise argparse.ArgumentTypeError(f"no fault has the name {', '.join(unknown)}")
    return tuple(kinds.BY_NAME[name] for name in text.split(","))


def missing_for(options: argparse.Namespace) -> str:
    if options.seed is None:
        options.seed = int(time.time()) % 1_000_000
    if os.geteuid() != 0:
        return "needs root: for network namespaces, and to mount the disks of the brokers"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"needs {', '.join(missing)}" if missing else ""


class Story:
    """Each event is a line of a file. On a terminal the last one is shown, elsewhere all are printed."""

    def __init__(self, file: Path, status: StatusLine) -> None:
        self._file, self._status, self._began, self._count = file, status, time.monotonic(), 0

    def tell(self, text: str) -> None:
        self._count += 1
        line = f"{time.monotonic() - self._began:7.1f} s  {self._count:4}  {text}"
        with self._file.open("a") as file:
            file.write(f"{line}\n")
        if sys.stderr.isatty():
            self._status.show(line[: shutil.get_terminal_size().columns - 1])
        else:
            print(line, flush=True)


@contextmanager
def under_load(path: Path, plan: Plan) -> Iterator[FaultRun]:
    path.mkdir()
    with namespaces(*hosts_of(3)) as net, net.inside(CLIENT), ExitStack() as stack:
        cluster = FaultCluster(path, net, stack, is_apache=plan.is_apache, is_flushed=plan.is_flushed)
        for topic in (INPUT, OUTPUT):
            cluster.create(topic, PARTITIONS)
        workload = Workload(cluster.bootstrap, path)
        stack.callback(workload.stop)
        run = FaultRun(cluster, workload, plan.tell)
        run.settle()
        yield run


def faults(plan: Plan, path: Path, apache_minutes: float) -> list[str]:
    """The violations."""
    leadline = play(plan, path / "leadline")
    apache: dict[str, Tally] = {}
    if apache_minutes:
        survived = tuple(kind for kind in plan.kinds if kind.apache_survives)
        apache = play(replace(plan, is_apache=True, kinds=survived, minutes=apache_minutes), path / "apache")
    print("", *results(leadline, apache), sep="\n")
    for violation in (violation for tally in apache.values() for violation in tally.violations[:3]):
        print(f"Apache: {violation}")
    return [f"{name}: {violation}" for name, tally in leadline.items() for violation in tally.violations]


def play(plan: Plan, path: Path) -> dict[str, Tally]:
    plan.tell(f"{'Apache Kafka' if plan.is_apache else 'Leadline'}: {plan.minutes:g} min of faults, seed {plan.seed}")
    chosen = [kind for kind in plan.kinds if plan.is_flushed or not kind.needs_flush]
    with under_load(path, plan) as run:
        name, deadline = "the start", time.monotonic() + plan.minutes * 60
        try:
            for kind, chance in kinds.plan(chosen, plan.seed):
                if time.monotonic() > deadline:
                    break
                name = kind.name
                run.play(kind(run.cluster, chance))
            name = "at the end"
            if (end := run.finish()).violations:
                run.tallies[name] = end
        except (Stalled, AssertionError) as error:
            plan.tell(f"{name}: {error}")
            run.tallies.setdefault(name, Tally()).violations.append(f"{type(error).__name__}: {error}")
        if run.notes.restarts:
            plan.tell(f"transactional clients were started again {run.notes.restarts} times")
    return run.tallies


def soak(plan: Plan, path: Path) -> list[str]:
    """No faults. The violations."""
    history = ResourceHistory()
    with under_load(path / "leadline", plan) as run:
        deadline = time.monotonic() + plan.minutes * 60
        features = FeatureRounds(run.cluster.bootstrap)
        try:
            while time.monotonic() < deadline:
                time.sleep(SAMPLE_S)
                for id in run.cluster.ids:
                    history.add(id, sample(run.cluster.pid(id)))
                left = (deadline - time.monotonic()) / 60
                plan.tell(f"{left:.1f} min left, {features.rounds} rounds of features, {last_of(history)}")
        finally:
            features.stop()
        end = run.finish()
        heads = "broker", "", "1st quarter", "2nd", "3rd", "4th", ""
        print("", *table(heads, history.rows()), f"{features.rounds} rounds of all features", sep="\n")
        return [*history.violations(), *features.failures, *end.violations]


def last_of(history: ResourceHistory) -> str:
    """Of the first broker."""
    samples_of = {quantity: samples for (broker, quantity), samples in history.samples.items() if broker == 1}
    return ", ".join(f"{quantity} {samples[-1]:.0f}" for quantity, samples in samples_of.items())


if __name__ == "__main__":
    sys.exit(main())

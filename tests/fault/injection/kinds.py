"""All kinds of faults, and which come when: a plan from a seed."""

from collections.abc import Iterator, Sequence
from random import Random

from tests.fault.injection.damaged_files import BitRot, MissingFile
from tests.fault.injection.disks import DiskFails, DiskFull, ReadOnly, SyncFails, SyncSlow
from tests.fault.injection.injected_fault import InjectedFault
from tests.fault.injection.limits import ClockAhead, ClockBehind, DescriptorsExhausted, MemoryExhausted
from tests.fault.injection.networks import (
    Cut,
    CutOneWay,
    Slow,
    SlowOneWay,
    ZooKeeperCut,
    ZooKeeperKilled,
    ZooKeeperSlow,
)
from tests.fault.injection.processes import Kill, Pause, PowerCut, RollingRestart

ALL: tuple[type[InjectedFault], ...] = (
    Kill, Pause, Cut, CutOneWay, Slow, SlowOneWay, DiskFull, ReadOnly, DiskFails, SyncFails, SyncSlow,
    DescriptorsExhausted, MemoryExhausted, ZooKeeperKilled, ZooKeeperSlow, ZooKeeperCut, ClockAhead, ClockBehind,
    BitRot, MissingFile, RollingRestart, PowerCut,
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in ALL}


def plan(kinds: Sequence[type[InjectedFault]], seed: int) -> Iterator[tuple[type[InjectedFault], Random]]:
    """Without end: round after round of all kinds, each round in an order of its own."""
    order, count = Random(f"{seed} order"), 0
    while True:
        for kind in order.sample(kinds, len(kinds)):
            yield kind, Random(f"{seed} {kind.name} {count}")
            count += 1

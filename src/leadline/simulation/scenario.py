"""What one simulation plays: which clients, and which faults at which time. A seed gives one.

All of it is explicit, so that a part can be left out: the rest stays as it is, as far as it does not follow from that
part. Each fault and each client therefore draws from a chance of its own.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from random import Random

from leadline.simulation.moments import DISK_MOMENTS, MOMENTS

LENGTH_S = 45.0  # of the time with faults
PAUSE_S = 3.0  # between two faults, on average
POWER_CUT = "power_cut"  # the worst at a moment of the disk
POWER_CUT_PART = 0.7  # of the faults that wait for such a moment
AIMED = 0.5  # of the faults wait for a moment
LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES = 1 << 20, 4096  # small ones are rolled often
LONG_LAG_MS, SHORT_LAG_MS = 30_000, 2000  # replica.lag.time.max.ms; with a short one replicas leave the ISR often
PRODUCERS = tuple(f"producer-{n}" for n in range(3))
INSTANCES = "ab"  # of one transactional id, which fence one another
MEMBERS = "abc"  # of one group
CLEAN_STOP = "clean_stop"
GENTLE_PART = 0.1  # of all seeds
GENTLE_S = 15.0  # from one clean stop to the next
BROKERS = (3, 3, 3, 4, 4, 5)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    number: int  # counts the faults of a seed; its chance is drawn with it
    at_s: float  # since the faults began
    kind: str
    broker: int  # if it is down or has another fault then, nothing happens
    moment: str | None = None  # it waits for this one on the broker, as long as it has patience

    def chance(self, seed: int) -> Random:
        """Its duration, and its other parameters."""
        return Random(f"{seed} fault {self.number}")


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    is_synced: bool  # each append is on disk before it is acknowledged: then the power may be cut
    faults: tuple[PlannedFault, ...]
    length_s: float = LENGTH_S
    brokers: int = 3
    partitions: int = 4
    clients: tuple[str, ...] = PRODUCERS
    segment_bytes: int = LARGE_SEGMENT_BYTES
    lag_ms: int = LONG_LAG_MS
    variant: int = 0  # the same scenario with other delays of network and threads

    @property
    def is_gentle(self) -> bool:
        return all(fault.kind == CLEAN_STOP for fault in self.faults)

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def scenario_from(text: str) -> Scenario:
    """ValueError, TypeError or KeyError: it is not what `to_json` returned."""
    fields = json.loads(text)
    faults = tuple(PlannedFault(**fault) for fault in fields.pop("faults"))
    return Scenario(**fields | {"faults": faults, "clients": tuple(fields["clients"])})


def scenario_of(seed: int, kinds: Sequence[str], synced_kinds: Sequence[str]) -> Scenario:
    """`kinds`: of faults. `synced_kinds`: those that may happen if each append is synced, instead."""
    is_synced = Random(f"{seed} kind").random() < 0.5
    brokers = Random(f"{seed} brokers").choice(BROKERS)
    faults = planned_faults(Random(f"{seed} faults"), synced_kinds if is_synced else kinds, LENGTH_S, brokers)
    if Random(f"{seed} gentle").random() < GENTLE_PART:
        faults = gentle_faults(Random(f"{seed} faults"), LENGTH_S, brokers)
    segment_bytes = Random(f"{seed} segments").choice((LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES))
    lag_ms = Random(f"{seed} lag").choice((LONG_LAG_MS, SHORT_LAG_MS))
    clients = drawn_clients(Random(f"{seed} clients"))
    return Scenario(
        seed, is_synced, faults, brokers=brokers, clients=clients, segment_bytes=segment_bytes, lag_ms=lag_ms
    )


def gentle_faults(chance: Random, length_s: float, brokers: int) -> tuple[PlannedFault, ...]:
    """Brokers are stopped cleanly, one after the other has caught up: clients must hardly notice."""
    times = [n * GENTLE_S + chance.uniform(1, 5) for n in range(int(length_s / GENTLE_S))]
    return tuple(PlannedFault(n, at_s, CLEAN_STOP, chance.randint(1, brokers)) for n, at_s in enumerate(times))


def drawn_clients(chance: Random) -> tuple[str, ...]:
    """Their names. The prefix of a name is the client's workload: see `workloads/by_name.py`."""
    names = [f"producer-{n}" for n in range(chance.randint(1, 3))]
    names += [f"plain-{n}" for n in range(chance.randint(0, 1))]
    names += [f"transactions-{n}{instance}" for n in range(chance.randint(0, 2)) for instance in INSTANCES]
    names += [f"transform-{n}{instance}" for n in range(chance.randint(0, 1)) for instance in INSTANCES]
    names += [f"group-0{member}" for member in MEMBERS[: chance.choice([0, 0, 2, 3])]]
    names += ["administrator-0"] if chance.random() < 0.4 else []
    return (*names, "reader-0", "committed-0")


def planned_faults(chance: Random, kinds: Sequence[str], length_s: float, brokers: int) -> tuple[PlannedFault, ...]:
    faults: list[PlannedFault] = []
    at_s = chance.uniform(0, 2 * PAUSE_S)
    while at_s < length_s:
        moment = chance.choice(MOMENTS) if chance.random() < AIMED else None
        kind = chance.choice(kinds)
        if moment in DISK_MOMENTS and POWER_CUT in kinds and chance.random() < POWER_CUT_PART:
            kind = POWER_CUT
        faults.append(PlannedFault(len(faults), at_s, kind, chance.randint(1, brokers), moment))
        at_s += chance.uniform(0, 2 * PAUSE_S)
    return tuple(faults)

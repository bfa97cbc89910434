"""Plans for moving partitions: making a plan, its moves, its progress.

A plan moves as few replicas as possible. A replica stays on its broker, unless the plan does not use that broker or the
broker has more replicas than others. The replicas of a partition are on as many racks as possible. The first replica of
a partition is its preferred leader.

Pure: assignments in, assignments out.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from leadline.admin.formatting import brokers_text
from leadline.admin.reassign.plan_file import Assignment, PlanError
from leadline.model import BrokerId, TopicPartition

Racks = Mapping[BrokerId, str | None]


class OngoingReassignment(NamedTuple):
    """A partition that is being moved to other brokers."""

    replicas: Sequence[BrokerId]  # the new ones and those that are still to be removed
    adding: Sequence[BrokerId]
    removing: Sequence[BrokerId]


class ReplicaMove(NamedTuple):
    """The change of one partition."""

    tp: TopicPartition
    before: Sequence[BrokerId]
    after: Sequence[BrokerId]
    copied_bytes: int  # to all new brokers together

    @property
    def adding(self) -> list[BrokerId]:
        return [broker for broker in self.after if broker not in self.before]

    @property
    def is_needed(self) -> bool:
        return list(self.before) != list(self.after)


def moves(before: Assignment, after: Assignment, sizes: Mapping[TopicPartition, int]) -> list[ReplicaMove]:
    """The partitions that a plan changes, sorted. `sizes`: bytes of one replica of each partition."""
    all_moves = []
    for tp, replicas in sorted(after.items()):
        new = sum(broker not in before[tp] for broker in replicas)
        all_moves.append(ReplicaMove(tp, before[tp], replicas, new * sizes.get(tp, 0)))
    return [move for move in all_moves if move.is_needed]


def make_plan(
    current: Assignment, brokers: Racks, replication_factor: int | None = None
) -> dict[TopicPartition, list[BrokerId]]:
    """The same partitions, evenly on these brokers. `replication_factor` None: as many replicas as now."""
    counts = {
        tp: len(replicas) if replication_factor is None else replication_factor for tp, replicas in current.items()
    }
    if (most := max(counts.values(), default=0)) > len(brokers):
        raise PlanError(f"{most} replicas need {most} brokers, but {brokers_text(brokers)}")
    plan = {
        tp: [broker for broker in replicas if broker in brokers][: counts[tp]]
        for tp, replicas in sorted(current.items())
    }
    loads = Counter(dict.fromkeys(brokers, 0))
    loads.update(broker for replicas in plan.values() for broker in replicas)
    for tp, replicas in plan.items():
        while len(replicas) < counts[tp]:
            broker = _best(replicas, brokers, loads)
            replicas.append(broker)
            loads[broker] += 1
    for replicas in plan.values():
        _spread_over_racks(replicas, brokers, loads)
    _level(plan, brokers, loads)
    _spread_leaders(plan, brokers)
    return plan


def _best(replicas: Sequence[BrokerId], brokers: Racks, loads: Mapping[BrokerId, int]) -> BrokerId:
    """The broker to add: on a rack without a replica if possible, with the fewest replicas."""
    taken = {brokers[broker] for broker in replicas}
    return min(
        (broker for broker in brokers if broker not in replicas),
        key=lambda broker: (brokers[broker] in taken, loads[broker], broker),
    )


def _spread_over_racks(replicas: list[BrokerId], brokers: Racks, loads: Counter[BrokerId]) -> None:
    """While two replicas share a rack and another rack has none, move the later replica there."""
    while len(used := {brokers[broker] for broker in replicas}) < min(len(replicas), len(set(brokers.values()))):
        racks = [brokers[broker] for broker in replicas]
        at = next(n for n in reversed(range(len(racks))) if racks[n] in racks[:n])
        free = {broker: rack for broker, rack in brokers.items() if rack not in used}
        old, replicas[at] = replicas[at], _best([], free, loads)
        loads.update({old: -1, replicas[at]: 1})


def _level(plan: Mapping[TopicPartition, list[BrokerId]], brokers: Racks, loads: Counter[BrokerId]) -> None:
    """Move replicas from the brokers with the most to those with the fewest, until they differ by at most one."""
    while change := _next_move(plan, brokers, loads):
        replicas, full, empty = change
        replicas[replicas.index(full)] = empty
        loads.update({full: -1, empty: 1})


def _next_move(
    plan: Mapping[TopicPartition, list[BrokerId]], brokers: Racks, loads: Mapping[BrokerId, int]
) -> tuple[list[BrokerId], BrokerId, BrokerId] | None:
    by_load = sorted(brokers, key=lambda broker: (loads[broker], broker))
    for full in reversed(by_load):
        for empty in by_load:
            if loads[full] - loads[empty] < 2:
                break
            for replicas in reversed(list(plan.values())):
                if full in replicas and empty not in replicas and _keeps_racks(replicas, full, empty, brokers):
                    return replicas, full, empty
    return None


def _keeps_racks(replicas: Sequence[BrokerId], old: BrokerId, new: BrokerId, brokers: Racks) -> bool:
    others = [brokers[broker] for broker in replicas if broker != old]
    return len({*others, brokers[new]}) >= len({*others, brokers[old]})


def _spread_leaders(plan: Mapping[TopicPartition, list[BrokerId]], brokers: Racks) -> None:
    """Reorder replicas so that each broker is the preferred leader about equally often, in each topic and in all.

    A topic comes first: its clients would find one busy broker, however even all topics are together.
    """
    leads = Counter(dict.fromkeys(brokers, 0))
    leads.update(replicas[0] for replicas in plan.values() if replicas)
    of_topic = {tp.topic: Counter(dict.fromkeys(brokers, 0)) for tp in plan}
    for tp, replicas in plan.items():
        of_topic[tp.topic].update(replicas[:1])

    def give(tp: TopicPartition, replicas: list[BrokerId], best: BrokerId) -> None:
        for counts in (leads, of_topic[tp.topic]):
            counts.update({replicas[0]: -1, best: 1})
        replicas.remove(best)
        replicas.insert(0, best)

    led = [(tp, replicas) for tp, replicas in plan.items() if len(replicas) > 1]
    for tp, replicas in led:
        own = of_topic[tp.topic]
        best = min(replicas, key=lambda broker: (own[broker], leads[broker]))
        if own[replicas[0]] - own[best] >= 2:
            give(tp, replicas, best)
    for tp, replicas in led:
        own = of_topic[tp.topic]
        best = min(replicas, key=lambda broker: (own[broker] >= own[replicas[0]], leads[broker]))
        if own[replicas[0]] > own[best] and leads[replicas[0]] - leads[best] >= 2:
            give(tp, replicas, best)


def throttled_replicas(
    under_way: Mapping[TopicPartition, OngoingReassignment], plan: Iterable[ReplicaMove]
) -> dict[str, "ThrottledReplicas"]:
    """For each topic the replicas that are copied from and to: the values of its two settings."""
    ends = {
        tp: ([broker for broker in reassignment.replicas if broker not in reassignment.adding], reassignment.adding)
        for tp, reassignment in under_way.items()
    }
    for move in plan:
        sources = ends[move.tp][0] if move.tp in ends else move.before
        ends[move.tp] = (list(sources), [broker for broker in move.after if broker not in sources])
    by_topic: dict[str, ThrottledReplicas] = {}
    for tp, (sources, targets) in sorted(ends.items()):
        throttled = by_topic.setdefault(tp.topic, ThrottledReplicas([], []))
        throttled.leaders.extend(f"{tp.partition}:{broker}" for broker in sources)
        throttled.followers.extend(f"{tp.partition}:{broker}" for broker in targets)
    return by_topic


class ThrottledReplicas(NamedTuple):
    """Replicas of a topic, as its settings name them: partition:broker."""

    leaders: list[str]
    followers: list[str]


def involved(plan: Iterable[ReplicaMove]) -> list[BrokerId]:
    """The brokers that have a replica before or after."""
    return sorted({broker for move in plan for broker in (*move.before, *move.after)})


class ReassignmentProgress(NamedTuple):
    done: Collection[TopicPartition]
    moving: Collection[TopicPartition]
    left_out: Mapping[TopicPartition, Sequence[BrokerId]]  # not moving and not as planned: their replicas now

    @property
    def is_open(self) -> bool:
        return bool(self.moving or self.left_out)


def progress(
    plan: Assignment, current: Assignment, under_way: Mapping[TopicPartition, OngoingReassignment]
) -> ReassignmentProgress:
    """The progress of a plan."""
    moving = [tp for tp in plan if tp in under_way]
    done = [tp for tp in plan if tp not in under_way and list(current.get(tp, ())) == list(plan[tp])]
    left_out = {tp: current.get(tp, ()) for tp in plan if tp not in under_way and tp not in done}
    return ReassignmentProgress(done, moving, left_out)

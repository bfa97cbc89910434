"""The rules by which the controller elects leaders and changes ISRs.

Each takes the decision in force and returns the next one, or None if nobody qualifies. Every change of leader, and
every removal of a replica, begins a new leader epoch; a change of the ISR that the leader asked for does not. The
partition epoch stays: it is the version on which the next decision is to be written, and writing counts it up.

    a leader is assigned, alive and, unless it is an unclean election, in sync
    the ISR is never empty: the last replica stays in it, since only it has all records

Pure: decisions over broker ids and epochs.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from leadline.errors import FencedLeaderEpoch, IneligibleReplica, InvalidRequest, InvalidUpdateVersion, NotController
from leadline.model import NO_LEADER, BrokerId
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr, Proposal


def first(assigned: Iterable[BrokerId], alive: Collection[BrokerId]) -> LeaderAndIsr | None:
    """The first leader of a new partition: it has no records yet, so all live replicas are in sync."""
    isr = tuple(replica for replica in assigned if replica in alive)
    return LeaderAndIsr(isr[0], 0, isr) if isr else None


def offline(
    current: LeaderAndIsr, assigned: Iterable[BrokerId], alive: Collection[BrokerId], *, unclean: bool = False
) -> LeaderAndIsr | None:
    """Of a partition without a leader. Unclean: rather one that may lack records than none; `recovering` says so."""
    living = [replica for replica in assigned if replica in alive]
    leader = _first(living, lambda replica: replica in current.isr)
    if leader is not None:
        return _elected(current, leader, (replica for replica in current.isr if replica in alive))
    if unclean and living:
        return _elected(current, living[0], living[:1])._replace(recovering=True)
    return None


def preferred(current: LeaderAndIsr, assigned: Iterable[BrokerId], alive: Collection[BrokerId]) -> LeaderAndIsr | None:
    """The first of the assigned replicas, if it can: so that leaders are spread as they were planned."""
    leader = next(iter(assigned), None)
    if leader is None or leader not in alive or leader not in current.isr:
        return None
    return _elected(current, leader, current.isr)


def controlled_shutdown(
    current: LeaderAndIsr,
    assigned: Iterable[BrokerId],
    alive: Collection[BrokerId],
    shutting_down: Collection[BrokerId],
) -> LeaderAndIsr | None:
    """While a leader can still hand over. `alive` has those that shut down, too; they leave the ISR."""
    isr = [replica for replica in current.isr if replica not in shutting_down]
    leader = _first(assigned, lambda replica: replica in alive and replica in isr)
    return None if leader is None else _elected(current, leader, isr)


def reassigned(current: LeaderAndIsr, target: Iterable[BrokerId], alive: Collection[BrokerId]) -> LeaderAndIsr | None:
    """A leader among the target replicas of a reassignment. The ISR shrinks afterwards."""
    leader = _first(target, lambda replica: replica in alive and replica in current.isr)
    return None if leader is None else _elected(current, leader, current.isr)


def is_reassigned(current: LeaderAndIsr, target: Collection[BrokerId]) -> bool:
    """Whether all target replicas are in sync, so that the others may be removed."""
    return set(target) <= set(current.isr)


def new_epoch(current: LeaderAndIsr) -> LeaderAndIsr:
    """The same leader and ISR, but other replicas: a new epoch makes all of them take notice."""
    return _elected(current, current.leader, current.isr)


def without(current: LeaderAndIsr, replica: BrokerId) -> LeaderAndIsr | None:
    """Removes a replica from the ISR. None: nothing changes, since it was not in sync."""
    if replica not in current.isr:
        return None
    isr = current.isr if len(current.isr) == 1 else tuple(other for other in current.isr if other != replica)
    return _elected(current, NO_LEADER if current.leader == replica else current.leader, isr)


def altered(current: LeaderAndIsr, proposal: Proposal, brokers: Mapping[BrokerId, int]) -> LeaderAndIsr:
    """What a leader asks for with AlterPartition, if it may be: to be written, unless it is `current` already.

    `brokers`: those that may join. The leader need not: one that is about to stop lets others join to take over.
    NotController, FencedLeaderEpoch, InvalidUpdateVersion, InvalidRequest, IneligibleReplica.
    """
    proposed = proposal.proposed
    sent = f"leader epoch {proposed.leader_epoch}, partition epoch {proposed.partition_epoch}"
    held = f"they are {current.leader_epoch} and {current.partition_epoch}"
    if proposed.leader_epoch > current.leader_epoch or proposed.partition_epoch > current.partition_epoch:
        raise NotController(f"{sent}: {held} here, which must be old")
    if proposed.leader_epoch < current.leader_epoch:
        raise FencedLeaderEpoch(f"{sent}: {held}")
    if proposed._replace(partition_epoch=current.partition_epoch) == current:
        return current  # before the check of the partition epoch: asked twice, it is done once
    if proposed.partition_epoch < current.partition_epoch:
        raise InvalidUpdateVersion(f"{sent}: {held}")
    if proposed.recovering and (len(proposed.isr) > 1 or not current.recovering):
        raise InvalidRequest(f"a leader that recovers is alone in sync, not {list(proposed.isr)}, and stays recovered")
    others = [
        member for member in zip(proposed.isr, proposal.broker_epochs, strict=True) if member[0] != current.leader
    ]
    if ineligible := [replica for replica, epoch in others if not _is_alive(replica, epoch, brokers)]:
        raise IneligibleReplica(
            f"of the new ISR {list(proposed.isr)}, {ineligible} are not alive, or not the same process"
        )
    return proposed


def _is_alive(replica: BrokerId, epoch: int, brokers: Mapping[BrokerId, int]) -> bool:
    """A broker that was restarted may have lost records."""
    registered = brokers.get(replica)
    return registered is not None and (ANY_EPOCH in (epoch, registered) or epoch == registered)


def _first(replicas: Iterable[BrokerId], qualifies: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next(filter(qualifies, replicas), None)


def _elected(current: LeaderAndIsr, leader: BrokerId, isr: Iterable[BrokerId]) -> LeaderAndIsr:
    return LeaderAndIsr(leader, current.leader_epoch + 1, tuple(isr), current.partition_epoch, current.recovering)

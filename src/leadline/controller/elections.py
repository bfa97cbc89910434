"""The rules by which the controller elects leaders and changes ISRs.

Each rule takes the current decision and returns the next one, or None if no replica qualifies. Every change of leader,
and every removal of a replica, begins a new leader epoch. A change of the ISR that the leader proposed does not. The
partition epoch stays: it is the version that the next write replaces, and the write increments it.

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
    """Elects a leader for a partition without one. Unclean: the leader may lack records, and is `recovering`."""
    living = [replica for replica in assigned if replica in alive]
    leader = _first(living, lambda replica: replica in current.isr)
    if leader is not None:
        return _elected(current, leader, (replica for replica in current.isr if replica in alive))
    if unclean and living:
        return _elected(current, living[0], living[:1])._replace(recovering=True)
    return None


def preferred(current: LeaderAndIsr, assigned: Iterable[BrokerId], alive: Collection[BrokerId]) -> LeaderAndIsr | None:
    """Elects the first of the assigned replicas, if it is alive and in sync: leaders are spread as planned."""
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
    """Elects another leader before brokers stop. `alive` includes these brokers; they leave the ISR."""
    isr = [replica for replica in current.isr if replica not in shutting_down]
    leader = _first(assigned, lambda replica: replica in alive and replica in isr)
    return None if leader is None else _elected(current, leader, isr)


def reassigned(current: LeaderAndIsr, target: Iterable[BrokerId], alive: Collection[BrokerId]) -> LeaderAndIsr | None:
    """Elects a leader among the target replicas of a reassignment. The ISR shrinks afterwards."""
    leader = _first(target, lambda replica: replica in alive and replica in current.isr)
    return None if leader is None else _elected(current, leader, current.isr)


def is_reassigned(current: LeaderAndIsr, target: Collection[BrokerId]) -> bool:
    """Whether all target replicas are in sync, so that the others may be removed."""
    return set(target) <= set(current.isr)


def new_epoch(current: LeaderAndIsr) -> LeaderAndIsr:
    """Begins a new leader epoch with the same leader and ISR, since the assigned replicas have changed."""
    return _elected(current, current.leader, current.isr)


def without(current: LeaderAndIsr, replica: BrokerId) -> LeaderAndIsr | None:
    """Removes a replica from the ISR. None: it was not in sync, so nothing changes."""
    if replica not in current.isr:
        return None
    isr = current.isr if len(current.isr) == 1 else tuple(other for other in current.isr if other != replica)
    return _elected(current, NO_LEADER if current.leader == replica else current.leader, isr)


def altered(current: LeaderAndIsr, proposal: Proposal, brokers: Mapping[BrokerId, int]) -> LeaderAndIsr:
    """Checks an AlterPartition of a leader. Returns the decision to be written, or `current` if nothing changes.

    `brokers`: the brokers that may be in the ISR. The leader need not be among them: while it stops, others may join.
    NotController, FencedLeaderEpoch, InvalidUpdateVersion, InvalidRequest, IneligibleReplica.
    """
    proposed = proposal.proposed
    sent = f"leader epoch {proposed.leader_epoch}, partition epoch {proposed.partition_epoch}"
    held = f"the controller has {current.leader_epoch} and {current.partition_epoch}"
    if proposed.leader_epoch > current.leader_epoch or proposed.partition_epoch > current.partition_epoch:
        raise NotController(f"{sent}: {held}, so it is out of date")
    if proposed.leader_epoch < current.leader_epoch:
        raise FencedLeaderEpoch(f"{sent}: {held}")
    if proposed._replace(partition_epoch=current.partition_epoch) == current:
        return current  # a retry: checked before the partition epoch, which is old then
    if proposed.partition_epoch < current.partition_epoch:
        raise InvalidUpdateVersion(f"{sent}: {held}")
    if proposed.recovering and (len(proposed.isr) > 1 or not current.recovering):
        raise InvalidRequest(f"ISR {list(proposed.isr)}: a recovering leader is alone in sync, and recovers only once")
    others = [
        member for member in zip(proposed.isr, proposal.broker_epochs, strict=True) if member[0] != current.leader
    ]
    if ineligible := [replica for replica, epoch in others if not _is_alive(replica, epoch, brokers)]:
        raise IneligibleReplica(f"of the new ISR {list(proposed.isr)}, {ineligible} are not alive, or were restarted")
    return proposed


def _is_alive(replica: BrokerId, epoch: int, brokers: Mapping[BrokerId, int]) -> bool:
    """A broker that was restarted may have lost records."""
    registered = brokers.get(replica)
    return registered is not None and (ANY_EPOCH in (epoch, registered) or epoch == registered)


def _first(replicas: Iterable[BrokerId], qualifies: Callable[[BrokerId], bool]) -> BrokerId | None:
    return next(filter(qualifies, replicas), None)


def _elected(current: LeaderAndIsr, leader: BrokerId, isr: Iterable[BrokerId]) -> LeaderAndIsr:
    return LeaderAndIsr(leader, current.leader_epoch + 1, tuple(isr), current.partition_epoch, current.recovering)

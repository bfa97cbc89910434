"""Topics that are being deleted.

Pure: state transitions of replicas, and at the end the deletion of the topic's nodes.

The nodes of a topic are deleted once the brokers have deleted all its replicas. A deletion waits while a broker with a
replica is offline, and while the topic is being reassigned. The node under /admin/delete_topics is deleted last, so
that the next controller continues after a crash.
"""

from collections.abc import Collection, Iterable

from leadline.controller.state import PartitionReplica, PartitionState, ReplicaState
from leadline.controller.transitions import Transitions
from leadline.coordination import znodes


class Deletions:
    def __init__(self, transitions: Transitions, *, enabled: bool) -> None:
        self.transitions, self.state, self.enabled = transitions, transitions.state, enabled  # delete.topic.enable

    def begin(self, topics: Collection[str]) -> None:
        """Takes over the requests from before this controller was elected."""
        self._add_requested(topics)
        offline = {
            replica.partition.topic
            for name in self.state.deleting
            for replica in self.state.replicas_of(self.state.of_topic(name))
            if not self.state.is_online(replica.broker, replica.partition)
        }
        moving = {tp.topic for tp in self.state.reassigning}
        self.state.undeletable |= (offline | moving) & self.state.deleting

    def requested(self, topics: Collection[str]) -> None:
        """`topics`: all that /admin/delete_topics names now."""
        self._add_requested(topics)
        self.postpone({tp.topic for tp in self.state.reassigning})
        self.resume()

    def _add_requested(self, topics: Collection[str]) -> None:
        existing = {name for name in topics if self.enabled and name in self.state.topics}
        self.transitions.remove(*(znodes.delete_topic_path(name) for name in topics if name not in existing))
        self.state.deleting |= existing

    def postpone(self, topics: Collection[str]) -> None:
        self.state.undeletable |= self.state.deleting & set(topics)

    def resume_for(self, topics: Collection[str]) -> None:
        """Nothing in the way of these deletions is left, as far as the caller knows."""
        if resumed := self.state.deleting & set(topics):
            self.state.undeletable -= resumed
            self.resume()

    def failed(self, replicas: Collection[PartitionReplica]) -> None:
        """Their brokers failed, or could not delete these replicas. The topics wait."""
        if replicas:
            self.transitions.move_replicas(replicas, ReplicaState.DELETION_INELIGIBLE)
            self.postpone({replica.partition.topic for replica in replicas})
            self.resume()

    def deleted(self, replicas: Iterable[PartitionReplica]) -> None:
        deleting = [replica for replica in replicas if self.state.is_deleting(replica.partition)]
        self.transitions.move_replicas(deleting, ReplicaState.DELETION_SUCCESSFUL)
        self.resume()

    def resume(self) -> None:
        """Completes, begins or retries the deletion of each topic, as far as its replicas allow."""
        begun = []
        for name in sorted(self.state.deleting):
            states = set(map(self.state.replica_state, self.state.replicas_of(self.state.of_topic(name))))
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                self._complete(name)
            elif ReplicaState.DELETION_STARTED not in states and name not in self.state.undeletable:
                begun.append(name)
        for name in begun:
            self._begin(name)

    def _begin(self, name: str) -> None:
        partitions = self.state.of_topic(name)
        if name not in self.state.deletion_begun:
            self.transitions.move_partitions(partitions, PartitionState.OFFLINE)
            self.transitions.move_partitions(partitions, PartitionState.NONEXISTENT)
            self.state.deletion_begun.add(name)
        self.transitions.batch.add_update_metadata(self.state.brokers, partitions)
        online, offline = [], []
        for replica in self.state.replicas_of(partitions):
            if not self.state.is_online(replica.broker, replica.partition):
                offline.append(replica)
            elif self.state.replica_state(replica) is not ReplicaState.DELETION_SUCCESSFUL:
                online.append(replica)
        for replicas in (offline, online):
            self.transitions.move_replicas(replicas, ReplicaState.OFFLINE)
        self.transitions.move_replicas(offline, ReplicaState.DELETION_INELIGIBLE)
        self.transitions.move_replicas(online, ReplicaState.DELETION_STARTED)
        if offline:
            self.postpone((name,))

    def _complete(self, name: str) -> None:
        self.state.forget_topic(name)
        paths = (znodes.topic_path(name), znodes.config_path("topics", name), znodes.delete_topic_path(name))
        self.transitions.remove(*paths)

"""What must always hold among the replicas of a partition, whatever was done to them.

an acknowledged record is on every in-sync replica, unless an unclean election ran
the high watermark never goes back within a leader epoch; below it replicas are the same
an epoch has one leader, and at an offset one record; the epoch cache is increasing and agrees with the records
what is below the high watermark is truncated by nobody, or after an unclean election, with a warning
while enough replicas are in sync and fetch, whatever was appended is soon below the high watermark
once all is well again, all replicas are the same and in sync
"""

from collections.abc import Iterator

from leadline.model import BrokerId, Offset
from leadline.replication.partition import LeaderState
from tests.property.replication_steps import Model
from tests.support.epochs import epoch_at
from tests.support.replicas import MemoryLog, Node, Record


class Invariants:
    """Held against a model after each step. Complaints come as texts, one each."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.high_watermarks: dict[int, Offset] = {}  # by leader epoch: the highest seen
        self.leaders: dict[int, BrokerId] = {}  # by leader epoch
        self.unclean_ran = False

    def broken(self) -> Iterator[str]:
        self.unclean_ran = self.unclean_ran or self.model.controller.current.recovering
        values: dict[tuple[Offset, int], str] = {}
        for node in self.model.nodes.values():
            yield from self._broken_in_log(node.log)
            for record in node.log.records:
                if values.setdefault((record.offset, record.epoch), record.value) != record.value:
                    yield f"two records at {record.offset} in epoch {record.epoch}"
            if node.leader is not None:
                yield from self._broken_by_leader(node, node.leader)
        if not self.unclean_ran:
            yield from self._lost()
            yield from self._different()

    def _broken_in_log(self, log: MemoryLog) -> Iterator[str]:
        if not log.log_start <= log.high_watermark <= log.log_end:
            yield f"the high watermark {log.high_watermark} is outside of [{log.log_start}, {log.log_end}]"
        if log.log_start > self.model.deleted_to:
            yield f"records below {log.log_start} are gone, and nobody deleted them"
        epochs = [entry.epoch for entry in log.epochs.entries]
        starts = [entry.start_offset for entry in log.epochs.entries]
        if epochs != sorted(set(epochs)) or starts != sorted(set(starts)):
            yield f"the epoch cache is not increasing: {log.epochs.entries}"
        if log.keeps_epochs and any(
            epoch_at(log.epochs.entries, record.offset) != record.epoch for record in log.records
        ):
            yield f"the epoch cache {log.epochs.entries} does not agree with {log.records}"

    def _broken_by_leader(self, node: Node, leader: LeaderState) -> Iterator[str]:
        epoch, high_watermark = leader.epoch, leader.high_watermark
        if high_watermark != node.log.high_watermark:
            yield f"the leader has high watermark {high_watermark}, its log {node.log.high_watermark}"
        if high_watermark < self.high_watermarks.get(epoch, 0):
            yield f"the high watermark went back to {high_watermark} in epoch {epoch}"
        self.high_watermarks[epoch] = high_watermark
        if self.leaders.setdefault(epoch, node.id) != node.id:
            yield f"epoch {epoch} has two leaders"

    def _lost(self) -> Iterator[str]:
        for member in self.model.controller.current.isr:
            log = self.model.nodes[member].log
            for record in self.model.acknowledged:
                place = record.offset - log.log_start
                if place >= 0 and log.records[place : place + 1] != [record]:
                    yield f"{record} was acknowledged, and {member}, in sync, does not have it: {log.records}"

    def _different(self) -> Iterator[str]:
        nodes = list(self.model.nodes.values())
        for node, other in zip(nodes, nodes[1:] + nodes[:1], strict=True):
            end = min(node.log.high_watermark, other.log.high_watermark)
            if not _agree(node.log, other.log, end):
                yield f"{node.id} and {other.id} differ below the high watermark {end}"
            if any("below the high watermark" in warning for warning in node.warnings):
                yield f"{node.id}: {node.warnings}"

    def stalled(self) -> list[str]:
        """What is not below the high watermark, though enough replicas are in sync, and all of them are there."""
        current = self.model.controller.current
        node = self.model.nodes.get(current.leader)
        leader = None if node is None else node.leader
        if node is None or leader is None or len(current.isr) < leader.needed_in_sync:
            return []
        if leader.high_watermark == node.log.log_end or not set(current.isr) <= self.model.controller.alive.keys():
            return []
        return [
            f"{node.id} leads with high watermark {leader.high_watermark}, its log ends at {node.log.log_end}; in sync "
            f"are {leader.maximal_isr}; {leader.followers}"
        ]

    def unsettled(self) -> list[str]:
        """What is still to become the same."""
        controller, nodes = self.model.controller, self.model.nodes
        if controller.assigned != controller.target:
            return [f"the reassignment to {controller.target} does not end"]
        if set(controller.current.isr) != set(controller.assigned):
            return [f"the ISR is {controller.current.isr} of {controller.assigned}"]
        leader = nodes[controller.current.leader].log
        logs = [nodes[replica].log for replica in controller.assigned]
        return [
            f"{log.records} to {log.high_watermark} is not {leader.records} to {leader.log_end}"
            for log in logs
            if not log.high_watermark == log.log_end == leader.log_end or not _agree(log, leader, leader.log_end)
        ]


def _agree(one: MemoryLog, other: MemoryLog, end: Offset) -> bool:
    """Below an end, and from the later log start: the next leader may have deleted less."""
    start = max(one.log_start, other.log_start)
    return _between(one, start, end) == _between(other, start, end)


def _between(log: MemoryLog, start: Offset, end: Offset) -> list[Record]:
    return log.records[start - log.log_start : max(end - log.log_start, 0)]

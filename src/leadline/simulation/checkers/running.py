"""What must hold after each step: checked while a simulation runs, so that it must be cheap.

the high watermark never goes back within a leader epoch; a leader epoch has one leader
a controller epoch has one controller; the epochs of partitions and of controllers only grow
the generation of a group only grows
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from leadline.broker.broker import Broker
from leadline.coordination import znodes
from leadline.coordination.tree import Change, Event
from leadline.model import BrokerId, LeaderEpoch, Offset, TopicPartition
from leadline.replication.partition import LeaderState

PARTITION_STATE = "/state"  # how the paths of such nodes end


@dataclass(slots=True)
class LeaderMark:
    epoch: LeaderEpoch
    high_watermark: Offset


@dataclass(slots=True)
class ProcessMarks:
    """What one life of a broker showed last."""

    leaders: dict[TopicPartition, LeaderMark] = field(default_factory=dict)
    generations: dict[str, tuple[object, int]] = field(default_factory=dict)  # by group, with its shard
    led: list[tuple[LeaderState, LeaderEpoch, Offset]] = field(default_factory=list)  # with the high watermarks
    begun: Sequence[tuple[object, str, int]] = ()  # generations, with shard and group


class RunningChecks:
    """`violated` gets a line for each law that is broken, in the step that breaks it."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self._leaders: dict[tuple[TopicPartition, LeaderEpoch], BrokerId] = {}
        self._epochs: dict[str, tuple[int, int]] = {}  # leader epoch and controller epoch, by the path of their node
        self._controller_epoch = 0

    # After a step of a broker

    def stepped(self, broker: Broker, marks: ProcessMarks) -> None:
        led = [
            (leader, leader.epoch, leader.high_watermark)
            for hosted in broker.replicas.hosted.values()
            if (leader := hosted.leader_state) is not None
        ]
        if led != marks.led:  # mostly nothing has changed
            marks.led = led
            self._leaders_changed(broker, marks)
        begun = [
            (shard, group.id, group.generation)
            for shard in broker.groups.runtime.shards.values()
            for group in shard.groups.values()
        ]
        if begun != marks.begun:
            marks.begun = begun
            for shard, group_id, generation in begun:
                self.generation_began(group_id, shard, generation, marks)

    def _leaders_changed(self, broker: Broker, marks: ProcessMarks) -> None:
        for tp, hosted in broker.replicas.hosted.items():
            if (leader := hosted.leader_state) is not None:
                self.led(tp, broker.metadata.me.id, LeaderMark(leader.epoch, leader.high_watermark), marks)

    def led(self, tp: TopicPartition, broker: BrokerId, mark: LeaderMark, marks: ProcessMarks) -> None:
        before = marks.leaders.get(tp)
        if before is None or before.epoch != mark.epoch:
            leader = self._leaders.setdefault((tp, mark.epoch), broker)
            if leader != broker:
                self._violated(f"two leaders: brokers {leader} and {broker} lead {tp} in epoch {mark.epoch}")
        elif mark.high_watermark < before.high_watermark:
            self._violated(
                f"high watermark went back: {tp} on broker {broker}, epoch {mark.epoch}: "
                f"from {before.high_watermark} to {mark.high_watermark}"
            )
        marks.leaders[tp] = mark

    def generation_began(self, group: str, shard: object, generation: int, marks: ProcessMarks) -> None:
        before = marks.generations.get(group)
        if before is not None and before[0] is shard and generation < before[1]:
            self._violated(f"generation went back: {group} from {before[1]} to {generation}")
        marks.generations[group] = shard, generation

    # After a write to the tree

    def written(self, event: Event, data: bytes) -> None:
        if event.change is Change.DELETED:
            self._epochs.pop(event.path, None)
        elif event.path == znodes.CONTROLLER_EPOCH:
            self.controller_elected(znodes.decode_controller_epoch(data))
        elif event.path.endswith(PARTITION_STATE):
            self.decided(event.path, json.loads(data))

    def controller_elected(self, epoch: int) -> None:
        if epoch <= self._controller_epoch and epoch:
            self._violated(f"two controllers: epoch {epoch} began after epoch {self._controller_epoch}")
        self._controller_epoch = max(epoch, self._controller_epoch)

    def decided(self, path: str, node: Mapping[str, int]) -> None:
        epochs = node["leader_epoch"], node["controller_epoch"]
        before = self._epochs.get(path, (-1, -1))
        if epochs[0] < before[0] or epochs[1] < before[1]:
            self._violated(f"epoch went back: {path} from {before} to {epochs} (leader, controller)")
        self._epochs[path] = epochs

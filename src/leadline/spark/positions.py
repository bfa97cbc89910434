"""The positions of a stream: the offsets in its checkpoint, compared with the current offsets of the cluster.

Format: JSON as Spark's own Kafka connector writes it, {"topic": {"0": 17}}, so that a stream can resume from that
connector's checkpoint, and that connector from ours. The group that the progress is committed to, and the topic ids,
are in the names of further fields without partitions, in which the connector sees no offsets:

    {"topic": {"0": 17}, "@leadline group NAME": {}, "@leadline id topic ID": {}}

No topic can have such a name. By its id, a stream recognises a topic that was deleted and created again. Older
checkpoints have one field for that, {"@leadline": {"group": NAME, "ids": {"topic": ID}}}: it is read, too.

Pure: values in, values out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from leadline.model import Offset, TopicPartition
from leadline.spark.errors import JobFailed
from leadline.spark.ranges import Range

BESIDE = "@leadline"  # an older checkpoint's field
GROUP, ID = f"{BESIDE} group ", f"{BESIDE} id "
GONE = "the topic or the partition no longer exists, or is no longer selected"


class BadCheckpoint(Exception):
    """The checkpoint holds something that this stream cannot have written."""


class DataLoss(JobFailed):
    """Records that the stream has not read are gone. The text names them and the reason."""


@dataclass(frozen=True, slots=True)
class Positions:
    offsets: Mapping[TopicPartition, Offset]  # the next to read
    group: str = ""  # empty: Spark's own connector wrote the checkpoint
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> set[str]:
        return {tp.topic for tp in self.offsets}

    def to_json(self) -> dict[str, object]:
        topics: dict[str, dict[str, Offset]] = {topic: {} for topic in sorted(self.topics)}
        for tp, offset in sorted(self.offsets.items()):
            topics[tp.topic][str(tp.partition)] = offset
        names = [f"{GROUP}{self.group}"] * bool(self.group)
        names += [f"{ID}{topic} {topic_id}" for topic, topic_id in sorted(self.ids.items())]
        return {**topics, **{name: {} for name in names}}

    @classmethod
    def from_json(cls, fields: Mapping[str, object]) -> "Positions":
        try:
            return _parsed(fields)
        except (KeyError, TypeError, ValueError):
            raise BadCheckpoint(f"the checkpoint holds {fields}, which are not offsets of topics") from None


def _parsed(fields: Mapping[str, object]) -> Positions:
    offsets: dict[TopicPartition, Offset] = {}
    beside = _object(fields.get(BESIDE, {"group": "", "ids": {}}))
    group, ids = str(beside["group"]), dict(_object(beside["ids"]))
    for name, by_partition in fields.items():
        if name.startswith(GROUP):
            group = name.removeprefix(GROUP)
        elif name.startswith(ID):
            topic, topic_id = name.removeprefix(ID).split(" ")
            ids[topic] = topic_id
        elif name != BESIDE:
            partitions = _object(by_partition)
            offsets |= {TopicPartition(name, int(number)): int(offset) for number, offset in partitions.items()}
    return Positions(offsets, group, ids)


def _object(value: object) -> "Mapping[str, Any]":
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return value


class Loss(NamedTuple):
    range: Range  # at least these; the count is unknown if the topic is gone
    why: str

    def __str__(self) -> str:
        range_ = self.range
        which = (
            f"offsets {range_.first} to {range_.until - 1}"
            if range_.length > 0
            else f"all from offset {range_.first} on"
        )
        return f"{range_.tp}: {which} are gone: {self.why}"


@dataclass(frozen=True, slots=True)
class ClusterOffsets:
    """The current offsets of the cluster."""

    earliest: Mapping[TopicPartition, Offset]
    latest: Mapping[TopicPartition, Offset]
    ids: Mapping[str, str]


def losses(before: Positions, now: ClusterOffsets) -> list[Loss]:
    """The offsets between the position where a stream stopped and the one where it can resume."""
    return [loss for tp, offset in sorted(before.offsets.items()) if (loss := _loss(before, now, tp, offset))]


def _loss(before: Positions, now: ClusterOffsets, tp: TopicPartition, offset: Offset) -> Loss | None:
    if tp not in now.latest:
        return Loss(Range(tp, offset, offset), GONE)
    if is_recreated(before, now, tp.topic):
        return Loss(Range(tp, offset, offset), "the topic was deleted, and another one has its name")
    if offset < now.earliest[tp]:
        why = f"the log starts at {now.earliest[tp]} (retention, or records were deleted)"
        return Loss(Range(tp, offset, now.earliest[tp]), why)
    if offset > now.latest[tp]:
        why = f"the log ends at {now.latest[tp]} (truncated: an unclean election, or a disk restored from a backup)"
        return Loss(Range(tp, now.latest[tp], offset), why)
    return None


def is_recreated(before: Positions, now: ClusterOffsets, topic: str) -> bool:
    topic_id = before.ids.get(topic)
    return topic_id is not None and topic in now.ids and now.ids[topic] != topic_id


def resume_offsets(before: Positions, now: ClusterOffsets) -> dict[TopicPartition, Offset]:
    """Where to resume, also after data loss. New partitions start at the earliest offset."""
    return {
        tp: now.earliest[tp]
        if tp not in before.offsets or is_recreated(before, now, tp.topic)
        else min(max(before.offsets[tp], now.earliest[tp]), latest)
        for tp, latest in now.latest.items()
    }


def data_loss(lost: Iterable[Loss]) -> DataLoss:
    return DataLoss("records to be read are gone; failOnDataLoss=false reads the rest: " + "; ".join(map(str, lost)))

"""A commit that is made again and again: the same partitions and metadata, other offsets and leader epochs.

Its batch is a form. Blanks, in their order: the batch's base and max timestamp; then of each record the offset, the
leader epoch and the time of the commit. The time is one and the same.

Pure: batches from numbers.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from leadline.coordinator.group_offsets import OffsetAndMetadata
from leadline.coordinator.group_records import offset_key, offset_value
from leadline.model import NONE, Offset, TopicPartition
from leadline.records.batch import put_crc
from leadline.records.build import BatchFields, build_at
from leadline.wire.templates import INT, LONG, Template

_commit_of: Callable[[tuple[object, ...]], OffsetAndMetadata] = partial(
    tuple.__new__, OffsetAndMetadata
)  # as Commit._make, in half the time


class OffsetCommitTemplate:
    def __init__(self, group_id: str, metadata: Mapping[TopicPartition, str], fields: BatchFields) -> None:
        """ValueError if there cannot be one: names are too long for a record, or hold what looks like a blank."""
        self.accepted = dict.fromkeys(metadata, NONE)  # the verdict on each, if nothing is against it
        self._metadata = tuple(metadata.items())
        specimen = build_at(
            LONG,
            [
                (offset_key(group_id, tp), offset_value(OffsetAndMetadata(LONG, text, LONG, INT)))
                for tp, text in metadata.items()
            ],
            fields,
        )
        self._form = Template(specimen)
        if self._form.blanks != 2 + 3 * len(metadata):
            raise ValueError(f"{self._form.blanks} blanks in a commit of {len(metadata)} offsets")

    def batch(self, offsets: Sequence[Offset], epochs: Sequence[int], now_ms: int) -> bytearray:
        numbers = [now_ms] * self._form.blanks
        numbers[2::3], numbers[3::3] = offsets, epochs
        batch = bytearray(self._form.fill(numbers))
        put_crc(batch, 0, len(batch))
        return batch

    def commits(
        self, offsets: Sequence[Offset], epochs: Sequence[int], now_ms: int, at: Offset
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """`at`: where the batch stands in the journal."""
        return {
            tp: _commit_of((offset, text, now_ms, epoch, None, at))
            for (tp, text), offset, epoch in zip(self._metadata, offsets, epochs, strict=True)
        }

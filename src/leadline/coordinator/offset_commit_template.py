"""A template for repeated offset commits: the same partitions and metadata, other offsets and leader epochs.

The blanks of its batch are, in order: base and max timestamp of the batch; then of each record the offset, the leader
epoch and the commit time. All times are the same.

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

# As OffsetAndMetadata._make, in half the time.
_offset_of: Callable[[tuple[object, ...]], OffsetAndMetadata] = partial(tuple.__new__, OffsetAndMetadata)


class OffsetCommitTemplate:
    def __init__(self, group_id: str, metadata: Mapping[TopicPartition, str], fields: BatchFields) -> None:
        """ValueError if there is none: strings are too long for a record, or contain the value of a blank."""
        self.accepted = dict.fromkeys(metadata, NONE)  # the error codes if all offsets are committed
        self._metadata = tuple(metadata.items())
        specimen = build_at(
            LONG,
            [
                (offset_key(group_id, tp), offset_value(OffsetAndMetadata(LONG, text, LONG, INT)))
                for tp, text in metadata.items()
            ],
            fields,
        )
        self._template = Template(specimen)
        if self._template.blanks != 2 + 3 * len(metadata):
            raise ValueError(f"{self._template.blanks} blanks in a commit of {len(metadata)} offsets")

    def batch(self, offsets: Sequence[Offset], epochs: Sequence[int], now_ms: int) -> bytearray:
        numbers = [now_ms] * self._template.blanks
        numbers[2::3], numbers[3::3] = offsets, epochs
        batch = bytearray(self._template.fill(numbers))
        put_crc(batch, 0, len(batch))
        return batch

    def commits(
        self, offsets: Sequence[Offset], epochs: Sequence[int], now_ms: int, base_offset: Offset
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """`base_offset`: of the batch that was appended."""
        return {
            tp: _offset_of((offset, text, now_ms, epoch, None, base_offset))
            for (tp, text), offset, epoch in zip(self._metadata, offsets, epochs, strict=True)
        }

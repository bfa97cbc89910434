"""Batches as a mirror copies them."""

import pytest

from leadline.errors import CorruptMessage
from leadline.log.txn_index import AbortedTxn
from leadline.records.batch import header_at, walk
from leadline.spark.client.range_fetch import FetchedBatches
from leadline.spark.mirror.copy_task import committed, copied_batch
from leadline.spark.ranges import Range
from tests.support.logs import TP, at_offset, batch, marker, offsets_in


def copied(data: bytearray, first: int, until: int) -> tuple[bytearray, tuple[tuple[int, int], ...]]:
    fetched = FetchedBatches(memoryview(data), first, None)
    return copied_batch(fetched, 0, header_at(data), Range(TP, first, until))


def test_a_whole_batch_within_the_range_keeps_its_bytes() -> None:
    data = at_offset(batch(3), 10)
    assert copied(data, 10, 13) == (data, ((10, 3),))


def test_a_batch_that_is_partly_in_the_range_is_built_again_with_the_records_of_the_range() -> None:
    data, spans = copied(at_offset(batch(5), 10), 11, 14)
    assert spans == ((11, 3),)
    assert offsets_in(bytes(data)) == [0, 1, 2]


def test_a_batch_outside_of_the_range_is_not_copied() -> None:
    assert copied(at_offset(batch(2), 10), 12, 20) == (bytearray(), ())


def test_markers_and_batches_of_aborted_transactions_are_left_out() -> None:
    parts = [
        batch(1, producer_id=1, transactional=True),
        batch(1, producer_id=2, transactional=True),
        marker(1, commit=False),
        batch(1, producer_id=1, sequence=1, transactional=True),
    ]
    data = b"".join(at_offset(part, offset) for offset, part in enumerate(parts))
    kept = [header.base_offset for _, header in committed(data, (AbortedTxn(1, 0, 2, 0),))]
    assert kept == [1, 3]
    assert len(list(walk(data))) == 4


def test_a_batch_with_a_wrong_checksum_is_not_copied() -> None:
    data = at_offset(batch(1), 7)
    data[-1] ^= 1
    with pytest.raises(CorruptMessage, match="the batch at offset 7: its CRC is"):
        list(committed(data, ()))

"""Rows into batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from leadline.model import TopicPartition
from leadline.records.batch import crc_of, header_at
from leadline.records.compression import Codec
from leadline.records.record import Record, RecordHeader, records_of
from leadline.spark.batches.encode import BatchEncoder, EncodedBatch, RecordColumns, signed

headers = st.none() | st.lists(
    st.fixed_dictionaries({"key": st.text(max_size=5), "value": st.none() | st.binary(max_size=5)}), max_size=3
)
row = st.tuples(
    st.none() | st.binary(max_size=300),
    st.none() | st.binary(max_size=300),
    headers,
    st.integers(0, 2**42),
    st.integers(0, 2),
)


def records(batch: EncodedBatch) -> list[Record]:
    return list(records_of(batch.data, 0, header_at(batch.data)))


@given(st.lists(st.lists(row, max_size=8), max_size=4), st.sampled_from(Codec), st.integers(1, 1000))
def test_all_rows_are_there_once_and_in_order(chunks: list[list[tuple]], codec: Codec, size: int) -> None:  # type: ignore[type-arg]
    packing, encoded = BatchEncoder(codec, size), list[EncodedBatch]()
    for chunk in chunks:
        columns = [list(column) for column in zip(*chunk, strict=True)] or [[], [], [], [], []]
        keys, values, given_headers, times, partitions = columns
        rows = RecordColumns("t", keys, values, given_headers, times, np.array(partitions, np.int64))
        encoded += packing.add(rows)
    encoded += packing.rest()
    for partition in range(3):
        batches = [batch for batch in encoded if batch.tp == TopicPartition("t", partition)]
        expected = [one for chunk in chunks for one in chunk if one[4] == partition]
        got = [record for batch in batches for record in records(batch)]
        assert [(r.key, r.value, r.timestamp) for r in got] == [(key, value, at) for key, value, _, at, _ in expected]
        assert [r.headers for r in got] == [
            tuple(RecordHeader(header["key"], header["value"]) for header in row_headers or ())
            for _, _, row_headers, _, _ in expected
        ]
        assert all(batch.count == len(records(batch)) for batch in batches)


def test_a_signed_batch_is_its_senders_and_whole() -> None:
    rows = RecordColumns("t", [b"k"], [b"v"], None, [5], np.zeros(1, np.int64))
    packing = BatchEncoder(Codec.LZ4, 1 << 20)
    assert list(packing.add(rows)) == []
    (batch,) = packing.rest()
    data = signed(batch.data, 77, 3, 2**31 - 1)
    header = header_at(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 2**31 - 1)
    assert header.is_transactional
    assert header.crc == crc_of(data, 0, len(data))

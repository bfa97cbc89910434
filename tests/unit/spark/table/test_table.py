"""The origin and the progress of a table, and the writer that may commit."""

import pytest

from leadline.spark.table.table import (
    NO_BATCH,
    OriginColumns,
    TableOrigin,
    TableProgress,
    WriterRefused,
    check_writer,
    one_line,
)

ORIGIN = TableOrigin("orders", "id", "raw", "append", "day", "read_committed")


def test_an_origin_is_read_back_from_the_properties_of_its_table() -> None:
    assert TableOrigin.of({**ORIGIN.properties(), "owner": "us"}) == ORIGIN
    assert ORIGIN.properties()["leadline.partition.by"] == "day"


def test_a_table_without_all_properties_has_no_origin() -> None:
    properties = ORIGIN.properties()
    del properties["leadline.topic.id"]
    assert TableOrigin.of(properties) is None


def test_progress_counts_batches_and_keeps_the_offsets_of_other_partitions() -> None:
    first = TableProgress().after({0: 5, 1: 7})
    assert (TableProgress().batch, first.batch) == (NO_BATCH, 0)
    assert first.after({1: 9}) == TableProgress(1, {0: 5, 1: 9})


def test_columns_beside_the_fields_of_documents_have_names_that_no_reader_reserves() -> None:
    assert OriginColumns.of("raw").names == ["key", "partition", "offset", "timestamp"]
    assert OriginColumns.of("json").names == ["kafka_key", "kafka_partition", "kafka_offset", "kafka_timestamp"]


@pytest.mark.parametrize(
    ("epoch", "batch", "message"), [(4, 7, "it began epoch 4, and this one has 3"), (3, 8, "is at batch 8, not at 7")]
)
def test_a_writer_that_was_overtaken_is_refused(epoch: int, batch: int, message: str) -> None:
    check_writer("/data/orders", 3, 7, TableProgress(7, {}, 3))
    with pytest.raises(WriterRefused, match=message):
        check_writer("/data/orders", epoch, batch, TableProgress(7, {}, 3))


def test_an_error_of_a_library_becomes_one_line() -> None:
    assert one_line(ValueError("\x1b[31mwrong\x1b[0m\n  twice")) == "wrong twice"

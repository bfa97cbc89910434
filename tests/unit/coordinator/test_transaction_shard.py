"""A shard of the transaction coordinator: what a replay makes of the records."""

import asyncio
from dataclasses import replace

import pytest

from leadline.coordinator.runtime import CoordinatorRecord
from leadline.coordinator.transaction import TransactionMetadata
from leadline.coordinator.transaction_records import transaction_key, transaction_record
from leadline.coordinator.transaction_shard import TransactionShard
from leadline.records.batch import walk
from leadline.records.build import BatchFields, build_at
from leadline.records.record import records_of

METADATA = TransactionMetadata(producer_id=5, producer_epoch=0, timeout_ms=60)


def shard_of(*records: CoordinatorRecord, fields: BatchFields | None = None) -> TransactionShard:
    shard, data = TransactionShard(0, 1, lambda loaded: None), build_at(5, records, fields or BatchFields())
    for position, header in walk(data):
        shard.replay(header, records_of(data, position, header))
    return shard


def test_the_last_record_of_an_id_counts() -> None:
    later = replace(METADATA, producer_epoch=3)
    shard = shard_of(
        transaction_record("a", METADATA), transaction_record("b", METADATA), transaction_record("a", later)
    )
    assert shard.transactional_ids["a"].metadata.producer_epoch == 3
    assert list(shard.transactional_ids) == ["a", "b"]


def test_a_tombstone_deletes_an_id() -> None:
    shard = shard_of(transaction_record("a", METADATA), CoordinatorRecord(transaction_key("a"), None))
    assert not shard.transactional_ids


def test_damaged_records_are_skipped_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    shard = shard_of(CoordinatorRecord(b"\0", b""), transaction_record("a", METADATA), CoordinatorRecord(b"\0\7", b""))
    assert list(shard.transactional_ids) == ["a"]
    assert caplog.text.count("is skipped") == 1  # a newer kind of record is not damaged


def test_what_is_being_completed_ends_with_the_shard() -> None:
    async def run() -> None:
        loaded: list[TransactionShard] = []
        shard = TransactionShard(0, 1, loaded.append)
        shard.loaded()
        assert loaded == [shard]
        task = shard.completing["a"] = asyncio.create_task(asyncio.sleep(3600))
        shard.unloaded()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())

"""The internal topics of coordinators, decoded: committed offsets, groups, transactional ids.

A view has all records that were not aborted, in order. The last record of a key is the current one; a tombstone removes
the key.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa

from leadline.coordinator import group_records, transaction_records
from leadline.coordinator.group_records import OffsetKey
from leadline.coordinator.record_serde import deserialize
from leadline.errors import CorruptFile, WireError
from leadline.model import Offset
from leadline.spark.files.log_split import LogSplit, Row, fields
from leadline.wire.messages import GroupMetadataValue

JOURNALED = "log_dir string, journal_partition int32, journal_offset int64, timestamp_ms int64"

_MEMBER = pa.struct(
    fields(
        """member_id string, group_instance_id string, client_id string, client_host string
        rebalance_timeout_ms int32, session_timeout_ms int32, subscription binary, assignment binary"""
    )
)
_MEMBER_FIELDS = [field.name for field in _MEMBER]
OFFSETS = pa.schema(
    [
        *fields(
            f"""{JOURNALED}, kind string, group string, topic string, partition int32
            offset int64, leader_epoch int32, metadata string, commit_timestamp_ms int64, expire_timestamp_ms int64
            protocol_type string, generation int32, protocol string, leader string, state_timestamp_ms int64"""
        ),
        ("members", pa.list_(_MEMBER)),
        ("is_forgotten", pa.bool_()),
    ]
)
_NO_COMMIT, _NO_GROUP = (None,) * 5, (None,) * 6


def offsets(part: LogSplit) -> Iterator[Row]:
    """All records of groups, in order. The last record of a key is the current one."""
    return _journal(part, _group_row)


def _group_row(at: Offset, key: bytes | None, value: bytes | None) -> Row | None:
    """None: only a newer Kafka knows this kind of record."""
    parsed = group_records.read_key(key)
    if parsed is None:
        return None
    if isinstance(parsed, OffsetKey):
        commit = _NO_COMMIT if value is None else _commit(value, at)
        return "commit", parsed.group, *parsed.tp, *commit, *_NO_GROUP, value is None
    group = _NO_GROUP if value is None else _group(deserialize(GroupMetadataValue, value))
    return "group", parsed.group, None, None, *_NO_COMMIT, *group, value is None


def _commit(value: bytes, at: Offset) -> Row:
    commit = group_records.read_offset(value, at)
    return commit.offset, commit.leader_epoch, commit.metadata, commit.commit_ms, commit.expire_ms


def _group(value: GroupMetadataValue) -> Row:
    members = [dict(zip(_MEMBER_FIELDS, _member(member), strict=True)) for member in value.members]
    return value.protocol_type, value.generation, value.protocol, value.leader, value.current_state_timestamp, members


def _member(member: GroupMetadataValue.MemberMetadata) -> Row:
    return (
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout,
        member.session_timeout,
        bytes(member.subscription),
        bytes(member.assignment),
    )


TRANSACTIONS = pa.schema(
    [
        *fields(
            f"""{JOURNALED}, transactional_id string, producer_id int64, producer_epoch int32, timeout_ms int32
            state string, start_timestamp_ms int64, last_update_timestamp_ms int64"""
        ),
        ("partitions", pa.list_(pa.struct(fields("topic string, partition int32")))),
        ("is_forgotten", pa.bool_()),
    ]
)


def transactions(part: LogSplit) -> Iterator[Row]:
    """All states of transactional ids, in order. The last record of an id is the current one."""
    return _journal(part, _transaction_row)


def _transaction_row(at: Offset, key: bytes | None, value: bytes | None) -> Row | None:
    transactional_id = transaction_records.read_key(key)
    if transactional_id is None:
        return None
    if value is None:
        return transactional_id, *(None,) * 7, True
    txn = transaction_records.read_value(value)
    partitions = [tp._asdict() for tp in sorted(txn.partitions)]
    times = txn.start_ms, txn.last_update_ms
    return (
        transactional_id,
        txn.producer_id,
        txn.producer_epoch,
        txn.timeout_ms,
        txn.state.label,
        *times,
        partitions,
        False,
    )


def _journal(part: LogSplit, row: Callable[[Offset, bytes | None, bytes | None], Row | None]) -> Iterator[Row]:
    """The records of an internal topic. CorruptFile for a record that cannot be decoded."""
    for batch in part.rows():
        times = batch.column("timestamp").view(pa.int64())
        columns = (batch.column("offset"), times, batch.column("key"), batch.column("value"))
        for at, timestamp, key, value in zip(*(column.to_pylist() for column in columns), strict=True):
            try:
                columns_of_row = row(at, key, value)
            except WireError as error:
                raise CorruptFile(part.log.directory, 0, f"the record of offset {at}: {error}") from error
            if columns_of_row is not None:
                yield part.log.log_dir, part.log.tp.partition, at, timestamp, *columns_of_row

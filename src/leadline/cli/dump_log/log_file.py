"""Dumps of .log files: batches and records."""

import os
from collections.abc import Iterator

from leadline.admin.json_values import Json
from leadline.cli.dump_log.dump_row import DumpRow, Rows, Value
from leadline.errors import CorruptFile, WireError
from leadline.records.batch import HEADER_BYTES, Header, check_frame, crc_of, header_at, sequence_after
from leadline.records.control import ControlType, control_type, read_end_marker
from leadline.records.record import Record, records_of


def batches_in(path: str) -> Iterator[tuple[int, Header, bytes]]:
    """Position, header and bytes of each batch. CorruptFile where no batch starts or one is incomplete."""
    with open(path, "rb") as file:
        size, position = os.fstat(file.fileno()).st_size, 0
        while position < size:
            head = file.read(HEADER_BYTES)
            if not any(head) and _is_zero_from(path, position):
                raise CorruptFile(path, position, f"{size - position} zero bytes up to the end")
            if len(head) < HEADER_BYTES:
                raise CorruptFile(path, position, f"a batch is incomplete: {len(head)} bytes of its header are left")
            header = header_at(head)
            try:
                check_frame(header.length, header.magic)
            except WireError as error:
                raise CorruptFile(path, position, str(error)) from None
            if header.size > size - position:
                raise CorruptFile(
                    path, position, f"a batch of {header.size} bytes is incomplete: {size - position} are left"
                )
            data = head + file.read(header.size - HEADER_BYTES)
            if len(data) < header.size:
                raise CorruptFile(path, position, "the file became shorter while it was read")
            yield position, header, data
            position += header.size


def _is_zero_from(path: str, position: int) -> bool:
    with open(path, "rb") as rest:
        rest.seek(position)
        while block := rest.read(1 << 20):
            if any(block):
                return False
    return True


def read_log(path: str, base: int, deep: bool, data: bool) -> Rows:
    yield DumpRow("segment", {"startingOffset": base})
    next_offset = base
    for position, header, batch in batches_in(path):
        crc = crc_of(batch, 0, header.size)
        try:
            yield _batch_row(position, header, crc == header.crc)
        except WireError as error:  # an unknown codec
            yield CorruptFile(path, position, str(error))
            continue
        if crc != header.crc:
            yield CorruptFile(path, position, f"the CRC of the batch is {crc}, but its header has {header.crc}")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            yield CorruptFile(
                path,
                position,
                f"the batch holds the offsets {header.base_offset} to {header.last_offset}, "
                f"but the next offset is {next_offset}",
            )
        next_offset = max(next_offset, header.last_offset + 1)
        if deep:
            try:
                yield from _record_rows(header, batch, data)
            except (WireError, IndexError, ValueError) as error:
                yield CorruptFile(path, position, f"the records of the batch cannot be read: {error}")


def _batch_row(position: int, header: Header, valid: bool) -> DumpRow:
    return DumpRow(
        "batch",
        {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.record_count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.delete_horizon_ms,
            "position": position,
            _time_name(header): header.max_timestamp,
            "size": header.size,
            "magic": header.magic,
            "compresscodec": header.codec.name.lower(),
            "crc": header.crc,
            "isvalid": valid,
        },
    )


def _time_name(header: Header) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _record_rows(header: Header, batch: bytes, data: bool) -> Iterator[DumpRow]:
    for record in records_of(batch, 0, header):
        sequence = -1
        if header.base_sequence >= 0:
            sequence = sequence_after(header.base_sequence, record.offset - header.base_offset)
        fields: dict[str, Value] = {
            "offset": record.offset,
            _time_name(header): record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
            "sequence": sequence,
            "headerKeys": [name for name, _ in record.headers],
        }
        if header.is_control:
            fields |= _control_fields(header, batch, record)
        elif data:
            key_and_value = (("key", record.key), ("payload", record.value))
            fields |= {name: value for name, value in key_and_value if value is not None}
        yield DumpRow("record", fields)


def _control_fields(header: Header, batch: bytes, record: Record) -> dict[str, Json]:
    if control_type(record.key) is ControlType.UNKNOWN:
        return {"controlType": "UNKNOWN"}
    marker = read_end_marker(batch, 0, header)
    return {} if marker is None else {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}

"""leadline dump-log: what is in the files of a log, of Leadline's or of Apache Kafka's.

Lines are those of Kafka's DumpLogSegments where it knows the file; JSON is one object a line, with `file` and `type`.
A file is only ever read. What is wrong with it is said on stderr with its path and byte, after all that came before;
then the exit code is 1.

What each file must hold stands with the code that writes it: records/batch.py, log/index.py, log/txn_index.py,
log/producer_state.py (.snapshot) and log/checkpoints.py.
"""

import argparse
import json
import os
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leadline.cli import COMMANDS
from leadline.cli.client import Failure, Json, Paint, add_command, complain, json_bytes
from leadline.config.properties import parse_properties
from leadline.errors import CorruptFile, WireError
from leadline.log import checkpoints, names, txn_index
from leadline.log.index import OffsetIndex, TimeIndex
from leadline.log.producer_snapshots import decode_snapshot
from leadline.model import format_id, parse_id
from leadline.records.batch import HEADER_BYTES, Header, check_frame, crc_of, header_at, sequence_after
from leadline.records.control import ControlType, control_type, read_end_marker
from leadline.records.record import Record, records_of

EXAMPLES = """
  leadline dump-log data/orders-0/00000000000000000000.log            its batches
  leadline dump-log --deep --data data/orders-0/*.log                 and its records, with keys and values
  leadline dump-log --check data/orders-0/*.index                     does each entry point to a batch?
  leadline dump-log --json data/orders-0 | jq 'select(.type == "batch") | .count'
  leadline dump-log data                                              a whole log directory
"""
DESCRIPTION = """\
Shows what is in .log, .index, .timeindex, .txnindex and .snapshot files, in leader-epoch-checkpoint and the other
checkpoints, partition.metadata, meta.properties and .kafka_cleanshutdown; or in all of a partition's directory, or in
all of a log directory. Checks every CRC. Reads only: also beside a running broker."""

SEGMENT_KINDS = (*names.SEGMENT_SUFFIXES, names.SNAPSHOT)
PROPERTIES = frozenset({"metaProperties", "partitionMetadata"})  # one field a line
OPTIONAL = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})  # Kafka prints these as Java's OptionalLong


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = add_command(
        commands,
        "dump-log",
        run,
        help=COMMANDS["dump-log"],
        usage="dump-log FILE|DIRECTORY ... [options]",
        description=DESCRIPTION,
        examples=EXAMPLES,
        connects=False,
    )
    parser.add_argument("paths", nargs="+", metavar="FILE|DIRECTORY")
    parser.add_argument("--deep", action="store_true", help="also the records within the batches")
    parser.add_argument("--data", action="store_true", help="also their keys and values; includes --deep")
    parser.add_argument("--check", action="store_true", help="hold each index against its .log")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")


Value = Json | bytes


@dataclass(frozen=True, slots=True)
class DumpRow:
    """What is one line in most files: its kind, and its fields in the order in which they are printed."""

    type: str
    fields: Mapping[str, Value]

    def text(self) -> str:
        if self.type == "segment":
            return f"Log starting offset: {_text('', self.fields['startingOffset'])}"
        parts = [f"{name}: {_text(name, value)}" for name, value in self.fields.items()]
        return ("| " if self.type == "record" else "") + ("\n" if self.type in PROPERTIES else " ").join(parts)

    def json(self, path: str) -> str:
        found: dict[str, Json] = {"file": path, "type": self.type}
        for name, value in self.fields.items():
            found |= json_bytes(name, value) if isinstance(value, bytes) else {name: value}
        return json.dumps(found, ensure_ascii=False)


def _text(name: str, value: Value) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if name in OPTIONAL:
        return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(map(str, value))}]"
    return str(value)


Rows = Iterator[DumpRow | CorruptFile]  # after an error, a reader may still know how to go on
Reader = Callable[[str], Rows]


def run(options: argparse.Namespace) -> int:
    dump = LogDump(options)
    for path in options.paths:
        dump.path(path)
    return 1 if dump.failed else 0


class LogDump:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options, self.failed = options, False
        self._paint = Paint(sys.stdout)

    def path(self, path: str) -> None:
        if not os.path.lexists(path):
            self._complain(Failure(f"{path}: No such file or directory"))
            return
        if not os.path.isdir(path):
            self._file(path)
            return
        found = files_in(path)
        if not found:
            self._complain(Failure(f"{path}: no file of a log in this directory"))
        for file in found:
            self._file(file)

    def _file(self, path: str) -> None:
        if not self._options.json:
            print(f"Dumping {self._paint.bold(path)}")
        try:
            for row in reader_of(path, self._options)(path):
                if isinstance(row, CorruptFile):
                    self._complain(row)
                elif self._options.json:
                    print(row.json(path))
                else:
                    print(self._paint.harmless(row.text()))
        except (CorruptFile, Failure) as error:
            self._complain(error)
        except BrokenPipeError:
            raise
        except OSError as error:
            self._complain(Failure(f"{path}: {error.strerror}"))

    def _complain(self, error: Exception) -> None:
        sys.stdout.flush()  # what was found before it comes before it
        complain(str(error))
        self.failed = True


def files_in(directory: str) -> list[str]:
    """Those of a log or of a log directory: settings and checkpoints, then segment by segment, then partitions."""
    plain: list[str] = []
    segments: list[tuple[int, int, str]] = []
    below: list[str] = []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        parsed = names.parse_file_name(name)
        if os.path.isdir(path):
            below += files_in(path) if _is_partition(name) else []
        elif parsed is not None and parsed[1] in SEGMENT_KINDS:
            segments.append((parsed[0], SEGMENT_KINDS.index(parsed[1]), path))
        elif name in _TEXT_FILES:
            plain.append(path)
    return plain + [path for _, _, path in sorted(segments)] + below


def _is_partition(name: str) -> bool:
    try:
        names.parse_dir_name(name)
    except ValueError:
        return False
    return True


def reader_of(path: str, options: argparse.Namespace) -> Reader:
    name = os.path.basename(os.path.abspath(path))
    if name in _TEXT_FILES:
        return _TEXT_FILES[name]
    parsed = names.parse_file_name(name)
    if (removed := names.removed_base(name)) is not None:
        parsed = (removed, names.LOG, names.REMOVED)
    if parsed is None or parsed[1] not in SEGMENT_KINDS:
        known = ", ".join([*SEGMENT_KINDS, *_TEXT_FILES])
        raise Failure(f"{path}: not a file of a log by its name; known are {known}")
    base, kind, suffix = parsed
    if kind == names.LOG:
        return partial(read_log, base=base, deep=options.deep or options.data, data=options.data)
    if kind == names.SNAPSHOT:
        return read_snapshot
    read = {names.INDEX: read_index, names.TIME_INDEX: read_time_index, names.TXN_INDEX: read_txn_index}[kind]
    if not options.check:
        return partial(read, base=base, batches=None)
    log_path = os.path.join(os.path.dirname(path), names.file_name(base, names.LOG, suffix))
    if not os.path.exists(log_path):
        raise Failure(f"{path}: cannot be checked without {log_path}")
    return partial(read, base=base, batches=SegmentBatches.of(log_path))


# .log


def batches_in(path: str) -> Iterator[tuple[int, Header, bytes]]:
    """Position, header and all bytes of each batch; CorruptFile where no batch begins or one is cut off."""
    with open(path, "rb") as file:
        size, position = os.fstat(file.fileno()).st_size, 0
        while position < size:
            head = file.read(HEADER_BYTES)
            if not any(head) and _is_zero_from(path, position):
                raise CorruptFile(path, position, f"{size - position} zero bytes up to the end")
            if len(head) < HEADER_BYTES:
                raise CorruptFile(path, position, f"a batch is cut off: {len(head)} bytes of its header are left")
            header = header_at(head)
            try:
                check_frame(header.length, header.magic)
            except WireError as error:
                raise CorruptFile(path, position, str(error)) from None
            if header.size > size - position:
                raise CorruptFile(
                    path, position, f"a batch of {header.size} bytes is cut off: {size - position} are left"
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
            yield CorruptFile(path, position, f"the batch's CRC is {crc}, but it says {header.crc}")
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            yield CorruptFile(
                path,
                position,
                f"the batch holds the offsets {header.base_offset} to {header.last_offset}, "
                f"but {next_offset} is the next",
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
            both = (("key", record.key), ("payload", record.value))
            fields |= {name: value for name, value in both if value is not None}
        yield DumpRow("record", fields)


def _control_fields(header: Header, batch: bytes, record: Record) -> dict[str, Json]:
    if control_type(record.key) is ControlType.UNKNOWN:
        return {"controlType": "UNKNOWN"}
    marker = read_end_marker(batch, 0, header)
    return {} if marker is None else {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch}


# The indexes


@dataclass(slots=True)
class SegmentBatches:
    """Where the batches of a segment lie, to hold its indexes against."""

    path: str
    positions: dict[int, Header] = field(default_factory=dict)
    firsts: list[int] = field(default_factory=list)  # base offsets
    headers: list[Header] = field(default_factory=list)

    @classmethod
    def of(cls, path: str) -> "SegmentBatches":
        found = cls(path)
        for position, header, _ in batches_in(path):
            found.positions[position] = header
            found.firsts.append(header.base_offset)
            found.headers.append(header)
        return found

    def holding(self, offset: int) -> Header | None:
        at = bisect_right(self.firsts, offset) - 1
        return self.headers[at] if at >= 0 and offset <= self.headers[at].last_offset else None


def _entries(path: str, size: int) -> Iterator[tuple[int, bytes]]:
    """Each entry of so many bytes with its position, and an error for what is left over."""
    position = 0
    with open(path, "rb") as file:
        while len(entry := file.read(size)) == size:
            yield position, entry
            position += size
        if entry:
            raise CorruptFile(path, position, f"an entry is cut off: {len(entry)} of {size} bytes")


def read_index(path: str, base: int, batches: SegmentBatches | None) -> Rows:
    """Ends before zeros. Of an index that is nothing else, Kafka's tool shows one entry; so does this."""
    last = (-1, -1)
    for position, entry in _entries(path, OffsetIndex.ENTRY.size):
        relative, at = OffsetIndex.ENTRY.unpack(entry)
        row = DumpRow("offsetIndexEntry", {"offset": base + relative, "position": at})
        if not any(entry):  # what a running broker reserved, or what a crash left
            yield from [row] if position == 0 else []
            return
        yield row
        if relative <= last[0] or at <= last[1]:
            yield CorruptFile(path, position, f"offset {base + relative} and position {at} do not both increase")
        last = (relative, at)
        if batches is not None and (wrong := _misdirection(batches, base + relative, at)):
            yield CorruptFile(path, position, wrong)


def _misdirection(batches: SegmentBatches, offset: int, position: int) -> str:
    """An entry is of use if no record from its offset on lies before its position."""
    header = batches.positions.get(position)
    if header is None:
        return f"the entry points to byte {position}, where no batch of {batches.path} begins"
    if offset < header.base_offset:
        return f"the entry for offset {offset} points behind it, to the batch of {header.base_offset}"
    if offset > batches.headers[-1].last_offset:
        return f"the entry for offset {offset} lies behind the log's last, {batches.headers[-1].last_offset}"
    return ""


def read_time_index(path: str, base: int, batches: SegmentBatches | None) -> Rows:
    last = (-2, -1)
    for position, entry in _entries(path, TimeIndex.ENTRY.size):
        timestamp, relative = TimeIndex.ENTRY.unpack(entry)
        row = DumpRow("timeIndexEntry", {"timestamp": timestamp, "offset": base + relative})
        if not any(entry):
            yield from [row] if position == 0 else []
            return
        yield row
        if timestamp <= last[0] or relative < last[1]:
            yield CorruptFile(
                path, position, f"timestamp {timestamp} and offset {base + relative} do not both increase"
            )
        last = (timestamp, relative)
        if batches is None:
            continue
        header = batches.holding(base + relative)
        if header is None:
            yield CorruptFile(path, position, f"no batch of {batches.path} holds offset {base + relative}")
        elif header.max_timestamp != timestamp:
            yield CorruptFile(
                path,
                position,
                f"the batch of offset {base + relative} has {header.max_timestamp} as its last timestamp",
            )


def read_txn_index(path: str, base: int, batches: SegmentBatches | None) -> Rows:
    last = base - 1
    for position, entry in _entries(path, txn_index.ENTRY_BYTES):
        try:
            (found,) = txn_index.decode(path, entry)
        except CorruptFile as error:
            raise CorruptFile(path, position, error.reason) from None
        yield DumpRow(
            "abortedTxn",
            {
                "version": txn_index.VERSION,
                "producerId": found.producer_id,
                "firstOffset": found.first_offset,
                "lastOffset": found.last_offset,
                "lastStableOffset": found.last_stable_offset,
            },
        )
        if found.last_offset <= last:
            yield CorruptFile(path, position, f"last offset {found.last_offset} is not above {last}")
        last = found.last_offset
        if batches is not None:
            header = batches.holding(found.last_offset)
            if header is None or not header.is_control or header.producer_id != found.producer_id:
                yield CorruptFile(
                    path, position, f"no marker of producer {found.producer_id} at offset {found.last_offset}"
                )


def read_snapshot(path: str) -> Rows:
    for producer_id, producer in decode_snapshot(path, Path(path).read_bytes()):
        fields: dict[str, Json] = {
            "producerId": producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": producer.txn_first_offset,
            "lastTimestamp": producer.last_timestamp,
        }
        if producer.batches:
            batch = producer.batches[-1]
            fields |= {
                "firstSequence": batch.first_sequence,
                "lastSequence": batch.last_sequence,
                "lastOffset": batch.last_offset,
                "offsetDelta": batch.offset_delta,
                "timestamp": batch.timestamp,
            }
        yield DumpRow("producer", fields)


# The text files


def _lines(path: str) -> list[tuple[int, str]]:
    """Each line with the byte at which it begins."""
    data = Path(path).read_bytes()
    found: list[tuple[int, str]] = []
    position = 0
    for line in data.splitlines(keepends=True):
        found.append((position, line.decode("utf-8", "replace").rstrip("\r\n")))
        position += len(line)
    return found


def read_checkpoint(path: str, type: str, columns: Sequence[str]) -> Rows:
    """Version, count, and lines of a topic's name, where there is one, and numbers."""
    lines = _lines(path)
    if not lines:
        return
    if lines[0][1] != str(checkpoints.VERSION):
        raise CorruptFile(path, 0, f"version {lines[0][1]!r}, expected {checkpoints.VERSION}")
    for position, line in lines[2:]:
        words = line.split()
        try:
            values: list[Json] = [
                word if column == "topic" else int(word) for column, word in zip(columns, words, strict=True)
            ]
        except ValueError:
            raise CorruptFile(path, position, f"expected {' '.join(columns)}, found {line!r}") from None
        yield DumpRow(type, dict(zip(columns, values, strict=True)))
    if len(lines) > 1 and lines[1][1] != str(len(lines) - 2):
        yield CorruptFile(path, lines[1][0], f"says that {lines[1][1]!r} lines follow, but {len(lines) - 2} do")


def read_partition_metadata(path: str) -> Rows:
    fields: dict[str, Json] = {}
    for position, line in _lines(path):
        name, _, value = line.partition(": ")
        try:
            if name == "version":
                fields[name] = int(value)
            elif name == "topic_id":
                fields[name] = format_id(parse_id(value))
            else:
                raise ValueError(f"expected version or topic_id, found {line!r}")
        except ValueError as error:
            yield DumpRow("partitionMetadata", fields)
            raise CorruptFile(path, position, str(error)) from None
    yield DumpRow("partitionMetadata", fields)


def read_meta_properties(path: str) -> Rows:
    yield DumpRow("metaProperties", parse_properties("\n".join(line for _, line in _lines(path))))


def read_clean_shutdown(path: str) -> Rows:
    data = Path(path).read_bytes()
    try:
        found = json.loads(data)
    except ValueError as error:
        raise CorruptFile(path, getattr(error, "pos", 0), f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise CorruptFile(path, 0, "expected a JSON object")
    yield DumpRow("cleanShutdown", {str(name): value for name, value in found.items()})


_TEXT_FILES: dict[str, Reader] = {
    names.META_PROPERTIES_FILE: read_meta_properties,
    names.CLEAN_SHUTDOWN_FILE: read_clean_shutdown,
    **dict.fromkeys(
        names.OFFSET_FILES, partial(read_checkpoint, type="offsetCheckpoint", columns=("topic", "partition", "offset"))
    ),
    names.PARTITION_METADATA_FILE: read_partition_metadata,
    names.EPOCHS_FILE: partial(read_checkpoint, type="leaderEpoch", columns=("epoch", "startOffset")),
}

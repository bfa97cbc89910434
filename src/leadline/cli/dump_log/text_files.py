"""Dumps of checkpoints, partition.metadata, meta.properties and .kafka_cleanshutdown."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from leadline.admin.json_values import Json
from leadline.cli.dump_log.dump_row import DumpRow, Reader, Rows
from leadline.config.properties import parse_properties
from leadline.errors import CorruptFile
from leadline.log import checkpoints, names
from leadline.model import format_id, parse_id


def _lines(path: str) -> list[tuple[int, str]]:
    """Each line with the position of its first byte."""
    data = Path(path).read_bytes()
    lines: list[tuple[int, str]] = []
    position = 0
    for line in data.splitlines(keepends=True):
        lines.append((position, line.decode("utf-8", "replace").rstrip("\r\n")))
        position += len(line)
    return lines


def read_checkpoint(path: str, type: str, columns: Sequence[str]) -> Rows:
    """A version, a count, and lines with these columns. All columns but `topic` are numbers."""
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
        yield CorruptFile(path, lines[1][0], f"the count is {lines[1][1]!r}, but {len(lines) - 2} lines follow")


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
        content = json.loads(data)
    except ValueError as error:
        raise CorruptFile(path, getattr(error, "pos", 0), f"not JSON: {error}") from None
    if not isinstance(content, dict):
        raise CorruptFile(path, 0, "expected a JSON object")
    yield DumpRow("cleanShutdown", {str(name): value for name, value in content.items()})


TEXT_FILES: dict[str, Reader] = {
    names.META_PROPERTIES_FILE: read_meta_properties,
    names.CLEAN_SHUTDOWN_FILE: read_clean_shutdown,
    **dict.fromkeys(
        names.OFFSET_FILES, partial(read_checkpoint, type="offsetCheckpoint", columns=("topic", "partition", "offset"))
    ),
    names.PARTITION_METADATA_FILE: read_partition_metadata,
    names.EPOCHS_FILE: partial(read_checkpoint, type="leaderEpoch", columns=("epoch", "startOffset")),
}

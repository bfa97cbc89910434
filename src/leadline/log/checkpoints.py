"""The small text files beside the data, in Kafka's formats. Each is replaced whole, atomically.

Offset checkpoints (recovery points, high watermarks, log starts, cleaned offsets), version 0:

    0                       version
    2                       count of lines
    orders 0 1200           topic partition offset
    orders 1 1187

leader-epoch-checkpoint: the same with `epoch startOffset` lines.
partition.metadata: `version: 0` and `topic_id: <id>`.  .kafka_cleanshutdown: JSON with the broker's epoch.
meta.properties: a Java properties file with the ids of broker and cluster.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from leadline.config import parse_properties
from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.files import read_file, replace_file, write_file
from leadline.model import Offset, TopicId, TopicPartition, format_id, parse_id
from leadline.ports import Files

VERSION = 0


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: Offset


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def decode_lines(path: str, data: bytes) -> list[str]:
    """The lines behind version and count; both are checked. An empty file has none."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    if lines[0] != str(VERSION):
        raise CorruptFile(path, 0, f"version {lines[0]!r}, expected {VERSION}")
    if len(lines) == 1:
        return []
    if not lines[1].isdigit() or int(lines[1]) != len(lines) - 2:
        raise CorruptFile(path, len(lines[0]) + 1, f"says {lines[1]!r} lines follow, but {len(lines) - 2} do")
    return lines[2:]


def _malformed(path: str, line: str) -> CorruptFile:
    return CorruptFile(path, 0, f"malformed line {line!r}")


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, Offset]) -> None:
    """Sorted, so that the same state gives the same bytes."""
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in sorted(offsets.items())]
    replace_file(files, path, encode_lines(lines))


def read_offsets(files: Files, path: str) -> dict[TopicPartition, Offset]:
    """Nothing if there is no such file."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return {}
    found: dict[TopicPartition, Offset] = {}
    for line in decode_lines(path, data):
        try:
            topic, partition, offset = line.split()
            found[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError:
            raise _malformed(path, line) from None
    return found


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return encode_lines([f"{epoch} {start}" for epoch, start in entries])


def read_epochs(files: Files, path: str) -> list[EpochEntry]:
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return []
    entries: list[EpochEntry] = []
    for line in decode_lines(path, data):
        try:
            epoch, start = line.split()
            entries.append(EpochEntry(int(epoch), int(start)))
        except ValueError:
            raise _malformed(path, line) from None
    return entries


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: {VERSION}\ntopic_id: {format_id(topic_id)}".encode()


def read_partition_metadata(files: Files, path: str) -> TopicId | None:
    try:
        text = read_file(files, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    if fields.get("version") != str(VERSION):
        raise CorruptFile(path, 0, f"version {fields.get('version')!r}, expected {VERSION}")
    try:
        topic_id = parse_id(fields.get("topic_id", "").strip())
    except ValueError as error:
        raise CorruptFile(path, 0, f"topic_id is {error}") from None
    if topic_id.int == 0:
        raise CorruptFile(path, 0, "topic_id is all zeros")
    return topic_id


def write_clean_shutdown(files: Files, directory: str, broker_epoch: int) -> None:
    """Says that everything in the directory was flushed. The last file a broker writes."""
    content = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_file(files, os.path.join(directory, names.CLEAN_SHUTDOWN_FILE), content.encode(), sync=True)
    files.sync_dir(directory)


def take_clean_shutdown(files: Files, directory: str) -> int | None:
    """The broker epoch of a clean stop, once: the file is gone, durably, before the first write. None: unclean."""
    path = os.path.join(directory, names.CLEAN_SHUTDOWN_FILE)
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return None
    files.unlink(path)
    files.sync_dir(directory)
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, TypeError, KeyError):
        return -1  # written by a version that kept no epoch in it


def write_meta_properties(files: Files, directory: str, properties: Mapping[str, str], now_ms: int) -> None:
    """As java.util.Properties stores them: a comment line, the date, then key=value."""
    date = time.strftime("%a %b %d %H:%M:%S UTC %Y", time.gmtime(now_ms / 1000))
    lines = ["#", f"#{date}", *(f"{key}={_escape(value)}" for key, value in properties.items())]
    replace_file(files, os.path.join(directory, names.META_PROPERTIES_FILE), ("\n".join(lines) + "\n").encode())


def read_meta_properties(files: Files, directory: str) -> dict[str, str]:
    """Empty if the directory is new."""
    path = os.path.join(directory, names.META_PROPERTIES_FILE)
    try:
        text = read_file(files, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return {}
    return parse_properties(text)


def _escape(value: str) -> str:
    return "".join(f"\\{char}" if char in "=:#!\\" else char for char in value)

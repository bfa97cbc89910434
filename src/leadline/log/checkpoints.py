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
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import NamedTuple

from leadline.config.properties import parse_properties
from leadline.config.values import LONG_MAX
from leadline.errors import CorruptFile
from leadline.log import names
from leadline.log.files import read_file, replace_file, write_file
from leadline.model import Offset, TopicId, TopicPartition, format_id, parse_id
from leadline.runtime.ports import Files

VERSION = 0
MOST_DIGITS = 19  # of a number of 64 bits
METADATA_REMEDY = "remove this file: it is written again, with the topic id from the controller"


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: Offset


def encode_lines(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in (VERSION, len(lines), *lines)).encode()


def decode_lines(path: str, data: bytes) -> list[str]:
    """The lines after version and count; both are checked. An empty file has none."""
    lines = data.decode("utf-8", "replace").splitlines()
    if not lines:
        return []
    if lines[0] != str(VERSION):
        raise CorruptFile(path, 0, f"version {lines[0]!r}, expected {VERSION}")
    if len(lines) == 1:
        return []
    if lines[1] != str(len(lines) - 2):
        raise CorruptFile(path, len(lines[0]) + 1, f"says {lines[1]!r} lines follow, but {len(lines) - 2} do")
    return lines[2:]


def _number(text: str) -> int:
    """ValueError for a number that no broker writes."""
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS) or int(text) > LONG_MAX:
        raise ValueError(text)
    return int(text)


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
    offsets: dict[TopicPartition, Offset] = {}
    for line in decode_lines(path, data):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, _number(partition))] = _number(offset)
        except ValueError:
            raise _malformed(path, line) from None
    return offsets


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
            entries.append(EpochEntry(_number(epoch), _number(start)))
        except ValueError:
            raise _malformed(path, line) from None
    for entry, following in pairwise(entries):
        if entry.epoch >= following.epoch or entry.start_offset >= following.start_offset:
            text = f"epoch {following.epoch} from {following.start_offset} on does not follow {entry.epoch}"
            raise CorruptFile(path, 0, text)
    return entries


def encode_partition_metadata(topic_id: TopicId) -> bytes:
    return f"version: {VERSION}\ntopic_id: {format_id(topic_id)}".encode()


def read_partition_metadata(files: Files, path: str) -> TopicId | None:
    """None if the file does not exist or is empty."""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return None
    if not data.strip(b"\0\r\n "):
        return None
    fields = dict(line.split(": ", 1) for line in data.decode("utf-8", "replace").splitlines() if ": " in line)
    if fields.get("version") != str(VERSION):
        raise CorruptFile(path, 0, f"version {fields.get('version')!r}, expected {VERSION}", METADATA_REMEDY)
    try:
        topic_id = parse_id(fields.get("topic_id", "").strip())
    except ValueError as error:
        raise CorruptFile(path, 0, f"topic_id is {error}", METADATA_REMEDY) from None
    if topic_id.int == 0:
        raise CorruptFile(path, 0, "topic_id is all zeros", METADATA_REMEDY)
    return topic_id


def write_clean_shutdown(files: Files, directory: str, broker_epoch: int) -> None:
    """The mark that everything in the directory was flushed: the last file that a broker writes."""
    content = json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_file(files, os.path.join(directory, names.CLEAN_SHUTDOWN_FILE), content.encode(), sync=True)
    files.sync_dir(directory)


def take_clean_shutdown(files: Files, directory: str) -> int | None:
    """The broker epoch of a clean stop; None if it was unclean. The file is durably removed before the first write."""
    path = os.path.join(directory, names.CLEAN_SHUTDOWN_FILE)
    data: bytes | None = b""
    try:
        data = read_file(files, path)
    except FileNotFoundError:
        return None
    except PermissionError:
        data = None  # its content is unknown: a recovery costs time only
    except CorruptFile:
        pass
    files.unlink(path)
    files.sync_dir(directory)
    if data is None:
        return None
    try:
        return int(json.loads(data)["brokerEpoch"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return -1  # written by a version that kept no epoch in it


def write_meta_properties(files: Files, directory: str, properties: Mapping[str, str], now_ms: int) -> None:
    """As java.util.Properties stores them: a comment line, the date, then key=value."""
    date = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
    lines = ["#", f"#{date}", *(f"{key}={_escape(value)}" for key, value in properties.items())]
    replace_file(files, os.path.join(directory, names.META_PROPERTIES_FILE), ("\n".join(lines) + "\n").encode())


def read_meta_properties(files: Files, directory: str) -> dict[str, str] | None:
    """None if the directory is new."""
    path = os.path.join(directory, names.META_PROPERTIES_FILE)
    try:
        text = read_file(files, path).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    return parse_properties(text)


def _escape(value: str) -> str:
    return "".join(f"\\{char}" if char in "=:#!\\" else char for char in value)

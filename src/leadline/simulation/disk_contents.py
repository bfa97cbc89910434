"""What the disk of a host holds, whether a broker runs there or not. Nothing is changed."""

from collections.abc import Iterator

from leadline.errors import WireError
from leadline.log import names
from leadline.model import Buffer, Offset, TopicPartition
from leadline.records.batch import Header, crc_of, walk
from leadline.simulation.virtual_disk import Directory, VirtualDisk, VirtualFile

DATA = "data"  # the log directory


def stored_end(disk: VirtualDisk, tp: TopicPartition) -> Offset:
    """Where the log of a partition ends: after the last batch that a recovery would keep."""
    data = disk.root.entries.get(DATA)
    directory = data.entries.get(f"{tp.topic}-{tp.partition}") if isinstance(data, Directory) else None
    if not isinstance(directory, Directory):
        return 0
    segments: dict[Offset, bytearray] = {}
    for name, file in directory.entries.items():
        parsed = names.parse_file_name(name)
        if parsed is not None and parsed[1:] == (names.LOG, "") and isinstance(file, VirtualFile):
            segments[parsed[0]] = file.data
    end = min(segments, default=0)
    for base in sorted(segments):
        if base != end:
            break  # the bytes before it are not whole
        for header in _whole_batches(segments[base]):
            end = header.last_offset + 1
    return end


def _whole_batches(data: Buffer) -> Iterator[Header]:
    try:
        for position, header in walk(data):
            if crc_of(data, position, header.size) != header.crc:
                return
            yield header
    except WireError:
        return


def copy_of(disk: VirtualDisk) -> VirtualDisk:
    """The content that a process would read there now, synced or not."""
    copied = VirtualDisk(disk.clock)
    copied.root = _copy_of_directory(disk.root)
    return copied


def _copy_of_directory(directory: Directory) -> Directory:
    entries: dict[str, VirtualFile | Directory] = {}
    for name, node in directory.entries.items():
        if isinstance(node, Directory):
            entries[name] = _copy_of_directory(node)
        else:
            entries[name] = VirtualFile(node.name, bytearray(node.data), mtime_ms=node.mtime_ms)
    return Directory(entries)


def partitions_on(disk: VirtualDisk) -> dict[TopicPartition, Directory]:
    """The logs that a broker would open: not those that wait for their removal."""
    data = disk.root.entries.get(DATA)
    partitions: dict[TopicPartition, Directory] = {}
    for name, directory in data.entries.items() if isinstance(data, Directory) else ():
        if isinstance(directory, Directory):
            tp, mark = names.parse_dir_name(name)
            if mark is None:
                partitions[tp] = directory
    return partitions


def files_in(directory: Directory) -> dict[str, bytes]:
    return {name: bytes(file.data) for name, file in directory.entries.items() if isinstance(file, VirtualFile)}

"""No index points past its log: each entry names a byte and an offset that the segment has.

Pure: no file, no clock.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from leadline.errors import CorruptFile
from leadline.log import names, txn_index
from leadline.log.index import OffsetIndex, TimeIndex
from leadline.model import Offset
from leadline.records.batch import walk


def indexes_past_their_log(files: Mapping[str, bytes]) -> Iterator[str]:
    """`files`: the directory of a log that a broker has open, by name."""
    for name, data in files.items():
        parsed = names.parse_file_name(name)
        if parsed is None or parsed[1:] != (names.LOG, ""):
            continue
        base, end = parsed[0], parsed[0]
        for _, header in walk(data):
            end = header.last_offset + 1
        indexes = {kind: files.get(names.file_name(base, kind), b"") for kind in names.SEGMENT_SUFFIXES}
        for kind, why in _damages(base, end, len(data), indexes):
            yield f"index past its log: {names.file_name(base, kind)} {why}"


def _damages(base: Offset, end: Offset, size: int, indexes: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    offsets = [*zip(*OffsetIndex.decode(indexes[names.INDEX]), strict=True)]
    for relative, position in offsets:
        if position >= size or base + relative >= end:
            yield names.INDEX, f"points to offset {base + relative} at byte {position}: {end} at {size} is the end"
    if any(b[0] <= a[0] or b[1] <= a[1] for a, b in pairwise(offsets)):
        yield names.INDEX, "goes back"
    times = [*zip(*TimeIndex.decode(indexes[names.TIME_INDEX]), strict=True)]
    for timestamp, relative in times:
        if base + relative >= max(end, base + 1):
            yield names.TIME_INDEX, f"points to offset {base + relative} for time {timestamp}: {end} is the end"
    if any(b[0] <= a[0] or b[1] < a[1] for a, b in pairwise(times)):
        yield names.TIME_INDEX, "goes back"
    try:
        for aborted in txn_index.decode(names.TXN_INDEX, indexes[names.TXN_INDEX]):
            if aborted.last_offset >= end:
                yield names.TXN_INDEX, f"has a transaction that ends at {aborted.last_offset}: {end} is the end"
    except CorruptFile as error:
        yield names.TXN_INDEX, f"cannot be read: {error}"

"""Learning of producers again, from the newest snapshot and the log behind it."""

import logging

from leadline import hash_order
from leadline.errors import CorruptMessage
from leadline.hash_order import long_hash
from leadline.log.producer_snapshots import ProducerSnapshots
from leadline.log.producer_state import ProducerState
from leadline.log.segment import Segment
from leadline.log.segments import Segments
from leadline.model import Offset
from leadline.records.control import read_end_marker

log = logging.getLogger(__name__)


def rebuild_producers(
    segments: Segments,
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    log_start: Offset,
    log_end: Offset,
    now_ms: int,
) -> None:
    """As of the log's end. On the way, snapshots are taken where the next time will look for them."""
    nothing_known = producers.is_empty and producers.end_offset >= log_end
    snapshots.keep_between(log_start, log_end)
    for refused in snapshots.load_latest(producers, log_start, now_ms):
        log.warning("a producer snapshot is ignored and rebuilt from the log: %s", refused)
    if log_end > producers.end_offset and not nothing_known:
        bases = segments.bases[-2:]
        for segment in segments.between(producers.end_offset, log_end):
            start = max(segment.base_offset, producers.end_offset, log_start)
            producers.end_offset = start
            if segment.base_offset in bases:
                snapshots.take(producers, sync=True)
            _replay(segment, producers, start, log_end)
    producers.end_offset = log_end
    snapshots.take(producers, sync=True)


def _replay(segment: Segment, producers: ProducerState, start: Offset, end: Offset) -> None:
    try:
        first = segment.find(start)
    except CorruptMessage as error:
        log.warning("%s: of producers, nothing is learnt from there on", error)
        return
    if first is None:
        return
    known, seen = set(producers.by_id), set[int]()
    for place, header in segment.headers(first.position):
        if header.base_offset >= end:
            break
        if header.has_producer_id:
            seen.add(header.producer_id)
            marker = read_end_marker(segment.read_batch(place)[0], 0, header) if header.is_control else None
            producers.replay(header, marker)
    producers.move_to_end(
        producer_id for producer_id in hash_order.mutable(seen, long_hash) if producer_id not in known
    )

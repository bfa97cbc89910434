"""The growth of a topic, and the time when it reaches a limit: its retention, or the size of the disk.

The rate is that of the latest quarter of the time that the log covers, or of all of it where it covers little.
    with retention.ms, size settles at rate × retention.ms, once the log is that old
    with retention.bytes, a partition settles at that size
    with neither, the disk is full after free / rate
    a log that covers less than TOO_SHORT_MS has no forecast

Pure: figures in, forecasts out.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leadline.spark.report.figures import PartitionFigures
from leadline.spark.report.traffic import DAY_MS, TimeSlots, bulk, joined

RECENT = 0.25
FORESEEN_MS = 10 * 365 * DAY_MS  # later dates are not shown
TOO_SHORT_MS = 10 * 60_000  # a log that covers less gives no rate for a day


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """The limits of a topic that are known."""

    retention_ms: int | None = None  # None: unknown; -1: none
    retention_bytes: int | None = None  # of each partition
    cleanup_policy: str = "delete"  # unknown: of files
    disk_free: int | None = None
    disk_total: int | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    size: int
    first_ms: int
    last_ms: int
    rate: float  # bytes a day, lately
    overall_rate: float  # bytes a day, in all the time that the log covers
    settles_at: int | None = None  # bytes, under its retention; None: it grows on
    settles_ms: int | None = None  # when; in the past: it has settled
    by: str = ""  # the setting that does it
    disk_full_ms: int | None = None  # None: not in sight
    is_too_short: bool = False  # no forecast


def forecast(parts: Mapping[int, PartitionFigures], limits: TopicLimits) -> Forecast | None:
    """None: too little is known of when the records were written."""
    size = sum(part.stored for part in parts.values())
    slots = bulk(joined(part.slots for part in parts.values()))
    if not len(slots.starts):
        return None
    first, last = int(slots.starts[0]), int(slots.starts[-1]) + slots.width_ms
    rate, overall = _rate(slots, RECENT), _rate(slots, 1.0)
    if last - first < TOO_SHORT_MS:
        return Forecast(size, first, last, rate, overall, is_too_short=True)
    settles = [
        settling for settling in (_by_time(first, rate, limits), _by_size(parts, size, last, rate, limits)) if settling
    ]
    settles_at, settles_ms, by = min(settles, key=lambda settling: settling[1]) if settles else (None, None, "")
    full = _disk_full(size, last, rate, settles_at, limits)
    return Forecast(size, first, last, rate, overall, settles_at, settles_ms, by, full)


def _rate(slots: TimeSlots, share: float) -> float:
    """Bytes a day, in the last share of the time, at least in one slot of it."""
    end = int(slots.starts[-1]) + slots.width_ms
    span = max((end - int(slots.starts[0])) * share, slots.width_ms)
    counted = slots.bytes[slots.starts + slots.width_ms > end - span]
    covered = max(span, end - int(slots.starts[len(slots.starts) - len(counted)]))
    return float(np.sum(counted)) / covered * DAY_MS


Settling = tuple[int, int, str]  # bytes, when, by which setting


def _by_time(first_ms: int, rate: float, limits: TopicLimits) -> Settling | None:
    keep = limits.retention_ms
    if keep is None or keep < 0 or "delete" not in limits.cleanup_policy:
        return None
    return round(rate * keep / DAY_MS), first_ms + keep, "retention.ms"


def _by_size(
    parts: Mapping[int, PartitionFigures], size: int, now_ms: int, rate: float, limits: TopicLimits
) -> Settling | None:
    keep = limits.retention_bytes
    if keep is None or keep < 0 or "delete" not in limits.cleanup_policy or not rate or not size:
        return None
    waits = [(keep - part.stored) / (rate * part.stored / size) for part in parts.values() if part.stored]
    return keep * len(waits), now_ms + round(max(0.0, *waits) * DAY_MS), "retention.bytes"


def _disk_full(size: int, now_ms: int, rate: float, settles_at: int | None, limits: TopicLimits) -> int | None:
    if limits.disk_free is None or rate <= 0:
        return None
    if settles_at is not None and settles_at - size <= limits.disk_free:
        return None
    full_ms = limits.disk_free / rate * DAY_MS
    return now_ms + round(full_ms) if full_ms < FORESEEN_MS else None

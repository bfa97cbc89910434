"""The card of a report that tells how a topic grows, and where that ends.

Pure: figures in, HTML out.
"""

from functools import partial

import numpy as np

from leadline.spark.report import plots, quantities
from leadline.spark.report.forecast import Forecast, TopicLimits
from leadline.spark.report.page_parts import lead, plot, table
from leadline.spark.report.plots import Limit, Line
from leadline.spark.report.topic_report import TopicReport
from leadline.spark.report.traffic import DAY_MS, bulk, joined

SECONDS_A_DAY = 86_400


def growth(topic: TopicReport) -> str:
    found = topic.forecast
    if found is None:
        return lead("The records carry no times, so nothing can be said of growth.")
    said = f"Lately it grew by {quantities.size(found.rate)} a day, overall by {quantities.size(found.overall_rate)}. "
    if found.is_too_short:
        said = f"The log covers {quantities.length(found.last_ms - found.first_ms)}: too little to foretell anything. "
    else:
        said += _outcome(found, topic.limits)
    slots = bulk(joined(part.slots for part in topic.figures.parts.values()))
    limits = _limit_lines(found, topic)
    history = list(zip((slots.starts + slots.width_ms).tolist(), np.cumsum(slots.bytes).tolist(), strict=True))
    history = [(found.first_ms, 0.0), *history]
    drawn = [Line("size", history, filled=True)]
    if not found.is_too_short:
        drawn.append(Line("forecast", _future(found), dashed=True))
    drawing = plot(partial(plots.lines, drawn, quantities.size, "size over time, and its forecast", limits=limits))
    legend = plots.legend([("written", "c1"), ("forecast", "c1 dashed")][: len(drawn)])
    rows = [
        ["on disk", quantities.size(found.size)],
        ["a second, lately", quantities.size(found.rate / SECONDS_A_DAY)],
        ["retention.ms", _kept_for(topic.limits.retention_ms)],
        ["retention.bytes, a partition", _kept_up_to(topic.limits.retention_bytes)],
        ["cleanup.policy", topic.limits.cleanup_policy],
        ["settles at", _settles(found)],
        ["disk, free", quantities.size(topic.limits.disk_free) if topic.limits.disk_free is not None else "unknown"],
    ]
    return lead(said) + drawing + legend + table(["", ""], rows)


def _settles(found: Forecast) -> str:
    if found.is_too_short:
        return "unknown"
    return "grows on" if found.settles_at is None else quantities.size(found.settles_at)


def _outcome(found: Forecast, limits: TopicLimits) -> str:
    if found.disk_full_ms is not None:
        return f"At that rate the disk is full on {quantities.day(found.disk_full_ms)}."
    if found.settles_at is None or found.settles_ms is None:
        known = limits.retention_ms is not None
        return "Nothing bounds it but the disk." if known else "What its retention is, files do not tell."
    if found.settles_ms <= found.last_ms:
        return f"{found.by} holds it at about {quantities.size(found.settles_at)}."
    return f"{found.by} ends that on {quantities.day(found.settles_ms)}, at about {quantities.size(found.settles_at)}."


def _future(found: Forecast) -> list[tuple[int, float]]:
    """As long again as the log covers, or to where it settles, if that is in sight."""
    span = max(found.last_ms - found.first_ms, 1)
    until = found.last_ms + span
    if found.settles_ms is not None and found.last_ms < found.settles_ms < found.last_ms + 6 * span:
        until = found.settles_ms + span // 2
    points = [(found.last_ms, float(found.size))]
    if found.settles_ms is not None and found.settles_at is not None and found.settles_ms < until:
        bend = max(found.settles_ms, found.last_ms)
        points += [(bend, float(found.settles_at)), (until, float(found.settles_at))]
    else:
        points.append((until, found.size + found.rate * (until - found.last_ms) / DAY_MS))
    return points


def _limit_lines(found: Forecast, topic: TopicReport) -> list[Limit]:
    highest = max(value for _, value in _future(found))
    limits = []
    if found.settles_at is not None and found.settles_at <= 3 * highest:
        limits.append(Limit(found.settles_at, f"{found.by}: {quantities.size(found.settles_at)}"))
    free = topic.limits.disk_free
    if free is not None and found.size + free <= 3 * highest:
        limits.append(Limit(found.size + free, f"disk full: {quantities.size(found.size + free)}"))
    return limits


def _kept_for(ms: int | None) -> str:
    return "unknown" if ms is None else "for ever" if ms < 0 else quantities.length(ms)


def _kept_up_to(size: int | None) -> str:
    return "unknown" if size is None else "no limit" if size < 0 else quantities.size(size)

"""The card of a report on the growth of a topic, and on its limits.

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
    forecast = topic.forecast
    if forecast is None:
        return lead("The records have no timestamps: growth is unknown.")
    if forecast.is_too_short:
        covered = quantities.length(forecast.last_ms - forecast.first_ms)
        text = f"The log covers {covered}: too little for a forecast. "
    else:
        rate, overall = quantities.size(forecast.rate), quantities.size(forecast.overall_rate)
        text = f"The topic grew by {rate} a day recently, and by {overall} a day overall. "
        text += _outcome(forecast, topic.limits)
    slots = bulk(joined(part.slots for part in topic.figures.parts.values()))
    limits = _limit_lines(forecast, topic)
    history = list(zip((slots.starts + slots.width_ms).tolist(), np.cumsum(slots.bytes).tolist(), strict=True))
    history = [(forecast.first_ms, 0.0), *history]
    drawn = [Line("size", history, filled=True)]
    if not forecast.is_too_short:
        drawn.append(Line("forecast", _future(forecast), dashed=True))
    drawing = plot(partial(plots.lines, drawn, quantities.size, "size over time, and its forecast", limits=limits))
    legend = plots.legend([("written", "c1"), ("forecast", "c1 dashed")][: len(drawn)])
    rows = [
        ["on disk", quantities.size(forecast.size)],
        ["a second, recently", quantities.size(forecast.rate / SECONDS_A_DAY)],
        ["retention.ms", _kept_for(topic.limits.retention_ms)],
        ["retention.bytes, a partition", _kept_up_to(topic.limits.retention_bytes)],
        ["cleanup.policy", topic.limits.cleanup_policy],
        ["settles at", _settles(forecast)],
        ["disk, free", quantities.size(topic.limits.disk_free) if topic.limits.disk_free is not None else "unknown"],
    ]
    return lead(text) + drawing + legend + table(["", ""], rows)


def _settles(forecast: Forecast) -> str:
    if forecast.is_too_short:
        return "unknown"
    return "grows on" if forecast.settles_at is None else quantities.size(forecast.settles_at)


def _outcome(forecast: Forecast, limits: TopicLimits) -> str:
    if forecast.disk_full_ms is not None:
        return f"At that rate the disk is full on {quantities.day(forecast.disk_full_ms)}."
    if forecast.settles_at is None or forecast.settles_ms is None:
        is_known = limits.retention_ms is not None
        return "Only the disk limits it." if is_known else "The retention is unknown: files do not hold it."
    size = quantities.size(forecast.settles_at)
    if forecast.settles_ms <= forecast.last_ms:
        return f"{forecast.by} limits it to about {size}."
    return f"{forecast.by} stops the growth on {quantities.day(forecast.settles_ms)}, at about {size}."


def _future(forecast: Forecast) -> list[tuple[int, float]]:
    """The forecast: for as long again as the log covers, or until shortly after the size settles."""
    span = max(forecast.last_ms - forecast.first_ms, 1)
    until = forecast.last_ms + span
    if forecast.settles_ms is not None and forecast.last_ms < forecast.settles_ms < forecast.last_ms + 6 * span:
        until = forecast.settles_ms + span // 2
    points = [(forecast.last_ms, float(forecast.size))]
    if forecast.settles_ms is not None and forecast.settles_at is not None and forecast.settles_ms < until:
        bend = max(forecast.settles_ms, forecast.last_ms)
        points += [(bend, float(forecast.settles_at)), (until, float(forecast.settles_at))]
    else:
        points.append((until, forecast.size + forecast.rate * (until - forecast.last_ms) / DAY_MS))
    return points


def _limit_lines(forecast: Forecast, topic: TopicReport) -> list[Limit]:
    highest = max(value for _, value in _future(forecast))
    limits = []
    if forecast.settles_at is not None and forecast.settles_at <= 3 * highest:
        limits.append(Limit(forecast.settles_at, f"{forecast.by}: {quantities.size(forecast.settles_at)}"))
    free = topic.limits.disk_free
    if free is not None and forecast.size + free <= 3 * highest:
        limits.append(Limit(forecast.size + free, f"disk full: {quantities.size(forecast.size + free)}"))
    return limits


def _kept_for(ms: int | None) -> str:
    return "unknown" if ms is None else "for ever" if ms < 0 else quantities.length(ms)


def _kept_up_to(size: int | None) -> str:
    return "unknown" if size is None else "no limit" if size < 0 else quantities.size(size)

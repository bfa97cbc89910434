"""Remarks on topics, derived from their figures.

Pure: figures in, sentences out.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from leadline.records.compression import Codec
from leadline.spark.report import quantities
from leadline.spark.report.figures import PartitionFigures
from leadline.spark.report.forecast import TopicLimits
from leadline.spark.report.lag import Lag
from leadline.spark.report.sketches import HotKey
from leadline.spark.report.topic_report import Report, TopicReport
from leadline.spark.report.traffic import DAY_MS

FEW_RECORDS = 100  # too few for a remark
LARGE_BYTES = 100_000  # of a message
LITTLE_BYTES = 1_000_000  # of disk: to save less, or to grow by less in a day, is not remarkable


class Weight(IntEnum):
    TROUBLE = 0  # something breaks, or has
    WASTE = 1  # money, or time
    WORTH_KNOWING = 2


@dataclass(frozen=True, slots=True)
class Remark:
    weight: Weight
    topic: str
    text: str
    about: str  # the part of the page that shows it


Rule = Callable[[TopicReport], Iterator[Remark]]


def remarks(report: Report) -> list[Remark]:
    """Sorted by weight, then by the size of the topic."""
    result = [Remark(Weight.TROUBLE, "", f"some records could not be read: {error}", "") for error in report.errors]
    for topic in report.topics:
        for rule in RULES:
            result += rule(topic)
    return sorted(result, key=lambda remark: remark.weight)


def _skew(topic: TopicReport) -> Iterator[Remark]:
    parts, stored = topic.figures.parts, topic.figures.stored
    if len(parts) < 2 or topic.figures.records < FEW_RECORDS:
        return
    partition, biggest = max(parts.items(), key=lambda item: item[1].stored)
    if biggest.stored * len(parts) >= 1.5 * stored:
        why = _cause(topic, partition, biggest)
        held = f"partition {partition} holds {quantities.share(biggest.stored, stored)} of all bytes"
        fair = f"{quantities.share(1, len(parts))} would be its share"
        weight = Weight.WASTE if biggest.stored * len(parts) >= 2 * stored else Weight.WORTH_KNOWING
        yield Remark(weight, topic.name, f"{held}{why} ({fair})", "skew")
    empty = sum(part.records == 0 for part in parts.values())
    if empty:
        text = f"{empty} of {len(parts)} partitions {'holds' if empty == 1 else 'hold'} no record"
        yield Remark(Weight.WORTH_KNOWING, topic.name, text, "skew")


def _cause(topic: TopicReport, partition: int, part: PartitionFigures) -> str:
    hot = [key for key in topic.figures.hot.top(50) if key.partition == partition]
    if hot and hot[0].bytes * 3 >= part.stored:
        return f": key {_named(hot[0])}"
    return ""


def _named(hot: HotKey) -> str:
    return f"“{quantities.shown(hot.key, 24)}”"


def _hot_key(topic: TopicReport) -> Iterator[Remark]:
    records, top = topic.figures.records, topic.figures.hot.top(1)
    if records < FEW_RECORDS or not top or topic.figures.kept().keys < 10:
        return
    if top[0].records * 10 >= records:
        text = f"one key in {quantities.number(topic.figures.kept().keys)} has "
        text += f"{quantities.share(top[0].records, records)} of the records: {_named(top[0])}"
        yield Remark(Weight.WORTH_KNOWING, topic.name, text, "keys")


def _sizes(topic: TopicReport) -> Iterator[Remark]:
    sizes = topic.figures.sizes
    middle = sizes.percentile(0.5)
    if sizes.largest >= LARGE_BYTES and sizes.largest > 100 * middle:
        text = f"the largest message has {quantities.size(sizes.largest)}, half have {quantities.size(middle)} or less"
        yield Remark(Weight.WORTH_KNOWING, topic.name, text, "sizes")


def _compression(topic: TopicReport) -> Iterator[Remark]:
    figures = topic.figures
    best, size = min(figures.tried.items(), key=lambda item: item[1], default=(Codec.NONE, 0))
    saved = 1 - size / figures.tried_stored if figures.tried_stored else 0.0
    if saved > 0.25 and saved * figures.stored >= LITTLE_BYTES:
        used = " and ".join(_name(codec) for codec in sorted(figures.codecs))
        text = f"{best.name.lower()} would save {quantities.share(saved, 1)} of the disk, about "
        text += f"{quantities.size(saved * figures.stored)}; {used} in use"
        yield Remark(Weight.WASTE, topic.name, text, "compression")
    if figures.records >= FEW_RECORDS and figures.records < 3 * figures.batches:
        text = f"a batch holds {figures.records / figures.batches:.1f} records on average: "
        yield Remark(Weight.WASTE, topic.name, text + "linger.ms of the producers could pack more", "compression")


def _name(codec: Codec) -> str:
    return "no compression" if codec is Codec.NONE else codec.name.lower()


def _growth(topic: TopicReport) -> Iterator[Remark]:
    forecast = topic.forecast
    if forecast is None or forecast.is_too_short:
        return
    grows = f"it grows by {quantities.size(forecast.rate)} a day"
    if forecast.disk_full_ms is not None and forecast.disk_full_ms - forecast.last_ms < 90 * DAY_MS:
        left = quantities.length(forecast.disk_full_ms - forecast.last_ms)
        yield Remark(Weight.TROUBLE, topic.name, f"at this rate the disk is full in {left}: {grows}", "growth")
    elif forecast.rate >= LITTLE_BYTES and _keeps_all(topic.limits):
        yield Remark(Weight.WORTH_KNOWING, topic.name, f"nothing is ever deleted, and {grows}", "growth")


def _keeps_all(limits: TopicLimits) -> bool:
    return limits.retention_ms == limits.retention_bytes == -1 and "delete" in limits.cleanup_policy


def _compaction(topic: TopicReport) -> Iterator[Remark]:
    figures, kept = topic.figures, topic.figures.kept()
    keyless = sum(part.keyless for part in figures.parts.values())
    if "compact" in topic.limits.cleanup_policy:
        if keyless:
            verb = "has" if keyless == 1 else "have"
            text = f"{quantities.counted(keyless, 'record')} {verb} no key, and the topic is compacted"
            yield Remark(Weight.TROUBLE, topic.name, text, "compaction")
        return
    is_much = figures.stored - kept.bytes >= LITTLE_BYTES
    if is_much and not keyless and figures.records >= FEW_RECORDS and kept.keys * 5 <= figures.records:
        left = quantities.share(kept.bytes, figures.stored)
        text = f"if only the last record of a key matters, compaction would leave {left} of the bytes"
        yield Remark(Weight.WORTH_KNOWING, topic.name, text, "compaction")


def _lag(topic: TopicReport) -> Iterator[Remark]:
    for lag in topic.lags:
        behind = _behind(lag)
        if behind * 10 < topic.figures.records or not behind:
            continue
        halfway = np.searchsorted(lag.times, (lag.times[0] + lag.times[-1]) // 2, side="right") - 1
        then = int(lag.behind[halfway])
        trend = "and falls further behind" if behind > 1.1 * then else "and does not catch up" if behind >= then else ""
        text = f"group {lag.group} is {quantities.counted(behind, 'record')} behind {trend}".rstrip()
        yield Remark(Weight.TROUBLE if trend else Weight.WORTH_KNOWING, topic.name, text, "lag")


def _behind(lag: Lag) -> int:
    """The lag at the end."""
    return sum(end - committed for committed, end in lag.by_partition.values())


def _times(topic: TopicReport) -> Iterator[Remark]:
    untimed = sum(part.slots.untimed for part in topic.figures.parts.values())
    if untimed:
        verb, them = ("has", "it") if untimed == 1 else ("have", "them")
        text = f"{quantities.counted(untimed, 'record')} {verb} no time: retention.ms cannot judge {them}"
        yield Remark(Weight.WORTH_KNOWING, topic.name, text, "traffic")


RULES: list[Rule] = [_skew, _hot_key, _sizes, _compression, _growth, _compaction, _lag, _times]

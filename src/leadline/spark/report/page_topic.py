"""The chapter of a topic in a report: a card for each figure, with a sentence, a plot and the numbers.

Pure: figures in, HTML out.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from leadline.records.compression import Codec
from leadline.spark.report import plots, quantities
from leadline.spark.report.figures import TopicFigures
from leadline.spark.report.lag import Lag
from leadline.spark.report.page_growth import growth
from leadline.spark.report.page_parts import breakable, card, lead, note, plot, table
from leadline.spark.report.plots import Bar, Column, Line
from leadline.spark.report.topic_report import TopicReport
from leadline.spark.report.traffic import TimeSlots, bulk, joined

HOT_KEYS = 10
COMPACTED = {"delete": "is not compacted. If it were", "unknown": "was never compacted. If it were"}
COLUMNS = 64  # partitions that are drawn one by one; of more, the largest
SIZE_COLUMNS = 26  # of the histogram of sizes, at most
CELLS = 90  # slots of time in the heat map
MOST_SLOTS = 5000
LINES = 5  # groups with a line of their own
PERCENTILES = {"half": 0.5, "three in four": 0.75, "nine in ten": 0.9, "99 in 100": 0.99, "999 in 1000": 0.999}


def chapter(topic: TopicReport, n: int) -> str:
    figures = topic.figures
    line = f"{quantities.counted(figures.records, 'record')} in {quantities.counted(figures.batches, 'batch')}, "
    line += f"{quantities.size(figures.stored)} on disk, {quantities.counted(len(figures.parts), 'partition')}"
    if not figures.records:
        return f'<section id="topic-{n}"><h2>{breakable(topic.name)}</h2><p class="lead">{line}.</p></section>'
    cards = [
        card("skew", n, "Partitions", _skew(topic)),
        card("keys", n, "Hot keys", _keys(topic)),
        card("traffic", n, "Traffic", _traffic(topic)),
        card("growth", n, "Growth and retention", growth(topic)),
        card("sizes", n, "Message sizes", _sizes(topic)),
        card("compression", n, "Compression", _compression(topic)),
        card("compaction", n, "Compaction preview", _compaction(topic)),
        card("lag", n, "Consumer lag", _lag(topic)),
    ]
    return (
        f'<section id="topic-{n}"><h2>{breakable(topic.name)}</h2><p class="lead">{line}.</p>'
        f'<div class="cards">{"".join(cards)}</div></section>'
    )


def _skew(topic: TopicReport) -> str:
    figures = topic.figures
    parts = sorted(figures.parts.items())
    drawn = parts
    if len(parts) > COLUMNS:
        drawn = sorted(sorted(parts, key=lambda item: -item[1].stored)[:COLUMNS])
    limit = 1.5 * figures.stored / len(parts)
    by_bytes = [
        Column(
            str(partition), part.stored,
            f"partition {partition}: {quantities.size(part.stored)}, {quantities.counted(part.records, 'record')}",
            "c2" if part.stored >= limit and len(parts) > 1 else "c1",
        )
        for partition, part in drawn
    ]  # fmt: skip
    rows = [
        [
            str(partition),
            quantities.number(part.records),
            quantities.share(part.records, figures.records),
            quantities.size(part.stored),
            quantities.share(part.stored, figures.stored),
            quantities.size(part.payload / part.records) if part.records else "",
        ]
        for partition, part in parts
    ]
    heads = ["partition", "records", "share of records", "on disk", "share of bytes", "a record"]
    mean = "even" if len(parts) > 1 else ""
    draw = partial(plots.columns, by_bytes, quantities.size, "bytes by partition", mean=mean, x_title="partition")
    return lead(_evenness([part.stored for _, part in parts])) + plot(draw) + table(heads, rows)


def _evenness(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return "There is one partition."
    if not min(sizes):
        empty = sizes.count(0)
        return f"{empty} of {len(sizes)} partitions {'holds' if empty == 1 else 'hold'} nothing at all."
    times = max(sizes) / min(sizes)
    return f"The fullest holds {f'{times:,.0f}' if times >= 10 else f'{times:.1f}'} times as much as the emptiest."


def _keys(topic: TopicReport) -> str:
    figures = topic.figures
    hot, kept = figures.hot.top(HOT_KEYS), figures.kept()
    if not kept.keys:
        return lead("The records have no keys.")
    about = "" if kept.is_exact else "about "
    text = f"{about}{quantities.counted(kept.keys, 'different key')}".capitalize()
    if not hot:
        return lead(f"{text}, and none of them is frequent.")
    whose = "the most frequent has" if len(hot) == 1 else f"the {len(hot)} most frequent have"
    most = sum(key.records for key in hot)
    text += f"; {whose} {quantities.share(most, figures.records)} of all records."
    drawn = [
        Bar(
            quantities.shown(key.key, 28), key.records, quantities.share(key.records, figures.records),
            "c2" if key.records * 10 >= figures.records else "c1",
            f"{quantities.shown(key.key, 200)}: {quantities.counted(key.records, 'record')}, "
            f"partition {key.partition}",
        )
        for key in hot
    ]  # fmt: skip
    rows = [
        [
            breakable(quantities.shown(key.key)),
            str(key.partition),
            quantities.number(key.records),
            quantities.share(key.records, figures.records),
            quantities.size(key.bytes),
        ]
        for key in hot
    ]
    heads = ["key", "partition", "records", "share of records", "on disk"]
    error = quantities.number(figures.hot.error)
    below = note(f"Counted in one pass: each key may have up to {error} more records.") if figures.hot.error else ""
    draw = partial(plots.bars, drawn, "most frequent keys", whole=figures.records)
    return lead(text) + plot(draw) + table(heads, rows) + below


def _sizes(topic: TopicReport) -> str:
    sizes = topic.figures.sizes
    drawn = [
        Column(
            quantities.short(low), count,
            f"{quantities.number(low)} to {quantities.number(high)} bytes: {quantities.counted(count, 'record')}, "
            f"{quantities.share(count, sizes.count)}",
        )
        for low, high, count in sizes.ranges(SIZE_COLUMNS)
    ]  # fmt: skip
    rows = [[f"{name}, up to", quantities.size(sizes.percentile(part))] for name, part in PERCENTILES.items()]
    rows += [["largest", quantities.size(sizes.largest)], ["mean", quantities.size(sizes.mean)]]
    text = f"Half of the messages have {quantities.size(sizes.percentile(0.5))} or less, "
    text += f"99 in 100 have {quantities.size(sizes.percentile(0.99))} or less. Key and value count, headers do not."
    title = "how many messages of each size"
    draw = partial(plots.columns, drawn, quantities.short, title, x_title="bytes, from this size on")
    return lead(text) + plot(draw) + table(["messages", "size"], rows)


def _compression(topic: TopicReport) -> str:
    figures = topic.figures
    now = sum(packed.stored for packed in figures.codecs.values())
    unpacked = sum(packed.unpacked for packed in figures.codecs.values())
    text = f"{quantities.size(unpacked)} take {quantities.size(now)}: {_ratio(unpacked, now)}. "
    text += f"A batch holds {figures.records / max(figures.batches, 1):.1f} records on average."
    tried = sorted(figures.tried.items())
    drawn = [Bar("as it is", figures.tried_stored, _needed(figures.tried_stored, figures), "c6")]
    drawn += [Bar(_codec(codec), size, _needed(size, figures), "c1") for codec, size in tried]
    rows = [
        [
            _codec(codec),
            quantities.number(packed.batches),
            quantities.number(packed.records),
            quantities.size(packed.stored),
            quantities.size(packed.unpacked),
            f"{packed.ratio:.2f}",
        ]
        for codec, packed in sorted(figures.codecs.items())
    ]
    heads = ["in use", "batches", "records", "on disk", "unpacked", "ratio"]
    sample = quantities.size(figures.tried.get(Codec.NONE, 0))
    below = note(f"A sample of {sample} of batches, packed with each codec.")
    draw = partial(plots.bars, drawn, "what each codec would need", whole=figures.tried.get(Codec.NONE, 0))
    return lead(text) + plot(draw) + below + table(heads, rows)


def _codec(codec: Codec) -> str:
    return "none" if codec is Codec.NONE else codec.name.lower()


def _ratio(unpacked: int, packed: int) -> str:
    return f"{unpacked / packed:.2f} to 1" if packed else "nothing"


def _needed(size: int, figures: TopicFigures) -> str:
    """The bytes that the sample needs with a codec, as a share of its uncompressed bytes."""
    return quantities.share(size, figures.tried.get(Codec.NONE, 0))


def _traffic(topic: TopicReport) -> str:
    parts = topic.figures.parts
    slots = bulk(joined(part.slots for part in parts.values()))
    if not len(slots.starts):
        return lead("The records have no timestamps.")
    seconds = slots.width_ms / 1000
    full = _filled(slots)
    records = [(at, count / seconds) for at, count, _ in full]
    sizes = [(at, size / seconds) for at, _, size in full]
    most = max(records, key=lambda point: point[1])
    span = (full[-1][0] + slots.width_ms - full[0][0]) / 1000
    text = f"{quantities.short(sum(slots.records) / span)} records/s on average, at most {quantities.short(most[1])} "
    text += f"(at {quantities.moment(most[0])}), in slots of {quantities.length(slots.width_ms)}."
    body = lead(text)
    for name, points, kind, shown in (
        ("records/s", records, "c1", quantities.short),
        ("bytes/s", sizes, "c3", quantities.size),
    ):
        line = Line(name, _stepped(points, slots.width_ms), kind, filled=True, steps=True)
        body += f"<h4>{name}</h4>" + plot(partial(plots.lines, [line], shown, f"{name} over time"))
    if len(parts) > 1:
        body += "<h4>records by partition</h4>" + _field(topic, slots)
    rows = [
        [name, quantities.short(value), quantities.size(size)]
        for name, value, size in [
            ("average", sum(slots.records) / span, sum(slots.bytes) / span),
            ("busiest slot", most[1], max(size for _, size in sizes)),
            *_of_whole_slots(records, sizes),
        ]
    ]
    return body + table(["", "records/s", "bytes/s"], rows)


def _of_whole_slots(
    records: Sequence[tuple[int, float]], sizes: Sequence[tuple[int, float]]
) -> list[tuple[str, float, float]]:
    """The figures of all slots but the first and the last, which the log covers only in part."""
    counts, weights = [value for _, value in records[1:-1]], [size for _, size in sizes[1:-1]]
    if not counts:
        return []
    return [("quietest slot", min(counts), min(weights)), ("latest whole slot", counts[-1], weights[-1])]


def _filled(slots: TimeSlots) -> list[tuple[int, int, int]]:
    """All slots between the first and the last, including those without records."""
    starts, records, sizes = (column.tolist() for column in (slots.starts, slots.records, slots.bytes))
    by_start = {at: (at, count, size) for at, count, size in zip(starts, records, sizes, strict=True)}
    times = range(starts[0], starts[-1] + 1, slots.width_ms)
    return [by_start.get(at, (at, 0, 0)) for at in times] if len(times) <= MOST_SLOTS else list(by_start.values())


def _stepped(points: Sequence[tuple[int, float]], width_ms: int) -> list[tuple[int, float]]:
    """The points, with one more at the end of the last slot."""
    return [*points, (points[-1][0] + width_ms, points[-1][1])]


def _field(topic: TopicReport, whole: TimeSlots) -> str:
    first, last = int(whole.starts[0]), int(whole.starts[-1])
    width = whole.width_ms
    while (last - first) // width > CELLS:
        width *= 2
    starts = list(range(first, last + 1, width))
    rows = []
    for partition, part in sorted(topic.figures.parts.items())[:COLUMNS]:
        part_slots = part.slots
        inside = (part_slots.starts >= first) & (part_slots.starts <= last)
        cells = np.bincount(
            (part_slots.starts[inside] - first) // width, part_slots.records[inside], minlength=len(starts)
        )
        rows.append((str(partition), cells.tolist()))
    title = "records by partition and time"
    return plot(partial(plots.field, rows, starts, width, quantities.short, title))


def _compaction(topic: TopicReport) -> str:
    figures, kept = topic.figures, topic.figures.kept()
    keyless = sum(part.keyless for part in figures.parts.values())
    if keyless == figures.records:
        return lead("The records have no keys: the topic cannot be compacted.")
    about = "" if kept.is_exact else "about "
    superseded = figures.records - keyless - kept.keys
    policy = COMPACTED.get(topic.limits.cleanup_policy, "is compacted")
    all_records = quantities.counted(figures.records, "record")
    remain = f"{about}{quantities.number(kept.keys)} of {all_records} would remain"
    text = f"The topic {policy}: {remain}, {quantities.share(kept.bytes, figures.stored)} of the bytes."
    if keyless:
        verb = "prevents" if keyless == 1 else "prevent"
        text += f" {quantities.counted(keyless, 'record')} without a key {verb} it."
    drawn = [
        Bar("records now", figures.records, quantities.number(figures.records), "c6"),
        Bar("would remain", kept.keys, quantities.number(kept.keys), "c1"),
    ]
    sizes = [
        Bar("bytes now", figures.stored, quantities.size(figures.stored), "c6"),
        Bar("would remain", kept.bytes, quantities.size(kept.bytes), "c3"),
    ]
    rows = [
        ["keys", about + quantities.number(kept.keys)],
        ["superseded records", about + quantities.number(max(superseded, 0))],
        ["tombstones among the last", about + quantities.number(kept.tombstones)],
        ["records without a key", quantities.number(keyless)],
    ]
    body = plot(partial(plots.bars, drawn, "records before and after"))
    body += plot(partial(plots.bars, sizes, "bytes before and after"))
    return lead(text) + body + table(["", "records"], rows)


def _lag(topic: TopicReport) -> str:
    lags = [lag for lag in topic.lags if len(lag.times)]
    if not lags:
        return lead("No group has committed an offset of this topic.")
    lags.sort(key=lambda lag: (-int(lag.behind[-1]), lag.group))
    behind = [lag for lag in lags if int(lag.behind[-1]) > 0]
    text = f"{quantities.counted(len(lags), 'group')} {'reads' if len(lags) == 1 else 'read'} this topic: "
    text += (
        f"{len(behind)} had records left to read at the end."
        if behind
        else "no group had records left to read at the end."
    )
    drawn = [
        Line(lag.group, list(zip(lag.times.tolist(), lag.behind.tolist(), strict=True)), f"c{n + 1}", steps=True)
        for n, lag in enumerate(lags[:LINES])
    ]
    drawing = plot(partial(plots.lines, drawn, quantities.short, "records behind, over time"))
    rows = [
        [
            breakable(lag.group),
            quantities.number(_behind(lag)),
            quantities.number(int(lag.behind.max())),
            quantities.number(len(lag.by_partition)),
            quantities.moment(int(lag.times[-1])),
        ]
        for lag in lags
    ]
    legend = plots.legend([(lag.group, f"c{n + 1}") for n, lag in enumerate(lags[:LINES])])
    return lead(text) + drawing + legend + table(["group", "behind", "at most", "partitions", "as of"], rows)


def _behind(lag: Lag) -> int:
    return sum(end - committed for committed, end in lag.by_partition.values())

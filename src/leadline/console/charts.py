"""Pictures as inline SVG: replicas of a partition on one scale of offsets, lag over time, shares of a whole.

Sizes are attributes and colours are classes: a page may have no inline style.

Pure: numbers in, markup out.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from leadline.admin.explanation import PartitionExplanation
from leadline.admin.formatting import count_text
from leadline.console.failover import log_end
from leadline.model import Offset

ROW, TOP, BAR = 44, 34, 18
MIN_WINDOW = 20  # offsets that the picture shows at least
EPOCH_TINTS = 2
LEAST_EPOCH_LABEL = 64  # the width of a part of a bar that has room for "epoch 12"


class PictureSize(NamedTuple):
    """Where the bars are: the style sheet shows the picture that fits the screen."""

    css: str
    width: int
    left: int  # of the bars; the names of brokers are beside them
    right: int  # distance of the bars from the right edge; log ends are there

    @property
    def bar_width(self) -> int:
        return self.width - self.left - self.right


WIDE = PictureSize("wide", 720, 96, 92)
NARROW = PictureSize("narrow", 320, 80, 62)


def share_bar(part: float, label: str) -> Markup:
    """A bar that is filled from 0 to 1."""
    width = round(max(0.0, min(part, 1.0)) * 100, 1)
    return Markup(
        '<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="track" width="100" height="8"/><rect class="fill" width="{}" height="8"/></svg>'
    ).format(label, width)


def lag_chart(samples: Sequence[tuple[int, int]]) -> Markup:
    """A line over time, from the first sample to the last."""
    width, height = 720, 140
    most = max((lag for _, lag in samples), default=0)
    if len(samples) < 2:
        return Markup("")
    first_ms, last_ms = samples[0][0], samples[-1][0]
    span_ms = max(last_ms - first_ms, 1)

    def point(at_ms: int, lag: int) -> str:
        x = (at_ms - first_ms) / span_ms * width
        return f"{x:.1f},{height - lag / max(most, 1) * (height - 12) - 4:.1f}"

    line = " ".join(point(*sample) for sample in samples)
    label = f"Lag over the last {span_ms // 1000} s: now {samples[-1][1]:,}, at most {most:,}"
    return Markup(
        '<svg class="lag-chart" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<polygon class="area" points="0,{h} {line} {w},{h}"/><polyline class="line" points="{line}"/></svg>'
    ).format(w=width, h=height, line=line, label=label)


def replication_picture(explanation: PartitionExplanation) -> Markup:
    """For wide and for narrow screens."""
    return _picture(explanation, WIDE) + _picture(explanation, NARROW)


def _picture(explanation: PartitionExplanation, size: PictureSize) -> Markup:
    """One bar for each replica, with the leader epochs in it; lines for high watermark and last stable offset."""
    ends = {status.id: log_end(explanation, status) for status in explanation.statuses}
    present = [end for end in ends.values() if end is not None]
    if not present:
        return Markup("")
    high_watermark = None if explanation.blocked is None else explanation.blocked.high_watermark
    last_stable = None if explanation.blocked is None else explanation.blocked.last_stable
    first, last = _window(explanation, present, [n for n in (high_watermark, last_stable) if n is not None])

    def x(offset: Offset) -> float:
        return size.left + (max(min(offset, last), first) - first) / max(last - first, 1) * size.bar_width

    height = TOP + ROW * len(explanation.statuses) + 26
    parts = [
        Markup('<svg class="replication {}" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            size.css, size.width, height, _title(explanation, ends, high_watermark)
        )
    ]
    epochs = sorted((epoch.start_offset, epoch.epoch) for epoch in explanation.epochs if epoch.start_offset is not None)
    for n, status in enumerate(explanation.statuses):
        y, end = TOP + n * ROW, ends[status.id]
        role = "leader" if status.is_leader else "in sync" if status.in_sync else "not in sync"
        css = "leads" if status.is_leader else "in-sync" if status.in_sync else "behind"
        parts.append(
            Markup(
                '<text class="name" x="0" y="{}">broker {}</text><text class="role {}" x="0" y="{}">{}</text>'
            ).format(y + 9, status.id, css, y + 23, role)
        )
        if end is None:
            parts.append(
                Markup('<text class="role" x="{}" y="{}">{}</text>').format(size.left + 6, y + 14, status.state)
            )
            continue
        start = max(status.log_start or first, first)
        parts.append(
            Markup('<rect class="track" x="{}" y="{}" width="{}" height="{}"/>').format(
                size.left, y, size.bar_width, BAR
            )
        )
        parts += _epoch_bars(epochs, start, end, x, y, css)
        parts.append(
            Markup('<text class="offset" x="{:.1f}" y="{}">{}</text>').format(
                size.width - size.right + 8, y + 13, f"{end:,}"
            )
        )
    bottom = TOP + ROW * len(explanation.statuses) - 8
    for offset, css, label, at in (
        (high_watermark, "high-watermark", "high watermark", 12),
        (last_stable if last_stable != high_watermark else None, "last-stable", "last stable offset", 26),
    ):
        if offset is not None:
            parts.append(
                _mark(x(offset), "end" if x(offset) > size.width / 2 else "start", offset, css, label, at, bottom)
            )
    more = "… " if first > 0 else ""
    parts.append(
        Markup(
            '<text class="offset" x="{}" y="{}">{}{:,}</text><text class="offset end" x="{}" y="{}">{:,}</text></svg>'
        ).format(size.left, height - 6, more, first, size.width - size.right, height - 6, last)
    )
    return Markup("").join(parts)


def _mark(x: float, anchor: str, offset: Offset, css: str, label: str, y: int, bottom: int) -> Markup:
    return Markup(
        '<line class="{css}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}"/>'
        '<text class="mark {css}" x="{text_x:.1f}" y="{y}" text-anchor="{anchor}">{label} {offset:,}</text>'
    ).format(css=css, x=x, top=y + 4, bottom=bottom, text_x=x, y=y, anchor=anchor, label=label, offset=offset)


def _window(
    explanation: PartitionExplanation, ends: Sequence[Offset], marks: Sequence[Offset]
) -> tuple[Offset, Offset]:
    """The offsets to show: the end of the log, so far back that every difference between replicas can be seen."""
    last = max([*ends, *marks])
    reach = max(MIN_WINDOW, (last - min([*ends, *marks])) * 3)
    starts = [status.log_start for status in explanation.statuses if status.log_start is not None]
    return max(last - reach, min(starts, default=0), 0), last


def _epoch_bars(
    epochs: Sequence[tuple[Offset, int]], start: Offset, end: Offset, x: Callable[[Offset], float], y: int, css: str
) -> list[Markup]:
    """A bar in parts, one for each leader epoch."""
    bounds = [(offset, epoch) for offset, epoch in epochs if offset < end] or [(start, 0)]
    bars = []
    for n, (offset, epoch) in enumerate(bounds):
        until = min(bounds[n + 1][0] if n + 1 < len(bounds) else end, end)
        left, right = x(max(offset, start)), x(until)
        if right > left:
            bars.append(
                Markup('<rect class="bar {} tint-{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
                    css, epoch % EPOCH_TINTS, left, y, right - left, BAR
                )
            )
            if right - left > LEAST_EPOCH_LABEL:
                bars.append(
                    Markup('<text class="epoch {}" x="{:.1f}" y="{}">epoch {}</text>').format(
                        css, left + 6, y + 13, epoch
                    )
                )
    return bars


def _title(explanation: PartitionExplanation, ends: dict[int, Offset | None], high_watermark: Offset | None) -> str:
    texts = [f"broker {id} ends at {end:,}" if end is not None else f"broker {id}: unknown" for id, end in ends.items()]
    committed = "" if high_watermark is None else f"; the high watermark is {high_watermark:,}"
    return f"{count_text(len(ends), 'replica')} of {explanation.tp}: {', '.join(texts)}{committed}"

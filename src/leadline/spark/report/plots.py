"""Plots as SVG: bars, columns, lines over time, and a heat map.

The plots consist of rectangles and lines, so they need no library and no script. Each takes a few kilobytes. The style
sheet of the page sets the colours, for light and for dark (classes c1 to c6, grid, axis, limit, ...). Every mark has
its figures in a <title>, which browsers show at the pointer. A plot is drawn in one of two widths. The page shows the
one that fits and never shrinks it, so text stays legible.

Pure: figures in, text out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from leadline.spark.report import quantities

WIDE, NARROW = 480, 300  # in CSS pixels: for a desktop, and for a phone
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 36  # margins around the plot area, for labels
TITLED = 2000  # a heat map with more cells has no titles
LEAST = 1e-6  # smaller figures count as zero
CHAR = 7.0  # the width of a character, in the widest of the usual fonts
LABEL_SHARE = 0.35  # the largest share of the width for the names of bars

Text = Callable[[float], str]

STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200]
DAYS = [1, 2, 7, 14, 28, 91, 182, 365, 1826, 3652]
STEPS_MS = [1000 * step for step in [*STEPS_S, *(86_400 * days for days in DAYS)]]


# Ticks


def ticks(highest: float, most: int = 5) -> list[float]:
    """Ticks from 0 to the first one that is not below the highest figure. A step is 1, 2 or 5 times a power of ten."""
    if highest < LEAST:
        return [0.0, 1.0]
    rough = highest / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * n for n in (1, 2, 5, 10) if power * n >= rough * 0.999)
    count = math.ceil(highest / step - 1e-9)
    return [step * n for n in range(count + 1)]


def time_ticks(first: int, last: int, most: int = 6) -> list[tuple[int, str, str]]:
    """Ticks within a span of time: the moment, its label, and the date at the first tick of a day."""
    step = next((step for step in STEPS_MS if (last - first) / step <= most), STEPS_MS[-1])
    ticks: list[tuple[int, str, str]] = []
    day = ""
    for at in range(-(-first // step) * step, last + 1, step):
        moment = quantities.moment(at)
        date, clock = moment[:10], moment[11:] if step < 60_000 else moment[11:16]
        if step >= 86_400_000:
            ticks.append((at, date, ""))
        else:
            ticks.append((at, clock, date if date != day else ""))
        day = date
    return ticks


# Pieces of SVG


def _tag(name: str, content: str = "", **attributes: object) -> str:
    text = "".join(f' {key.strip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{name}{text}>{content}</{name}>" if content else f"<{name}{text}/>"


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else escape(str(value), quote=True)


def _text(x: float, y: float, text: str, kind: str = "axis", anchor: str = "middle") -> str:
    return _tag("text", escape(text), x=x, y=y, class_=kind, text_anchor=anchor)


def _titled(tag: str, title: str) -> str:
    return f"<g><title>{escape(title)}</title>{tag}</g>"


def _svg(width: int, height: float, label: str, parts: Sequence[str]) -> str:
    box, kind = f"0 0 {width} {height:.0f}", "wide" if width == WIDE else "narrow"
    return _tag("svg", "".join(parts), viewBox=box, class_=kind, role="img", aria_label=label)


def _shortened(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: max(most - 1, 1)]}…"


@dataclass(frozen=True, slots=True)
class Frame:
    """The plot area, and the positions of figures in it."""

    width: int
    height: float
    top: float  # the largest figure
    left: float = LEFT

    @property
    def right(self) -> float:
        return self.width - RIGHT

    @property
    def floor(self) -> float:
        return self.height - BOTTOM

    def y(self, value: float) -> float:
        return self.floor - (self.floor - TOP) * min(value / self.top, 1.0)

    def grid(self, marks: Sequence[float], text: Text) -> list[str]:
        parts = []
        for mark in marks:
            kind = "base" if mark == 0 else "grid"
            parts.append(_tag("line", x1=self.left, x2=self.right, y1=self.y(mark), y2=self.y(mark), class_=kind))
            parts.append(_text(self.left - 7, self.y(mark) + 3.5, text(mark), anchor="end"))
        return parts

    def _fitting(self, label: str) -> str:
        return _shortened(label, int((self.right - self.left) / CHAR))

    def limit(self, value: float, label: str) -> list[str]:
        y = self.y(value)
        return [
            _tag("line", x1=self.left, x2=self.right, y1=y, y2=y, class_="limit"),
            _text(self.right, y - 4 if y > TOP + 8 else y + 12, self._fitting(label), "limit-text", "end"),
        ]


def _time_axis(width: int, first: int, last: int, left: float, floor: float, x: Callable[[int], float]) -> list[str]:
    """Moments, with dates below them. Labels neither overlap nor reach beyond the plot."""
    parts, free_from, dates_from = [], left - RIGHT, left - RIGHT
    for at, clock, date in time_ticks(first, last, most=6 if width == WIDE else 4):
        parts.append(_tag("line", x1=x(at), x2=x(at), y1=floor, y2=floor + 4, class_="base"))
        half = len(clock) * CHAR / 2
        middle = min(max(x(at), left - RIGHT + half), width - half)
        if middle - half >= free_from:
            parts.append(_text(middle, floor + 15, clock))
            free_from = middle + half + CHAR
        half = len(date) * CHAR / 2
        middle = min(max(x(at), left - RIGHT + half), width - half)
        if date and middle - half >= dates_from:
            parts.append(_text(middle, floor + 27, date))
            dates_from = middle + half + CHAR
    return parts


# Bars


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float
    text: str  # beside the bar
    kind: str = "c1"
    title: str = ""


def bars(rows: Sequence[Bar], label: str, *, whole: float = 0, width: int = WIDE) -> str:
    """Horizontal bars with their figures. A bar of `whole` fills the width; without `whole`, the longest bar does."""
    pitch, thick = 24, 14
    letters = int(LABEL_SHARE * width / CHAR)
    left = min(max(len(row.label) for row in rows), letters) * CHAR + 12
    room = max(width - left - max(len(row.text) for row in rows) * CHAR - 14, 0)
    longest = max(whole, *(row.value for row in rows)) or 1
    parts = []
    for n, row in enumerate(rows):
        y, wide = 6 + n * pitch, max(room * row.value / longest, 1.5) if row.value else 0.0
        parts.append(_text(left - 8, y + 11, _shortened(row.label, letters), "name", "end"))
        mark = _tag("rect", x=left, y=y, width=wide, height=thick, rx=2, class_=row.kind)
        parts.append(_titled(mark, row.title or f"{row.label}: {row.text}"))
        parts.append(_text(left + wide + 7, y + 11, row.text, "figure", "start"))
    return _svg(width, 12 + len(rows) * pitch, label, parts)


# Columns


@dataclass(frozen=True, slots=True)
class Column:
    label: str
    value: float
    title: str
    kind: str = "c1"


def columns(
    rows: Sequence[Column], text: Text, label: str, *, mean: str = "", x_title: str = "", width: int = WIDE
) -> str:
    """Vertical columns. `mean` is the label of a line at the mean; empty: no line."""
    marks = ticks(max(row.value for row in rows))
    frame = Frame(width, 208, marks[-1])
    parts = frame.grid(marks, text)
    pitch = (frame.right - frame.left) / len(rows)
    wide = min(pitch * 0.78, 46)
    every = max(math.ceil(max(len(row.label) for row in rows) * CHAR * 1.6 / pitch), 1)
    for n, row in enumerate(rows):
        middle = frame.left + pitch * (n + 0.5)
        y = frame.y(row.value)
        y = min(y, frame.floor - 1.5) if row.value else y
        mark = _tag("rect", x=middle - wide / 2, y=y, width=wide, height=frame.floor - y, class_=row.kind)
        parts.append(_titled(mark, row.title))
        if n % every == 0:
            parts.append(_text(middle, frame.floor + 14, row.label))
    if mean:
        parts += frame.limit(sum(row.value for row in rows) / len(rows), mean)
    parts.append(_text((frame.left + frame.right) / 2, frame.height - 4, x_title))
    return _svg(width, frame.height, label, parts)


# Lines over time


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    points: Sequence[tuple[int, float]]  # ms since 1970, and a figure
    kind: str = "c1"
    filled: bool = False
    dashed: bool = False
    steps: bool = False  # the line is horizontal up to the next figure, not sloped


@dataclass(frozen=True, slots=True)
class Limit:
    value: float
    label: str


def lines(rows: Sequence[Line], text: Text, label: str, *, limits: Sequence[Limit] = (), width: int = WIDE) -> str:
    points = [point for row in rows for point in row.points]
    first, last = min(at for at, _ in points), max(at for at, _ in points)
    last = max(last, first + 1)
    largest = max(value for _, value in points)
    marks = ticks(max(largest, *(limit.value for limit in limits)) if limits else largest)
    frame = Frame(width, 208, marks[-1])

    def x(at: int) -> float:
        return frame.left + (frame.right - frame.left) * (at - first) / (last - first)

    parts = frame.grid(marks, text)
    parts += _time_axis(width, first, last, frame.left, frame.floor, x)
    for limit in limits:
        parts += frame.limit(limit.value, limit.label)
    for row in rows:
        parts += _line(row, [(x(at), frame.y(value)) for at, value in row.points], frame.floor)
    parts += [_titled(_spot(x(at), frame), f"{row.name} {quantities.moment(at)}: {text(value)}")
              for row in rows if not row.dashed for at, value in _spread(row.points)]  # fmt: skip
    return _svg(width, frame.height, label, parts)


def _line(row: Line, points: Sequence[tuple[float, float]], floor: float) -> list[str]:
    corners = list(points)
    if row.steps:
        corners = [corner for (x, y), (x2, _) in zip(points, [*points[1:], points[-1]], strict=True)
                   for corner in ((x, y), (x2, y))]  # fmt: skip
    path = " ".join(f"{'L' if n else 'M'}{x:.1f},{y:.1f}" for n, (x, y) in enumerate(corners))
    kind = f"line {row.kind.replace('c', 's')}" + (" dashed" if row.dashed else "")
    parts = [_tag("path", d=path, class_=kind)]
    if row.filled:
        area = f"{path} L{corners[-1][0]:.1f},{floor:.1f} L{corners[0][0]:.1f},{floor:.1f} Z"
        parts.insert(0, _tag("path", d=area, class_=f"area {row.kind}"))
    return parts


def _spot(x: float, frame: Frame) -> str:
    """An invisible rectangle of the whole height, which shows its title at the pointer."""
    return _tag("rect", x=x - 3, y=TOP, width=6, height=frame.floor - TOP, class_="spot")


def _spread(points: Sequence[tuple[int, float]], most: int = 80) -> Sequence[tuple[int, float]]:
    return points[:: math.ceil(len(points) / most)]


def legend(names: Sequence[tuple[str, str]]) -> str:
    """The legend as HTML, from the name and the class of each line."""
    entries = "".join(f'<span><i class="{kind}"></i>{escape(name)}</span>' for name, kind in names)
    return f'<p class="legend">{entries}</p>'


# A heat map


def field(
    rows: Sequence[tuple[str, Sequence[float]]],
    starts: Sequence[int],
    width_ms: int,
    text: Text,
    label: str,
    *,
    width: int = WIDE,
) -> str:
    """A heat map: a row for each partition, a cell for each slot of time. A larger figure has a stronger shade."""
    tall = min(22, max(4, 170 // len(rows)))
    left = LEFT
    first, last = starts[0], starts[-1] + width_ms
    most = max(max(values) for _, values in rows) or 1
    floor = 8 + tall * len(rows)

    def x(at: int) -> float:
        return left + (width - RIGHT - left) * (at - first) / (last - first)

    parts = []
    every = math.ceil(12 / tall)
    for n, (name, values) in enumerate(rows):
        if n % every == 0:
            parts.append(_text(left - 7, 8 + tall * n + tall / 2 + 3.5, name, anchor="end"))
        for at, value in zip(starts, values, strict=True):
            if value:
                shade = f"{0.12 + 0.88 * math.sqrt(value / most):.2f}"
                wide = max(x(at + width_ms) - x(at) - 0.4, 0.8)
                box = _tag(
                    "rect", x=x(at), y=8 + tall * n, width=wide, height=tall - 1, class_="c1", fill_opacity=shade
                )
                title = f"{name}, {quantities.moment(at)}: {text(value)}"
                parts.append(_titled(box, title) if len(rows) * len(starts) <= TITLED else box)
    parts += _time_axis(width, first, last, left, floor, x)
    return _svg(width, floor + 32, label, parts)

"""Plots: ticks where people expect them, and SVG that is well-formed whatever the figures and names."""

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.spark.report import plots, quantities
from leadline.spark.report.plots import Bar, Column, Limit, Line

NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60)
FIGURES = st.floats(0, 1e15)
TIMES = st.integers(0, 4_000_000_000_000)


@pytest.mark.parametrize(
    ("highest", "expected"),
    [(0, [0, 1]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (5.58e6, [0, 2e6, 4e6, 6e6]), (100, [0, 20, 40, 60, 80, 100])],
)
def test_ticks_are_round(highest: float, expected: list[float]) -> None:
    assert plots.ticks(highest) == pytest.approx(expected)


@given(FIGURES)
def test_ticks_reach_the_highest_and_are_few(highest: float) -> None:
    ticks = plots.ticks(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= highest * 0.999
    assert len(ticks) <= 7


@given(TIMES, st.integers(1, 3_000_000_000_000))
def test_moments_lie_within_the_span_and_are_few(first: int, span: int) -> None:
    ticks = plots.time_ticks(first, first + span)
    assert all(first <= at <= first + span for at, _, _ in ticks)
    assert len(ticks) <= 14


def test_dates_are_written_where_they_begin() -> None:
    day = 1_794_700_800_000
    assert [(clock, date) for _, clock, date in plots.time_ticks(day - 7_200_000, day + 7_200_000)] == [
        ("22:00", "2026-11-14"), ("23:00", ""), ("00:00", "2026-11-15"), ("01:00", ""), ("02:00", ""),
    ]  # fmt: skip


def well_formed(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


WIDTHS = pytest.mark.parametrize("width", [plots.WIDE, plots.NARROW])


def widest(svg: str) -> float:
    """The right edge of the rectangle that reaches farthest."""
    boxes = [box for box in well_formed(svg).iter("rect") if box.get("class") != "spot"]
    return max((float(box.get("x", 0)) + float(box.get("width", 0)) for box in boxes), default=0)


@given(st.lists(st.builds(Bar, NAMES, FIGURES, NAMES), min_size=1, max_size=20))
def test_each_row_is_a_bar(rows: list[Bar]) -> None:
    svg = plots.bars(rows, "a <label> & more")
    assert len(list(well_formed(svg).iter("rect"))) == len(rows)


@WIDTHS
def test_a_bar_of_a_share_is_as_long_as_its_share_of_the_whole(width: int) -> None:
    rows = [Bar("all", 100, "100 %"), Bar("some", 14, "14 %"), Bar("none", 0, "0 %")]
    for drawn in (rows, rows[1:]):
        svg = plots.bars(drawn, "shares", whole=100, width=width)
        lengths = [float(box.get("width", 0)) for box in well_formed(svg).iter("rect")]
        full = plots.bars([Bar("some", 100, "14 %")], "shares", width=width)
        room = float(next(well_formed(full).iter("rect")).get("width", 0))
        assert lengths[-2:] == pytest.approx([0.14 * room, 0], rel=0.05)


@given(st.lists(st.builds(Column, NAMES, FIGURES, NAMES), min_size=1, max_size=64), NAMES)
def test_each_row_is_a_column_within_the_width(rows: list[Column], mean: str) -> None:
    for width in (plots.WIDE, plots.NARROW):
        svg = plots.columns(rows, quantities.size, "bytes", mean=mean, width=width)
        assert len(list(well_formed(svg).iter("rect"))) == len(rows)
        assert widest(svg) <= width


@given(
    st.lists(st.lists(st.tuples(TIMES, FIGURES), min_size=1, max_size=30).map(sorted), min_size=1, max_size=4),
    st.lists(st.builds(Limit, FIGURES, NAMES), max_size=2),
    st.booleans(),
)
def test_each_row_is_a_line(points: list[list[tuple[int, float]]], limits: list[Limit], steps: bool) -> None:
    rows = [Line(f"<{n}>", line_points, filled=True, steps=steps) for n, line_points in enumerate(points)]
    svg = plots.lines(rows, quantities.short, "lines", limits=limits)
    assert sum("line" in (path.get("class") or "").split() for path in well_formed(svg).iter("path")) == len(rows)


@given(st.lists(st.lists(FIGURES, min_size=5, max_size=5), min_size=1, max_size=40))
def test_a_field_has_a_cell_for_each_figure_but_zero(values: list[list[float]]) -> None:
    rows = [(str(n), row) for n, row in enumerate(values)]
    for width in (plots.WIDE, plots.NARROW):
        svg = plots.field(rows, [0, 1000, 2000, 3000, 4000], 1000, quantities.short, "field", width=width)
        assert len(list(well_formed(svg).iter("rect"))) == sum(value > 0 for row in values for value in row)
        assert widest(svg) <= width


def test_written_moments_do_not_overlap() -> None:
    line = Line("x", [(0, 1.0), (9 * 86_400_000, 2.0)])
    texts = [text for text in well_formed(plots.lines([line], quantities.short, "x")).iter("text") if text.text]
    dates = sorted(float(text.get("x", 0)) for text in texts if (text.text or "").startswith("1970"))
    assert len(dates) >= 3
    assert all(right - left >= 10 * plots.CHAR for left, right in pairwise(dates))

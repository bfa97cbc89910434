"""A report as one self-contained HTML page: plots are inline SVG, and the page loads and runs nothing.

The page starts with remarks. A chapter for each topic follows: each figure has a plot, and the numbers below it. Light
or dark follows the reader's system.

Pure: figures in, text out.
"""

from functools import partial
from html import escape

from leadline.spark.report import plots, quantities
from leadline.spark.report.page_growth import SECONDS_A_DAY
from leadline.spark.report.page_parts import breakable, plot, table
from leadline.spark.report.page_style import STYLE
from leadline.spark.report.page_topic import chapter
from leadline.spark.report.plots import Bar
from leadline.spark.report.remarks import Weight, remarks
from leadline.spark.report.topic_report import Report, TopicReport

TOPICS = 16  # in the plot; the table has all topics
CHAPTERS = 100  # of the largest topics; each other topic has a line in the table
REMARKS = 10  # that are shown before the reader unfolds the others
MARKS = {Weight.TROUBLE: "trouble", Weight.WASTE: "waste", Weight.WORTH_KNOWING: "known"}


def page(report: Report, footer: str) -> str:
    """The page. `footer`: when and how it was made."""
    topics = "".join(chapter(topic, n) for n, topic in enumerate(report.topics[:CHAPTERS]))
    many = _overview(report) if len(report.topics) > 1 else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(_title(report))}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<header>
<p class="over">Leadline report</p>
<h1>{breakable(_title(report))}</h1>
<p class="where">{escape(_span(report))}</p>
</header>
{_tiles(report)}
{_remarks(report)}
{many}
{topics}
<footer>{escape(footer)}</footer>
</main>
</body>
</html>
"""


def _title(report: Report) -> str:
    if len(report.topics) == 1:
        return f"{report.topics[0].name} at {report.where}"
    return f"{quantities.counted(len(report.topics), 'topic')} at {report.where}"


def _span(report: Report) -> str:
    forecasts = [topic.forecast for topic in report.topics if topic.forecast]
    if not forecasts:
        return "The records have no timestamps."
    first, last = min(forecast.first_ms for forecast in forecasts), max(forecast.last_ms for forecast in forecasts)
    covered = quantities.length(last - first)
    return f"Records from {quantities.moment(first)} to {quantities.moment(last)} UTC: {covered}"


# The start of the page


def _tiles(report: Report) -> str:
    figures = [topic.figures for topic in report.topics]
    stored = sum(topic_figures.stored for topic_figures in figures)
    unpacked = sum(packed.unpacked for topic_figures in figures for packed in topic_figures.codecs.values())
    packed = sum(packed.stored for topic_figures in figures for packed in topic_figures.codecs.values())
    records = sum(topic_figures.records for topic_figures in figures)
    partitions = sum(len(topic_figures.parts) for topic_figures in figures)
    groups = {lag.group for topic in report.topics for lag in topic.lags}
    tiles = [
        (quantities.noun(records, "record"), quantities.short(records)),
        ("on disk", quantities.size(stored)),
        (quantities.noun(partitions, "partition"), quantities.number(partitions)),
        ("compression", f"{unpacked / packed:.2f} : 1" if packed else "none"),
        _pace(report),
        (quantities.noun(len(groups), "consumer group"), quantities.number(len(groups))),
    ]
    shown = "".join(f"<div><b>{value}</b><span>{label}</span></div>" for label, value in tiles)
    return f'<div class="tiles">{shown}</div>'


def _pace(report: Report) -> tuple[str, str]:
    forecasts = [topic.forecast for topic in report.topics if topic.forecast]
    rate = sum(forecast.rate for forecast in forecasts if not forecast.is_too_short)
    if rate:
        return "written a day", quantities.size(rate)
    return "written a second", quantities.size(sum(forecast.rate for forecast in forecasts) / SECONDS_A_DAY)


def _remarks(report: Report) -> str:
    all_remarks = remarks(report)
    if not all_remarks:
        nothing = "Nothing: the topics are balanced and compressed, and the groups have caught up."
        return f'<section class="remarks"><h2>Remarkable</h2><p>{nothing}</p></section>'
    numbers = {topic.name: n for n, topic in enumerate(report.topics[:CHAPTERS])}
    items = []
    for remark in all_remarks:
        about = f"<b>{breakable(remark.topic)}</b> " if remark.topic and len(report.topics) > 1 else ""
        text = escape(remark.text) if about else escape(remark.text[:1].upper() + remark.text[1:])
        link = f' <a href="#{remark.about}-{numbers[remark.topic]}">see</a>' if remark.topic in numbers else ""
        items.append(f'<li class="{MARKS[remark.weight]}">{about}{text}.{link}</li>')
    first, rest = "".join(items[:REMARKS]), "".join(items[REMARKS:])
    more = f"<details><summary>{len(items) - REMARKS} more</summary><ul>{rest}</ul></details>" if rest else ""
    return f'<section class="remarks"><h2>Remarkable</h2><ul>{first}</ul>{more}</section>'


def _overview(report: Report) -> str:
    rows = []
    stored = sum(topic.figures.stored for topic in report.topics)
    for n, topic in enumerate(report.topics):
        figures = topic.figures
        rows.append([
            f'<a href="#topic-{n}">{breakable(topic.name)}</a>' if n < CHAPTERS else breakable(topic.name),
            quantities.number(len(figures.parts)),
            quantities.number(figures.records),
            quantities.size(figures.stored),
            quantities.share(figures.stored, stored),
            _a_day(topic),
        ])  # fmt: skip
    heads = ["topic", "partitions", "records", "on disk", "share of bytes", "a day"]
    sizes = [(topic.name, topic.figures.stored) for topic in report.topics[:TOPICS]]
    drawn = [Bar(label, size, quantities.size(size)) for label, size in sizes]
    body = plot(partial(plots.bars, drawn, "bytes of each topic")) + table(heads, rows)
    return f'<section><h2>All topics</h2><div class="card wide">{body}</div></section>'


def _a_day(topic: TopicReport) -> str:
    forecast = topic.forecast
    return "" if forecast is None or forecast.is_too_short else quantities.size(forecast.rate)

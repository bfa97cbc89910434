"""A report in words and as a page: what is remarkable is said, and the page needs nothing but itself."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from leadline.records.build import BatchFields, build
from leadline.records.compression import Codec
from leadline.records.record import Record
from leadline.spark.report import plots
from leadline.spark.report.figures import RangeMeasure
from leadline.spark.report.forecast import TopicLimits
from leadline.spark.report.lag import Lag
from leadline.spark.report.page import page
from leadline.spark.report.page_style import STYLE
from leadline.spark.report.remarks import Weight, remarks
from leadline.spark.report.topic_report import Report, TopicReport
from leadline.spark.report.traffic import DAY_MS
from tests.support.logs import START_MS
from tests.support.report_topics import EVEN, records, topic

HOSTILE = '<script>alert("x")</script>&'
VOID = {"meta", "rect", "line", "path", "wbr"}  # that end by themselves


def remark_texts(*topics: TopicReport) -> list[str]:
    return [remark.text for remark in remarks(Report("here", list(topics), []))]


def test_of_an_even_topic_nothing_is_remarkable() -> None:
    assert remark_texts(topic("even", [records(400, EVEN), records(400, EVEN)])) == []


def test_skew_is_reported_with_the_key_that_causes_it() -> None:
    orders = topic("orders", [records(100, EVEN), records(900, [b"x", b"x", *EVEN])])
    assert "partition 1 holds 90 % of all bytes (50 % would be its share)" in remark_texts(orders)
    orders = topic("orders", [records(100, EVEN), records(900, [b"x", b"x", b"y"])])
    assert any(text.startswith("partition 1 holds 90 % of all bytes: key “x”") for text in remark_texts(orders))


def test_an_empty_partition_is_reported() -> None:
    assert "1 of 3 partitions holds no record" in remark_texts(topic("t", [records(400, EVEN), records(400, EVEN), []]))


def test_a_codec_that_would_save_much_is_named_with_what_it_saves() -> None:
    same = [record._replace(value=b"again and " * 300) for record in records(400, EVEN)]
    (text,) = remark_texts(topic("t", [same]))
    assert re.fullmatch(
        r"(zstd|gzip|lz4|snappy) would save \d\d(\.\d)? % of the disk, about 1\.\d\d? MB; no compression in use", text
    )


def test_to_save_kilobytes_is_not_remarkable() -> None:
    same = [record._replace(key=b"k", value=b"again and " * 30) for record in records(400, EVEN)]
    assert remark_texts(topic("t", [same], TopicLimits(-1, -1))) == []


def test_a_message_far_larger_than_the_others_is_reported() -> None:
    texts = remark_texts(topic("t", [[*records(400, EVEN), Record(400, START_MS, b"k", bytes(200_000))]]))
    assert re.search(r"the largest message has 200 KB, half have 10\d B or less", "\n".join(texts))


def test_small_batches_are_reported() -> None:
    assert any("linger.ms" in text for text in remark_texts(topic("t", [records(200, EVEN)], batch=1)))


def test_a_disk_that_is_soon_full_is_trouble() -> None:
    full = topic("t", [records(400, EVEN)], TopicLimits(disk_free=2000))
    (first, *_) = remarks(Report("here", [full], []))
    assert first.weight is Weight.TROUBLE
    assert first.text.startswith("at this rate the disk is full in ")


def test_records_without_a_key_are_trouble_for_a_compacted_topic() -> None:
    compacted = topic("t", [records(400, [*EVEN[:399], None])], TopicLimits(cleanup_policy="compact"))
    assert "1 record has no key, and the topic is compacted" in remark_texts(compacted)


@pytest.mark.parametrize(
    ("behind", "trend"),
    [([10, 20, 400, 400], "is 400 records behind and falls further behind"), ([5, 3, 2, 0], None),
     ([700, 500, 400, 390], "is 390 records behind")],
)  # fmt: skip
def test_a_lagging_group_is_reported_with_its_trend(behind: list[int], trend: str | None) -> None:
    times = START_MS + np.arange(4) * DAY_MS
    lag = Lag("billing", times, np.array(behind), {0: (0, behind[-1])})
    texts = [text for text in remark_texts(topic("t", [records(400, EVEN)], lags=[lag])) if "billing" in text]
    assert texts == ([f"group billing {trend}"] if trend else [])


def test_what_could_not_be_read_comes_first() -> None:
    all_remarks = remarks(Report("here", [topic("t", [records(400, EVEN), []])], ["t-0: damaged"]))
    assert (all_remarks[0].weight, all_remarks[0].text) == (
        Weight.TROUBLE,
        "some records could not be read: t-0: damaged",
    )


# The page


class Outline(HTMLParser):
    """Checks that what is opened is closed, in order, and gathers ids and references."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif name in ("href", "src", "xlink:href", "action", "data"):
                self.references.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in VOID
        self.handle_starttag(tag, attrs)


def whole_page() -> tuple[str, Report]:
    lag = Lag(HOSTILE, START_MS + np.arange(4) * DAY_MS, np.array([1, 500, 2, 300]), {0: (0, 300)})
    odd: list[bytes | None] = [HOSTILE.encode(), b"\xff\x00", None]
    report = Report(
        HOSTILE,
        [
            topic(
                "orders",
                [records(900, odd), records(50, EVEN), []],
                TopicLimits(7 * DAY_MS, 10**6, disk_free=10**5),
                [lag],
            ),
            topic(HOSTILE, [records(10, EVEN, days=1)]),
            topic("empty", [[]]),
            topic("short", [[Record(0, START_MS, None, None)]]),
            topic("untimed", [[Record(0, -1, b"k", b"v")]]),
        ],
        [HOSTILE],
    )
    return page(report, HOSTILE), report


def test_the_page_is_well_formed_and_escapes_what_others_wrote() -> None:
    text, _ = whole_page()
    outline = Outline()
    outline.feed(text)
    assert outline.open == []
    assert "script" not in outline.tags
    assert len(set(outline.ids)) == len(outline.ids)


def test_the_page_refers_to_nothing_outside() -> None:
    text, _ = whole_page()
    outline = Outline()
    outline.feed(text)
    assert outline.references
    assert all(reference.removeprefix("#") in outline.ids for reference in outline.references)
    assert not re.search(r"https?:|//|url\(|@import", text.replace(HOSTILE, ""))


class Tables(HTMLParser):
    """The heads of each table, and all text."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[list[str]] = []
        self.text = ""
        self._in: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = [*self._in, tag] if tag not in VOID else self._in
        if tag == "thead":
            self.heads.append([])
        elif tag == "th":
            self.heads[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in.pop()
        self.text += " "

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if "style" in self._in:
            return
        self.text += data
        if self._in and self._in[-1] == "th":
            self.heads[-1][-1] += data


def test_no_two_columns_of_a_table_have_the_same_name() -> None:
    tables = Tables()
    tables.feed(whole_page()[0])
    named = [[head for head in heads if head] for heads in tables.heads]
    assert len(named) > 10
    assert [heads for heads in named if len(set(heads)) != len(heads)] == []


def test_one_is_no_plural_on_the_page() -> None:
    tables = Tables()
    tables.feed(whole_page()[0])
    assert "1 record in 1 batch, " in tables.text
    nouns = "records|batches|partitions|topics|groups|keys|messages"
    assert re.findall(rf"(?<![\d.,])1 (?:different )?(?:{nouns})\b(?!/)", tables.text) == []


def test_the_figures_of_a_single_record_are_singular() -> None:
    text = page(
        Report(
            "x", [topic("t", [records(1, EVEN)], lags=[Lag("g", np.array([START_MS]), np.array([0]), {0: (1, 1)})])], []
        ),
        "",
    )
    assert re.findall(r"<b>1</b><span>([a-z ]+)</span>", text) == ["record", "partition", "consumer group"]


def test_a_slot_that_the_log_does_not_cover_is_not_the_quietest() -> None:
    """An hour of a record a second, in slots of 15 s; the last slot has begun a second ago."""
    second = [Record(n, START_MS // 60_000 * 60_000 + n * 1000, b"k", b"v") for n in range(3601)]
    text = page(Report("x", [topic("t", [second])], []), "")
    assert "<td>quietest slot</td><td>1</td>" in text
    assert "<td>latest whole slot</td><td>1</td>" in text


# On a phone


def declared(selector: str, name: str) -> float:
    """A length in px that the style sheet gives."""
    (value,) = re.findall(rf"^{re.escape(selector)} {{[^}}]*?\b{name}: ([\d.]+)px", STYLE, re.MULTILINE)
    return float(value)


def test_the_text_of_a_plot_is_never_smaller_than_11_pixels() -> None:
    assert declared("svg text", "font-size") >= 11
    assert declared("svg.wide", "min-width") == plots.WIDE  # so that no plot is shrunk
    assert declared("svg.narrow", "min-width") == plots.NARROW
    assert f"@container (min-width: {plots.WIDE}px)" in STYLE
    around = 2 * (12 + 14 + 1)  # the padding of the page and of a card, and its border, on a phone
    assert plots.NARROW + around <= 360


def test_nothing_that_is_written_in_a_plot_lies_beyond_it() -> None:
    text, _ = whole_page()
    drawn = re.findall(r"<svg .*?</svg>", text)
    assert len(drawn) > 20
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        width = float(root.get("viewBox", "").split()[2])
        for written in root.iter("text"):
            long, at = len(written.text or "") * plots.CHAR, float(written.get("x", 0))
            start = {"start": at, "middle": at - long / 2, "end": at - long}[written.get("text-anchor", "")]
            assert -plots.CHAR <= start <= start + long <= width + plots.CHAR, written.text


def test_a_table_that_is_too_wide_scrolls_and_its_names_are_not_broken_into_letters() -> None:
    assert re.search(r"^\.numbers {[^}]*overflow: auto", STYLE, re.MULTILINE)
    (names,) = re.findall(r"^th:first-child, td:first-child {([^}]*)}", STYLE, re.MULTILINE)
    assert re.search(r"min-width: [5-9]em", names)


def test_keys_of_which_none_is_frequent_are_reported() -> None:
    many: list[bytes | None] = [b"%d" % n for n in range(700)]
    text = page(Report("x", [topic("t", [records(700, many, size=1)], batch=700)], []), "")
    assert "700 different keys, and none of them is frequent." in text


def test_every_topic_has_its_chapter_with_its_numbers() -> None:
    text, report = whole_page()
    assert [f'id="topic-{n}"' in text for n in range(len(report.topics))] == [True] * 5
    assert "950 records in " in text
    assert text.count("<h3>Consumer lag</h3>") == 4  # of all but the empty one


def test_the_page_has_the_ratio_of_each_codec() -> None:
    figures = RangeMeasure(0, 0, 1000)
    same = [record._replace(value=b"again" * 100) for record in records(100, EVEN)]
    figures.add(bytes(build(same, BatchFields(codec=Codec.GZIP))))
    packed = figures.figures.codecs[Codec.GZIP]
    text = page(Report("x", [TopicReport("t", figures.figures, TopicLimits(), None, [])], []), "")
    assert f"<td>gzip</td><td>1</td><td>100</td><td>{packed.stored / 1000:.2f} KB</td>" in text

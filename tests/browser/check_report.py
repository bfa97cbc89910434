"""A report in Chromium, on a phone and on a desktop: it fits, and everything on it can be read.

`make browser-test` runs it. LEADLINE_SCREENSHOTS names a directory for pictures.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leadline.records.record import Record
from leadline.spark.report.forecast import TopicLimits
from leadline.spark.report.lag import Lag
from leadline.spark.report.page import page as report_page
from leadline.spark.report.topic_report import Report
from leadline.spark.report.traffic import DAY_MS
from tests.browser.chromium import window
from tests.support.logs import START_MS
from tests.support.report_topics import EVEN, records, topic

WIDTHS = [360, 390, 1200]  # two phones, a desktop
LEAST_TEXT_PX = 11
UNBROKEN_LETTERS = 12  # a word of so many is never broken
LONG = "payments.production.eu-central-1.orders-with-a-long-name"

# What reaches beyond the page. What scrolls in its own box does not.
BEYOND = """() => [...document.querySelectorAll("body *")].filter(it => {
  if (it.closest(".numbers table, .plot svg")) return false;
  const box = it.getBoundingClientRect();
  return box.width > 0 && (box.right > window.innerWidth + 0.5 || box.left < -0.5);
}).map(it => it.outerHTML.slice(0, 120))"""

# Texts with the size at which they are shown. A plot may be scaled.
SMALL = """least => [...document.querySelectorAll("body *")].filter(it => {
  const own = [...it.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  if (!own || it.closest("title") || it.getBoundingClientRect().width === 0) return false;
  const svg = it.closest("svg");
  const scale = svg ? svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : 1;
  return parseFloat(getComputedStyle(it).fontSize) * scale < least - 0.01;
}).map(it => it.outerHTML.slice(0, 120))"""

# Names, in titles and in the first column of a table, with a line break inside of a word or a number that would fit.
BROKEN = """letters => [...document.querySelectorAll("h1, h2, td:first-child, th:first-child")].flatMap(it => {
  const texts = document.createTreeWalker(it, NodeFilter.SHOW_TEXT), range = document.createRange();
  const broken = [];
  for (let node = texts.nextNode(); node; node = texts.nextNode())
    for (const word of node.data.matchAll(/[A-Za-z0-9]+/g)) {
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
      if (lines > 1 && word[0].length <= letters) broken.push(word[0]);
    }
  return broken;
})"""

# Texts of plots that reach beyond their plot, where they are cut off.
OUTSIDE = """() => [...document.querySelectorAll("svg text")].filter(it => {
  const box = it.getBoundingClientRect(), svg = it.closest("svg").getBoundingClientRect();
  return box.width > 0 && (box.left < svg.left - 0.5 || box.right > svg.right + 0.5);
}).map(it => it.textContent)"""

# Tables and plots that hide a part of themselves without a way to scroll there.
CUT_OFF = """() => [...document.querySelectorAll(".numbers, .plot, .card")].filter(it =>
  it.scrollWidth > it.clientWidth + 1 && !["auto", "scroll"].includes(getComputedStyle(it).overflowX)
).map(it => it.outerHTML.slice(0, 120))"""


def report() -> Report:
    days = START_MS + np.arange(8) * DAY_MS
    lags = [
        Lag("billing", days, np.array([0, 4, 80, 200, 150, 300, 320, 400]), {0: (0, 300), 1: (3, 100)}),
        Lag("a-consumer-group-with-quite-a-long-name", days, np.array([9, 8, 7, 6, 5, 4, 3, 0]), {0: (0, 0)}),
    ]
    skewed: list[bytes | None] = [b"customer-000000000001", b"customer-000000000001", *EVEN[:5], None]
    limits = TopicLimits(7 * DAY_MS, 10**6, disk_free=10**5, disk_total=10**9)
    again = [record._replace(value=b"again and " * 300) for record in records(400, EVEN)]
    return Report(
        "broker-1.kafka.internal.example:9092",
        [
            topic("orders", [records(900, skewed), records(50, EVEN), records(300, EVEN), []], limits, lags),
            topic(LONG, [again]),
            topic("many", [records(40, EVEN) for _ in range(24)]),
            topic("short", [[Record(0, START_MS, None, None)]]),
            topic("empty", [[]]),
        ],
        ["orders-3: a segment could not be read"],
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(report_page(report(), "made by a test"))
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_fits_its_window_and_can_be_read(browser: Any, address: str, scheme: str, width: int) -> None:
    with window(browser, scheme, width) as page:
        page.goto(address)
        if folder := os.environ.get("LEADLINE_SCREENSHOTS"):
            page.screenshot(path=Path(folder) / f"report-{scheme}-{width}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(BEYOND) == []
        assert page.evaluate(SMALL, LEAST_TEXT_PX) == []
        assert page.evaluate(BROKEN, UNBROKEN_LETTERS) == []
        assert page.evaluate(OUTSIDE) == []
        assert page.evaluate(CUT_OFF) == []


def test_a_report_says_something(browser: Any, address: str) -> None:
    with window(browser) as page:
        page.goto(address)
        assert page.locator("article.card").count() > 15
        assert page.locator("svg:visible").count() > 15
        assert page.locator(".remarks li").count() > 3

"""The parts of the cards of a report, as HTML.

Pure: text in, text out.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

from leadline.spark.report import plots


def breakable(text: str) -> str:
    """A name as HTML, which may be broken after its punctuation."""
    return re.sub(r"(?<=[.:/_-])(?=\w)", "<wbr>", escape(text))


def card(about: str, n: int, title: str, body: str) -> str:
    return f'<article class="card" id="{about}-{n}"><h3>{title}</h3>{body}</article>'


def lead(text: str) -> str:
    return f'<p class="lead">{escape(text)}</p>'


def note(text: str) -> str:
    return f'<p class="note">{escape(text)}</p>'


def plot(draw: Callable[..., str]) -> str:
    """Drawn twice: for wide cards, and for a phone. The style sheet shows the one that fits."""
    return f'<div class="plot">{draw(width=plots.WIDE)}{draw(width=plots.NARROW)}</div>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column is a name, all others are numbers. Cells are HTML already."""
    head = "".join(f"<th>{name}</th>" for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="numbers"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

"""What the views of the console share: the cluster, the templates, and how a page or an error is answered."""

import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import jinja2
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from leadline import __version__
from leadline.admin.errors import Failure
from leadline.admin.formatting import age_text, count_text, ids_text, moment_text, size_text
from leadline.console import charts
from leadline.console.lag_history import LagHistory
from leadline.console.protection import AccessRules
from leadline.console.record_values import Decoder
from leadline.console.session_pool import SessionPool

MAX_NOTES = 100

Form = Mapping[str, str]


class NotInCluster(Failure):
    """The page is about a thing that the cluster does not have."""


class BadRequest(Failure):
    """The form or the address is invalid; the message has the reason."""


class TableLocation(NamedTuple):
    """A table that a pipeline job writes."""

    kind: str  # delta or iceberg
    uri: str


class Notes:
    """Sentences for the page after a change. A key in the address names a sentence, so a link cannot invent one."""

    def __init__(self) -> None:
        self._texts: OrderedDict[str, str] = OrderedDict()

    def add(self, text: str) -> str:
        key = secrets.token_urlsafe(9)
        self._texts[key] = text
        while len(self._texts) > MAX_NOTES:
            self._texts.popitem(last=False)
        return key

    def get(self, key: str) -> str:
        return self._texts.get(key, "")


@dataclass
class Console:
    pool: SessionPool
    rules: AccessRules
    servers: str
    decoders: dict[str, Decoder] = field(default_factory=dict)
    tables: Sequence[TableLocation] = ()
    lag: LagHistory = field(default_factory=LagHistory)
    notes: Notes = field(default_factory=Notes)
    templates: jinja2.Environment = field(default_factory=lambda: _environment())

    def page(self, request: Request, template: str, title: str, status: int = 200, **values: object) -> Response:
        html = self.templates.get_template(template).render(
            title=title,
            path=request.url.path,
            servers=self.servers,
            allow_changes=self.rules.allow_changes,
            token=getattr(request.state, "token", ""),
            note=self.notes.get(request.query_params.get("note", "")),
            now_ms=now_ms(),
            **values,
        )
        return HTMLResponse(html, status)

    def done(self, path: str, text: str, **query: object) -> Response:
        """After a change: the page of the thing that was changed, with a sentence about it."""
        return RedirectResponse(link(path, **query, note=self.notes.add(text)), 303)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def link(path: str, **query: object) -> str:
    """The address of a page. Parameters without a value are left out."""
    pairs = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(pairs)}" if pairs else path


async def form_of(request: Request) -> Form:
    body = (await request.body()).decode(errors="replace")
    return {name: values[0] for name, values in parse_qs(body, keep_blank_values=True, max_num_fields=200).items()}


def number(text: str, what: str, least: int = 0) -> int:
    """A whole number that a person typed."""
    cleaned = text.replace(",", "").strip()
    if not cleaned.removeprefix("-").isdecimal() or len(cleaned) > 20 or int(cleaned) < least:
        raise BadRequest(f"{what} must be a number of at least {least}, not {text!r}")
    return int(cleaned)


def optional_number(text: str, what: str, least: int = 0) -> int | None:
    return number(text, what, least) if text.strip() else None


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    filters: dict[str, Callable[..., object]] = {
        "size": size_text,
        "count": count_text,
        "ids": ids_text,
        "age": age_text,
        "moment": _time_element,
        "number": lambda value: "–" if value is None else f"{value:,}",
        "segment": lambda text: quote(str(text), safe=""),
        "pretty": lambda value: json.dumps(value, indent=2),
    }
    environment.filters.update(filters)
    environment.globals.update(
        link=link,
        version=__version__,
        share_bar=charts.share_bar,
        lag_chart=charts.lag_chart,
        replication_picture=charts.replication_picture,
    )
    return environment


def _time_element(at_ms: int | None) -> Markup:
    if at_ms is None:
        return Markup("–")
    text = moment_text(at_ms)
    return Markup('<time datetime="{}">{}</time>').format(text, text.replace("T", " "))

"""A browser without pictures: requests to an ASGI application, with a cookie, and the pages as elements."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

VOID = frozenset("br col hr img input link meta option rect line path polyline polygon".split())


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    parents: tuple["Element", ...] = ()
    text: str = ""

    def __getitem__(self, name: str) -> str:
        return self.attributes.get(name, "")

    def is_in(self, tag: str) -> bool:
        return any(parent.tag == tag for parent in self.parents)

    @property
    def classes(self) -> list[str]:
        return self["class"].split()


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, tuple(self._open))
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}, tuple(self._open)))

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.text += data

    def close(self) -> None:
        super().close()
        assert not self._open, f"never closed: {[element.tag for element in self._open]}"


@dataclass
class WebPage:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def html(self) -> str:
        return self.body.decode()

    @property
    def elements(self) -> list[Element]:
        parser = _Parser()
        parser.feed(self.html)
        parser.close()
        return parser.elements

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    @property
    def text(self) -> str:
        (body,) = self.all("body")
        return " ".join(body.text.split())

    @property
    def token(self) -> str:
        return next(element["value"] for element in self.all("input") if element["name"] == "token")


@dataclass
class WebClient:
    application: Any
    runner: asyncio.Runner
    host: str = "localhost:8080"
    cookies: dict[str, str] = field(default_factory=dict)

    def get(self, address: str, headers: Mapping[str, str] | None = None) -> WebPage:
        return self._request("GET", address, b"", dict(headers or {}))

    def post(self, address: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None) -> WebPage:
        kind = {"content-type": "application/x-www-form-urlencoded"}
        return self._request("POST", address, urlencode(form).encode(), kind | dict(headers or {}))

    def change(self, page: str, action: str, /, **form: str) -> WebPage:
        """Open a page, and send a form with its token. The page after it."""
        answer = self.post(action, {"token": self.get(page).token, **form})
        return self.get(answer.headers["location"]) if answer.status == 303 else answer

    def _request(self, method: str, address: str, body: bytes, headers: dict[str, str]) -> WebPage:
        path, _, query = address.partition("?")
        headers = {"host": self.host, "content-length": str(len(body))} | headers
        if self.cookies:
            headers["cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8080),
        }
        messages: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        self.runner.run(self.application(scope, receive, send))
        start, *rest = messages
        answer = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        if "set-cookie" in answer:
            name, _, value = answer["set-cookie"].partition(";")[0].partition("=")
            self.cookies[name] = value
        return WebPage(start["status"], answer, b"".join(message.get("body", b"") for message in rest))


@contextmanager
def web_client(application: Any) -> Iterator[WebClient]:
    with asyncio.Runner() as runner:
        yield WebClient(application, runner)

"""What the console accepts from a browser."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from leadline.console import protection
from leadline.console.protection import MAX_BODY_BYTES, AccessRules, ChangeTokens, Protection, is_own_host
from tests.support.web_client import WebClient, web_client


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the token, and with what it received."""
    request = Request(scope, receive)
    body = (await request.body()).decode() if request.method == "POST" else request.state.token
    await PlainTextResponse(body)(scope, receive, send)


@contextmanager
def client(rules: AccessRules) -> Iterator[WebClient]:
    with web_client(Protection(application, rules)) as opened:
        yield opened


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("localhost:8080", True),
        ("LOCALHOST.:8080", True),
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("192.168.1.7", True),
        ("kafka.example.com:8443", True),
        ("evil.example:8080", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        (":8080", False),
    ],
)
def test_a_host_is_an_address_localhost_or_a_configured_name(host: str, is_own: bool) -> None:
    assert is_own_host(host, ["Kafka.example.com"]) is is_own


def test_a_page_of_another_host_is_refused() -> None:
    with client(AccessRules()) as browser:
        assert browser.get("/").status == 200
        browser.host = "evil.example"
        page = browser.get("/")
        assert (page.status, "--host-name" in page.html) == (421, True)


def test_without_allow_changes_the_server_refuses_each_post() -> None:
    with client(AccessRules()) as browser:
        page = browser.post("/", {"token": browser.get("/").html})
        assert (page.status, "read-only" in page.html) == (403, True)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8080"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
def test_a_change_comes_from_a_page_of_the_console(headers: dict[str, str], status: int) -> None:
    with client(AccessRules(allow_changes=True)) as browser:
        assert browser.post("/", {}, headers).status == status


def test_other_methods_are_refused() -> None:
    with client(AccessRules(allow_changes=True)) as browser:
        assert browser._request("DELETE", "/", b"", {}).status == 405


def test_a_token_belongs_to_one_browser_and_one_process() -> None:
    tokens = ChangeTokens()
    assert tokens.is_valid(tokens.of("cookie"), "cookie")
    assert not tokens.is_valid(tokens.of("cookie"), "another")
    assert not ChangeTokens().is_valid(tokens.of("cookie"), "cookie")
    assert not tokens.is_valid("", "cookie")


def test_a_browser_keeps_its_cookie_and_so_its_token() -> None:
    with client(AccessRules()) as browser:
        first = browser.get("/")
        assert "HttpOnly; SameSite=Strict" in first.headers["set-cookie"]
        second = browser.get("/")
        assert "set-cookie" not in second.headers
        assert second.html == first.html
        browser.cookies.clear()
        assert browser.get("/").html != first.html


def test_a_cookie_over_tls_is_sent_over_tls_only() -> None:
    with client(AccessRules(is_tls=True)) as browser:
        assert browser.get("/").headers["set-cookie"].endswith("; Secure")


def test_a_login_needs_the_user_and_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protection, "WRONG_LOGIN_S", 0)
    with client(AccessRules(user="anna", password="päss:word")) as browser:
        refused = browser.get("/")
        assert (refused.status, refused.headers["www-authenticate"][:5]) == (401, "Basic")
        for login, status in (
            ("anna:päss:word", 200),
            ("anna:", 401),
            ("ben:päss:word", 401),
            (":", 401),
            ("anna:päss:wor", 401),
        ):
            encoded = base64.b64encode(login.encode()).decode()
            assert browser.get("/", {"authorization": f"Basic {encoded}"}).status == status, login
        for header in ("Basic ***", "Basic /w==", "Bearer x", "Basic"):
            assert browser.get("/", {"authorization": header}).status == 401, header


def test_every_answer_forbids_foreign_content() -> None:
    with client(AccessRules()) as browser:
        for page in (browser.get("/"), browser.post("/", {}), browser.get("/", {"host": "evil.example"})):
            policy = page.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
            assert "unsafe" not in policy
            assert (page.headers["x-frame-options"], page.headers["cache-control"]) == ("DENY", "no-store")


def test_a_body_is_bounded() -> None:
    with client(AccessRules(allow_changes=True)) as browser:
        assert browser.post("/", {}, {"content-length": str(MAX_BODY_BYTES + 1)}).status == 413

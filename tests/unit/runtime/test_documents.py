"""Documents of https URLs: only of a server that is trusted, and never without end."""

import asyncio
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace

import pytest

from leadline.runtime import documents
from leadline.runtime.documents import DocumentError, Form, fetch_document
from tests.support.certificates import client_context
from tests.support.jwks_server import jwks_server


def fetch(url: str, context: ssl.SSLContext, form: Form | None = None) -> bytes:
    async def main() -> bytes:
        async with asyncio.timeout(60):
            return await fetch_document(url, context, form)

    return asyncio.run(main())


def test_a_document_is_fetched_from_a_trusted_server(tmp_path: Path) -> None:
    with jwks_server(tmp_path) as server:
        server.document = b"x" * 200_000
        assert fetch(f"{server.url}?a=b", client_context(tmp_path)) == server.document
        assert server.requests == ["/keys?a=b"]


def test_a_form_is_posted_with_its_headers(tmp_path: Path) -> None:
    form = Form(b"grant_type=client_credentials", {"Authorization": "Basic secret"})
    with jwks_server(tmp_path) as server:
        server.document = b"{}"
        assert fetch(server.url, client_context(tmp_path), form) == b"{}"
        ((body, headers),) = server.forms
        assert body == form.body
        assert headers["Authorization"] == "Basic secret"
        assert headers["Content-Type"] == "application/x-www-form-urlencoded"
        server.status = 401
        with pytest.raises(DocumentError) as refused:
            fetch(server.url, client_context(tmp_path), form)
        assert "secret" not in str(refused.value)


def test_a_server_that_does_not_answer_is_given_up_after_the_time_of_the_form(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        form = Form(b"", {}, connect_s=0.05)
        with pytest.raises(DocumentError, match="timed out"):
            fetch(f"https://127.0.0.1:{silent.getsockname()[1]}/", client_context(tmp_path), form)


def test_nothing_is_fetched_from_a_server_that_is_not_trusted(tmp_path: Path) -> None:
    with jwks_server(tmp_path) as server:
        with pytest.raises(DocumentError, match="certificate verify failed"):
            fetch(server.url, ssl.create_default_context())
        assert server.requests == []


@pytest.mark.parametrize("status", [301, 404, 500])
def test_errors_and_redirections_are_no_documents(tmp_path: Path, status: int) -> None:
    with jwks_server(tmp_path) as server:
        server.status, server.headers = status, {"Location": f"{server.url}/elsewhere"}
        with pytest.raises(DocumentError, match=f"the server answers {status}"):
            fetch(server.url, client_context(tmp_path))
        assert server.requests == ["/keys"]


def test_a_document_without_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with jwks_server(tmp_path) as server:
        server.document = b"x" * 200_000
        monkeypatch.setattr(documents, "MAX_BYTES", 199_999)
        with pytest.raises(DocumentError, match="larger than 199999 bytes"):
            fetch(server.url, client_context(tmp_path))
        monkeypatch.undo()
        monkeypatch.setattr(documents, "TIMEOUT_S", 60.0)
        monkeypatch.setattr(documents, "time", SimpleNamespace(monotonic=iter(range(0, 10_000, 61)).__next__))
        with pytest.raises(DocumentError, match="not complete after 60 s"):
            fetch(server.url, client_context(tmp_path))


@pytest.mark.parametrize("url", ["http://localhost/x", "file:///etc/passwd", "https:///x", "https://localhost:99999/"])
def test_other_urls_are_no_documents(url: str) -> None:
    with pytest.raises(DocumentError):
        fetch(url, ssl.create_default_context())


def test_whoever_gives_up_waits_for_nothing(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        task = asyncio.create_task(fetch_document(url, client_context(tmp_path)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with jwks_server(tmp_path) as server:
        asyncio.run(main(server.url))

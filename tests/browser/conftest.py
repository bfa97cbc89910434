"""One browser for all tests of a file."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs Playwright: run `make browser-test`")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    with playwright.sync_playwright() as library:
        opened = library.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()

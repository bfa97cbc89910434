"""Chromium, driven by Playwright."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 120
PATIENCE_MS = 120_000


@contextmanager
def window(browser: Any, scheme: str = "light", width: int = 1280, scripts: bool = True) -> Iterator[Any]:
    """A page. Errors of its scripts and refusals of the policy fail the test."""
    context = browser.new_context(
        color_scheme=scheme, viewport={"width": width, "height": 800}, java_script_enabled=scripts
    )
    page, errors = context.new_page(), list[str]()
    page.set_default_timeout(PATIENCE_MS)
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    try:
        yield page
    finally:
        context.close()
    assert errors == []

"""Crash tests write thousands of small files: in memory, if there is a place for that."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import in_memory


@pytest.fixture
def scratch() -> Iterator[Path]:
    yield from in_memory.directory()

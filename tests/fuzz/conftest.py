"""One broker in the process for all tests of a module."""

import asyncio
from collections.abc import Iterator

import pytest

from leadline.broker.broker import Broker
from tests.support import in_memory
from tests.support.fuzzed_broker import in_process


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    event_loop = asyncio.new_event_loop()
    yield event_loop
    event_loop.close()


@pytest.fixture(scope="module")
def broker(loop: asyncio.AbstractEventLoop) -> Iterator[Broker]:
    for directory in in_memory.directory():
        context = in_process(directory / "data")
        yield loop.run_until_complete(context.__aenter__())
        loop.run_until_complete(context.__aexit__(None, None, None))

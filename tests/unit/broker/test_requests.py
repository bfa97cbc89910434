"""From a frame to its reply: a request that holds the loop is logged."""

import gc
import logging
from types import SimpleNamespace
from typing import cast

import pytest

from leadline.api.context import Context, Services
from leadline.broker.connection import LARGE_BYTES, Connection
from leadline.broker.requests import Requests, serve_without_collections
from leadline.runtime.ports import SystemTime
from leadline.security.client_quotas import ClientQuotas


@pytest.mark.parametrize(("seconds", "lines"), [(0.049, 0), (0.051, 1), (3.0, 1)])
def test_a_request_that_takes_longer_than_50_ms_of_the_loop_is_logged(
    seconds: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    requests = Requests(cast(Services, SimpleNamespace(quotas=ClientQuotas())), SystemTime.monotonic_s)
    requests._note(seconds, "Metadata", 1, cast(Connection, "127.0.0.1:5"))
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [f"Metadata v1 from 127.0.0.1:5 took {seconds * 1000:.0f} ms of the loop"][:lines]
    assert requests.slowest_turn == seconds


@pytest.mark.parametrize(("size", "collects"), [(LARGE_BYTES - 1, True), (LARGE_BYTES, False)])
@pytest.mark.parametrize("fails", [False, True])
def test_the_garbage_collector_rests_while_a_large_request_is_decoded(size: int, collects: bool, fails: bool) -> None:
    enabled: list[bool] = []

    def serve(*_: object) -> None:
        enabled.append(gc.isenabled())
        if fails:
            raise ValueError

    assert gc.isenabled()
    try:
        serve_without_collections(serve, memoryview(bytes(size)), 0, cast(Context, None))
    except ValueError:
        assert fails
    assert enabled == [collects]
    assert gc.isenabled()

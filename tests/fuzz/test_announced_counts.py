"""Every array of every request in every version: a count that is not believed costs neither memory nor time.

CVE-2026-111108: arrays were allocated by the count that a request announced.
"""

import asyncio
import time
import tracemalloc
from collections.abc import Iterator
from struct import pack

import pytest

from leadline.api import TABLE
from leadline.broker.broker import Broker
from leadline.wire.apis import APIS
from leadline.wire.classes import Message
from leadline.wire.codec import decode
from leadline.wire.primitives import MalformedRequest
from tests.support.announced_counts import ArrayPlace, arrays_of
from tests.support.fuzzed_broker import served

REST_BYTES = 8192
MOST_TIMES = 40  # of the bytes that were sent
ALWAYS_BYTES = 200_000  # of any request: what its handler looks at
SLOWEST_S = 20.0  # on a machine that has other things to do
MOST_COUNT = 2**31 - 1


def bodies(place: ArrayPlace) -> Iterator[bytes]:
    """Announced are as many elements as there are bytes, and as many as can be announced."""
    rests = {bytes(REST_BYTES), b"\1" * REST_BYTES, place.element * (REST_BYTES // len(place.element))}
    for rest in rests:
        yield place.body(len(rest), rest)
        yield place.body(MOST_COUNT - 1, rest)


def head(key: int, version: int) -> bytes:
    api = APIS[key]
    client_id = b"" if api.request_header_version(version) == 0 else b"\xff\xff"
    return pack(">hhi", key, version, 7) + client_id + (b"\0" if version in api.flexible else b"")


def place_of_fault(kind: type[Message], version: int, body: bytes) -> int:
    """The byte at which it is refused; its end if it is not."""
    try:
        decode(kind, body, version)
    except MalformedRequest as error:
        return error.position
    return len(body)


@pytest.mark.parametrize("key", TABLE, ids=lambda key: APIS[key].name)
def test_a_request_takes_memory_for_what_it_sends_and_not_for_what_it_announces(
    key: int, broker: Broker, loop: asyncio.AbstractEventLoop
) -> None:
    for version in TABLE[key].versions:
        for place in arrays_of(APIS[key].request.__name__, version):
            for body in bodies(place):
                fault_at = place_of_fault(APIS[key].request, version, body)  # this compiles the decoder as well
                assert fault_at >= len(place.front), f"{place} v{version}: something before the count is wrong"
                began = time.monotonic()
                tracemalloc.start()
                loop.run_until_complete(served(broker, head(key, version) + body))
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
                assert peak < ALWAYS_BYTES + MOST_TIMES * len(body), f"{place} v{version}: {peak} bytes"
                assert time.monotonic() - began < SLOWEST_S, f"{place} v{version}"


def test_many_requests_have_arrays() -> None:
    places = [place for api in TABLE for version in TABLE[api].versions for place in places_of(api, version)]
    assert len(places) > 400


def places_of(key: int, version: int) -> list[ArrayPlace]:
    return list(arrays_of(APIS[key].request.__name__, version))

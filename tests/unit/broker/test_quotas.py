"""The quotas of a broker: windows by its settings, and measures that are dropped when their clients are gone."""

import asyncio
from contextlib import AsyncExitStack
from typing import cast

import pytest

from leadline.broker import quotas as broker_quotas
from leadline.broker.quotas import client_quotas, connection_rates, start_dropping_idle
from leadline.config.broker import broker_settings
from leadline.coordination.tree import Tree
from leadline.security.client_quotas import IDLE_MS, ClientQuotas, QuotaEntity, QuotaKind
from leadline.security.connection_rates import ConnectionRates
from leadline.security.quota_store import QuotaStore
from tests.support.logs import ManualClock
from tests.support.memory_network import MemoryNetwork
from tests.support.waiting import eventually


def test_the_windows_are_those_of_the_settings() -> None:
    settings = broker_settings({"quota.window.num": "5", "quota.window.size.seconds": "2"})
    quotas, rates = client_quotas(settings.broker), connection_rates(settings)
    assert (quotas.samples, quotas.sample_ms, rates._window) == (5, 2000, (5, 2000))


def test_measures_of_clients_that_are_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(broker_quotas, "DROPPING_MS", 1)
        clock, quotas, rates = ManualClock(), ClientQuotas(), ConnectionRates(["L"], "L")
        quotas.put(QuotaEntity("u"), {QuotaKind.PRODUCER_BYTE_RATE: 1})
        measure = quotas.measure(QuotaKind.PRODUCER_BYTE_RATE, "u", "c", clock.now_ms())
        assert measure is not None
        measure.record(5, clock.now_ms())
        rates.default_address_limit = 5
        rates.address_delay_ms("L", "127.0.0.1", int(clock.monotonic_s() * 1000))
        async with AsyncExitStack() as stack:
            start_dropping_idle(QuotaStore(cast(Tree, None), quotas, rates, clock, MemoryNetwork()), clock, stack)
            clock.ms += IDLE_MS + 60_000
            await eventually(lambda: not quotas._measures[QuotaKind.PRODUCER_BYTE_RATE])
            await eventually(lambda: not rates._addresses)

    asyncio.run(main())

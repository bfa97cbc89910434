"""The quotas of a broker, built from its settings, and the removal of measurements of clients that are gone."""

import asyncio
from contextlib import AsyncExitStack, suppress

from leadline.config.broker import BrokerConfig, BrokerSettings
from leadline.runtime.periodic import every
from leadline.runtime.ports import Time, monotonic_ms
from leadline.security.client_quotas import ClientQuotas
from leadline.security.connection_rates import ConnectionRates
from leadline.security.quota_store import QuotaStore

DROPPING_MS = 30_000  # between two looks for idle measures


def client_quotas(config: BrokerConfig) -> ClientQuotas:
    return ClientQuotas(
        config.quota_window_num,
        config.quota_window_size_seconds * 1000,
        config.controller_quota_window_num,
        config.controller_quota_window_size_seconds * 1000,
    )


def connection_rates(settings: BrokerSettings) -> ConnectionRates:
    listeners, config = settings.listeners, settings.broker
    names = [listener.name for listener in listeners.bound]
    window = config.quota_window_num, config.quota_window_size_seconds * 1000
    return ConnectionRates(names, listeners.inter_broker.name, *window)


def start_dropping_idle(store: QuotaStore, clock: Time, stack: AsyncExitStack) -> None:
    """Until the stack is closed."""

    async def drop_idle() -> None:
        store.quotas.drop_idle(clock.now_ms())
        store.connection_rates.drop_idle(monotonic_ms(clock))  # connections are measured by this clock

    dropping = asyncio.create_task(every(DROPPING_MS, drop_idle), name="idle measures of quotas")

    async def stop() -> None:
        dropping.cancel()
        with suppress(asyncio.CancelledError):
            await dropping

    stack.push_async_callback(stop)

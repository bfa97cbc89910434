"""The meter of one request: the time that the loop spends on it, and nothing that it waits for."""

import asyncio

import pytest

from leadline.api.request_meter import ClientMeter, RequestMeter, TimedAnswer
from leadline.security.client_quotas import ClientQuotas, QuotaEntity, QuotaKind
from leadline.security.throttling import QuotaClient
from leadline.wire.messages import LeaderAndIsrResponse, MetadataResponse
from tests.support.logs import ManualClock

CLIENT = QuotaClient("u", "c")
METADATA, LEADER_AND_ISR = 3, 4


class Measured:
    """A meter whose client may use a tenth of the loop, and what follows."""

    def __init__(self, api_key: int = METADATA, percentage: float = 10) -> None:
        self.clock, self.quotas, self.muted_ms = ManualClock(), ClientQuotas(), list[int]()
        self.quotas.put(QuotaEntity("u"), {QuotaKind.REQUEST_PERCENTAGE: percentage})
        client, started_s = ClientMeter(self.quotas, self.clock, CLIENT), self.clock.monotonic_s()
        self.meter = RequestMeter(client, api_key, 100, started_s, self.muted_ms.append)

    def percent_ms(self) -> float:
        """The milliseconds that were recorded."""
        measure = self.quotas.measure(QuotaKind.REQUEST_PERCENTAGE, *CLIENT, self.clock.now_ms())
        assert measure is not None
        return measure.rate.per_second(self.clock.now_ms()) / 100 * measure.rate.window_ms(self.clock.now_ms())


def test_the_steps_of_a_handler_count_and_what_it_waits_for_does_not() -> None:
    async def main() -> None:
        measured = Measured()
        clock, waited_for = measured.clock, asyncio.get_running_loop().create_future()

        async def handler() -> MetadataResponse:
            clock.ms += 20
            await waited_for
            clock.ms += 30
            return MetadataResponse()

        measured.meter.pause()
        task = asyncio.create_task(answered(TimedAnswer(handler(), measured.meter)))
        await asyncio.sleep(0)
        clock.ms += 5000
        waited_for.set_result(None)
        measured.meter.finish(await task)
        assert measured.percent_ms() == pytest.approx(50)

    asyncio.run(main())


async def answered(answer: TimedAnswer[MetadataResponse]) -> MetadataResponse:
    return await answer


@pytest.mark.parametrize("catches", [False, True])
def test_a_cancellation_and_an_error_reach_the_handler(catches: bool) -> None:
    async def main() -> None:
        waited_for = asyncio.get_running_loop().create_future()

        async def handler() -> MetadataResponse:
            try:
                await waited_for
            except ValueError:
                if not catches:
                    raise
            return MetadataResponse()

        task = asyncio.create_task(answered(TimedAnswer(handler(), Measured().meter)))
        await asyncio.sleep(0)
        waited_for.set_exception(ValueError())
        if catches:
            assert await task == MetadataResponse()
        else:
            with pytest.raises(ValueError):  # noqa: PT011
                await task
        waited_for = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(answered(TimedAnswer(handler(), Measured().meter)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_the_response_carries_the_longer_of_two_throttle_times() -> None:
    for by_handler_ms, throttle_ms in ((0, 1000), (400, 1000), (7000, 7000)):
        measured = Measured()
        measured.clock.ms += 3000
        response = MetadataResponse(throttle_time_ms=by_handler_ms)
        measured.meter.finish(response)
        assert (response.throttle_time_ms, measured.muted_ms) == (throttle_ms, [throttle_ms])


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_request_among_brokers_is_exempt_unless_it_is_refused(is_refused: bool) -> None:
    measured = Measured(LEADER_AND_ISR)
    measured.clock.ms += 3000
    if is_refused:
        measured.meter.refused()
    measured.meter.finish(LeaderAndIsrResponse())
    assert measured.muted_ms == ([1000] if is_refused else [])


def test_a_request_counts_once() -> None:
    measured = Measured()
    measured.clock.ms += 10
    measured.meter.finish(MetadataResponse())
    measured.meter.finish(MetadataResponse())
    assert measured.percent_ms() == pytest.approx(10)


def test_the_time_on_the_network_counts_for_the_next_request() -> None:
    measured = Measured()
    ClientMeter(measured.quotas, measured.clock, CLIENT).record_network_time(1.5)
    measured.meter.finish(response := MetadataResponse())
    assert response.throttle_time_ms == 1000

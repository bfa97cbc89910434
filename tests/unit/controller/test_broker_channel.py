"""The controller's channel to one broker: order, repetition, and when the broker counts as gone."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from leadline.cluster.broker_client import PeerGone, PeerLost
from leadline.controller.broker_channel import BrokerChannel
from leadline.controller.effects import Request
from leadline.controller.state import RegisteredBroker
from leadline.wire.classes import Message
from leadline.wire.messages import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest

M = TypeVar("M", bound=Message)
BROKER = RegisteredBroker(7, 70, ())


class FakeBroker:
    """A broker, and the receiver of the channel's events."""

    def __init__(self) -> None:
        self.error: PeerLost | None = None
        self.attempts: list[str] = []
        self.events: list[str] = []
        self.lost: Callable[[], None] = lambda: None
        self.changed = asyncio.Event()

    def connect(self, broker: RegisteredBroker, lost: Callable[[], None]) -> "FakeBroker":
        self.lost = lost
        return self

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        self.attempts.append(type(request).__name__)
        self.changed.set()
        if self.error is not None:
            raise self.error
        return kind()

    def close(self) -> None: ...

    def answered(self, broker: RegisteredBroker, request: Request, response: Message) -> None:
        self._note(type(response).__name__)

    def gone(self, broker: RegisteredBroker) -> None:
        self._note("gone")

    def back(self, broker: RegisteredBroker) -> None:
        self._note("back")

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


def run(test: Callable[[FakeBroker, BrokerChannel], Awaitable[None]], *, is_new: bool = False) -> None:
    async def main() -> None:
        broker = FakeBroker()
        channel = BrokerChannel(BROKER, broker.connect, broker, 30.0, is_new=is_new)
        async with asyncio.timeout(120):
            await test(broker, channel)
        await asyncio.gather(channel.close(), return_exceptions=True)

    asyncio.run(main())


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leadline.controller.broker_channel.PROBE_S", 0.001)


def test_requests_are_answered_in_their_order() -> None:
    async def test(broker: FakeBroker, channel: BrokerChannel) -> None:
        for request in (LeaderAndIsrRequest(), UpdateMetadataRequest(), StopReplicaRequest()):
            channel.send(request)
        assert not channel.is_idle
        await channel.answered_all()
        assert channel.is_idle
        assert broker.events == ["LeaderAndIsrResponse", "UpdateMetadataResponse", "StopReplicaResponse"]

    run(test)


def test_a_lost_request_is_repeated_until_it_is_answered() -> None:
    async def test(broker: FakeBroker, channel: BrokerChannel) -> None:
        broker.error = PeerLost("no answer in time")
        channel.send(UpdateMetadataRequest())
        await broker.until(lambda: len(broker.attempts) == 3)
        assert broker.events == []
        broker.error = None
        await channel.answered_all()
        assert broker.events == ["UpdateMetadataResponse"]

    run(test)


def test_a_broker_that_refuses_is_gone_until_it_answers_and_queued_requests_are_dropped() -> None:
    async def test(broker: FakeBroker, channel: BrokerChannel) -> None:
        broker.error = PeerGone("nobody listens")
        channel.send(UpdateMetadataRequest())
        channel.send(StopReplicaRequest())
        await broker.until(lambda: broker.events == ["gone"])
        broker.error = None
        await broker.until(lambda: broker.events == ["gone", "back"])
        assert "StopReplicaRequest" not in broker.attempts

    run(test)


def test_a_refusal_by_a_new_broker_proves_nothing_until_it_has_answered() -> None:
    async def test(broker: FakeBroker, channel: BrokerChannel) -> None:
        broker.error = PeerGone("not listening yet")
        channel.send(UpdateMetadataRequest())
        await broker.until(lambda: len(broker.attempts) == 3)
        assert broker.events == []
        broker.error = None
        await channel.answered_all()
        broker.error = PeerGone("nobody listens")
        broker.lost()
        await broker.until(lambda: broker.events == ["UpdateMetadataResponse", "gone"])

    run(test, is_new=True)


@pytest.mark.parametrize("is_waiting", [True, False])
def test_a_silent_broker_is_gone_once_it_is_given_up(is_waiting: bool) -> None:
    async def test(broker: FakeBroker, channel: BrokerChannel) -> None:
        broker.error = PeerLost("no answer in time")
        if is_waiting:
            channel.send(UpdateMetadataRequest())
            await broker.until(lambda: bool(broker.attempts))
        channel.give_up()
        await broker.until(lambda: broker.events == ["gone"])
        assert channel.is_given_up
        broker.error = None
        await broker.until(lambda: broker.events == ["gone", "back"])
        assert not channel.is_given_up

    run(test)

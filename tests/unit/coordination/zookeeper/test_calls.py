"""Calls to ZooKeeper over a session that a test plays: order, the limit in flight, and what a lost connection does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
from kazoo.exceptions import ConnectionLoss

from leadline.coordination.tree import ConnectionLost, NoNode, SessionExpired
from leadline.coordination.zookeeper.calls import PendingCall, PendingCalls
from leadline.coordination.zookeeper.session import ZooKeeperSession

OnAnswer = Callable[[object, int], None]


class FakeSession:
    """A connection: the requests that were sent over it, in order."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, OnAnswer]] = []

    def ask(self, request: str, on_answer: OnAnswer) -> None:
        self.sent.append((request, on_answer))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.sent]

    def answer(self, position: int, answer: object = "answer", zxid: int = 1) -> None:
        self.sent[position][1](answer, zxid)


class Player:
    def __init__(self, max_in_flight: int = 10) -> None:
        self.calls = PendingCalls(max_in_flight)

    def connect(self) -> FakeSession:
        session = FakeSession()
        self.calls.connected(cast(ZooKeeperSession, session))
        return session

    def call(self, name: str, *, may_repeat: bool = False) -> PendingCall[object]:
        def read(answer: object, zxid: int) -> object:
            if isinstance(answer, Exception):
                raise answer
            return answer, zxid

        return PendingCall(f"/{name}", name, read, asyncio.get_running_loop().create_future(), may_repeat)

    def add(self, name: str, *, may_repeat: bool = False) -> PendingCall[object]:
        call = self.call(name, may_repeat=may_repeat)
        self.calls.add(call)
        return call


def play(scenario: Callable[[Player], Awaitable[None]], max_in_flight: int = 10) -> None:
    async def run() -> None:
        await scenario(Player(max_in_flight))

    asyncio.run(run())


def test_calls_wait_for_a_connection_and_no_more_are_sent_than_may_be_in_flight() -> None:
    async def scenario(player: Player) -> None:
        calls = [player.add(name) for name in "abc"]
        session = player.connect()
        assert session.names == ["a", "b"]
        session.answer(0, "first", 7)
        assert session.names == ["a", "b", "c"]
        assert await calls[0].answered == ("first", 7)
        assert len(player.calls.unanswered()) == 2

    play(scenario, max_in_flight=2)


def test_a_call_that_was_cancelled_before_it_was_sent_is_not_sent() -> None:
    async def scenario(player: Player) -> None:
        player.add("a").answered.cancel()
        player.add("b")
        assert player.connect().names == ["b"]

    play(scenario)


def test_an_error_goes_to_the_caller_and_the_refusal_is_noted_before() -> None:
    async def scenario(player: Player) -> None:
        session = player.connect()
        call, notes = player.add("a"), []
        call.refused = lambda: notes.append(call.answered.done())
        session.answer(0, NoNode("/a", "the node does not exist"))
        assert notes == [False]
        with pytest.raises(NoNode):
            await call.answered

    play(scenario)


def test_a_lost_connection_repeats_what_may_be_repeated_before_what_waits() -> None:
    async def scenario(player: Player) -> None:
        session = player.connect()
        read, write, read_2, waiting = (player.add(name, may_repeat=name[0] == "r") for name in ("r1", "w", "r2", "w2"))
        assert session.names == ["r1", "w", "r2"]
        player.calls.disconnected()
        with pytest.raises(ConnectionLost, match=r"^/w: "):
            await write.answered
        assert (read.repeated, read_2.repeated, waiting.repeated) == (True, True, False)
        again = player.connect()
        assert again.names == ["r1", "r2", "w2"]
        session.answer(0, "late")
        assert not read.answered.done(), "an answer of the lost connection counts for nothing"
        again.answer(0, "fresh")
        assert await read.answered == ("fresh", 1)

    play(scenario, max_in_flight=3)


def test_an_error_of_the_connection_leaves_a_call_to_the_loss_that_follows() -> None:
    async def scenario(player: Player) -> None:
        session = player.connect()
        call = player.add("r", may_repeat=True)
        session.answer(0, ConnectionLoss())
        assert not call.answered.done()
        player.calls.disconnected()
        assert player.connect().names == ["r"]

    play(scenario)


def test_calls_that_are_added_first_are_sent_first_and_in_their_order() -> None:
    async def scenario(player: Player) -> None:
        player.add("c")
        player.calls.add_first([player.call("a"), player.call("b")])
        assert player.connect().names == ["a", "b", "c"]

    play(scenario)


def test_the_end_of_the_session_fails_all_calls() -> None:
    async def scenario(player: Player) -> None:
        session = player.connect()
        write, read, waiting = player.add("w"), player.add("r", may_repeat=True), player.add("waits")
        player.calls.fail_all("it has expired")
        with pytest.raises(ConnectionLost):
            await write.answered
        for call in (read, waiting):
            with pytest.raises((SessionExpired, ConnectionLost)):
                await call.answered
        assert player.calls.unanswered() == []
        player.add("later")
        assert session.names == ["w", "r"], "nothing is sent over the old connection"
        assert player.connect().names == ["later"]

    play(scenario, max_in_flight=2)

"""How many connections a turn of the loop accepts: a listener with more of them than anybody can accept."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from leadline.broker.acceptor import ACCEPT_SECONDS, BUSY_ACCEPT_SECONDS, Acceptor
from leadline.broker.connection_quotas import ConnectionLimits, ConnectionQuotas
from leadline.runtime.network import Socket
from leadline.security.connection_rates import ConnectionRates
from tests.support.memory_files import MemoryFiles
from tests.support.memory_network import MemoryNetwork, MemorySocket, Pipe

ACCEPT_ONE_SECONDS = 0.0001  # on the clock of the test
TURNS = 200  # of the loop; what has not happened by then does not happen


class Turns:
    """An acceptor whose listener never runs out of connections, and what it accepted."""

    def __init__(self) -> None:
        self.now_s, self.is_quiet = 1000.0, True
        self.count = 0  # of connections that were accepted
        self._network = MemoryNetwork(MemoryFiles())
        rates = ConnectionRates((), "")
        quotas = ConnectionQuotas(ConnectionLimits())
        self.acceptor = Acceptor(
            self._network, quotas, rates, lambda: self.now_s, lambda now_s: self.is_quiet, self._accepted
        )
        rates.add_listener("PLAINTEXT")
        _, self._port = self.acceptor.listen("PLAINTEXT", "", 0)
        self.acceptor.start()

    def _accepted(self, sock: Socket, host: str, port: int, listener: str) -> None:
        self.now_s += ACCEPT_ONE_SECONDS
        self.count += 1

    def connect(self, count: int) -> None:
        for _ in range(count):
            self._network.listening[self._port].add(MemorySocket(Pipe(), Pipe(), MemoryFiles()))

    async def first_turn(self) -> int:
        """The number of connections that are accepted in it."""
        for _ in range(TURNS):
            if self.count:
                break
            await asyncio.sleep(0)
        return self.count


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


@pytest.mark.parametrize(("is_quiet", "seconds"), [(True, ACCEPT_SECONDS), (False, BUSY_ACCEPT_SECONDS)])
def test_a_turn_accepts_few_connections_while_others_have_requests(is_quiet: bool, seconds: float) -> None:
    async def test() -> None:
        turns = Turns()
        turns.is_quiet = is_quiet
        turns.connect(1000)
        accepted = await turns.first_turn()
        assert accepted in range(round(seconds / ACCEPT_ONE_SECONDS), round(seconds / ACCEPT_ONE_SECONDS) + 2)
        turns.acceptor.close()

    run(test)


def test_all_are_accepted_in_the_end_although_others_have_requests() -> None:
    async def test() -> None:
        turns = Turns()
        turns.is_quiet = False
        turns.connect(100)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert turns.count == 100
        turns.acceptor.close()

    run(test)


def test_nothing_is_accepted_once_the_listener_is_closed() -> None:
    async def test() -> None:
        turns = Turns()
        turns.connect(1)
        await asyncio.sleep(0)  # the listener is readable
        turns.acceptor.close()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert turns.count == 0

    run(test)

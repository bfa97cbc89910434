"""Which connections are accepted, how many in a turn of the loop, and what a shortage does to new ones."""

import asyncio
import errno
import resource
import socket
import time
from pathlib import Path

import pytest

from leadline.broker.acceptor import ACCEPT_SECONDS, SHORTAGE_SECONDS, Acceptor
from leadline.broker.connection_quotas import LISTEN_BACKLOG, ConnectionLimits, ConnectionQuotas
from leadline.broker.reconfiguration import limits_of
from leadline.config.broker import broker_settings
from leadline.runtime.network import Socket
from leadline.runtime.step_scheduler import StepScheduler
from leadline.security.connection_rates import ConnectionRates
from tests.support.failing_network import FailingListener, FailingNetwork
from tests.support.loopback_server import SECONDS, LoopbackServer, complaints, echo, loopback_server, run, sized, turns
from tests.support.memory_files import MemoryFiles
from tests.support.memory_network import MemoryNetwork, MemorySocket, Pipe
from tests.support.net import net_of
from tests.support.waiting import eventually

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
        strangers = StepScheduler(asyncio.get_running_loop())
        self.acceptor = Acceptor(self._network, quotas, rates, lambda: self.now_s, lambda _: self.is_quiet, strangers)
        rates.add_listener("PLAINTEXT")
        _, self._port = self.acceptor.listen("PLAINTEXT", "", 0)
        self.acceptor.start(self._accepted)

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


@pytest.mark.parametrize(("is_quiet", "seconds"), [(True, ACCEPT_SECONDS), (False, 0.0)])
def test_a_turn_accepts_one_connection_while_others_have_requests(is_quiet: bool, seconds: float) -> None:
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
        for _ in range(4 * TURNS):
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


def test_connections_beyond_the_rate_wait() -> None:
    """As in Kafka: those of ten seconds may come at once, and the next one waits for a second."""

    async def test() -> None:
        async with loopback_server(max_connection_creation_rate=1) as server:
            began = asyncio.get_running_loop().time()
            peers = [await server.peer() for _ in range(11)]
            assert await asyncio.gather(*(peer.ask(b"hello") for peer in peers)) == [b"hello"] * 11
            assert asyncio.get_running_loop().time() - began >= 0.5

    run(test)


def test_an_address_that_connects_too_often_is_closed_unread_and_counts_nowhere() -> None:
    async def test() -> None:
        async with loopback_server() as server:
            server.net.rates.address_limits["127.0.0.1"] = 1
            peers = [await server.peer() for _ in range(10)]
            assert await asyncio.gather(*(peer.ask(b"x") for peer in peers)) == [b"x"] * 10
            refused = await server.peer()
            refused.send(b"never read")
            assert await refused.receive() is None
            assert len(server.net.connections) == 10
            del server.net.rates.address_limits["127.0.0.1"]
            assert await (await server.peer()).ask(b"x") == b"x"

    run(test)


def test_connections_of_clients_give_way_to_those_between_brokers() -> None:
    async def test() -> None:
        net = net_of(ConnectionLimits(max_connections=2, protected_listener="BROKERS"))
        ports = {name: net.listen(name, "127.0.0.1", 0)[1] for name in ("CLIENTS", "BROKERS")}
        net.start(echo)
        clients, brokers = (LoopbackServer(net, ports[name], "127.0.0.1") for name in ("CLIENTS", "BROKERS"))
        first, second = await clients.peer(), await clients.peer()
        assert [await first.ask(b"1"), await second.ask(b"2")] == [b"1", b"2"]
        assert await first.ask(b"1") == b"1"  # used after the second
        third = await brokers.peer()
        assert await third.ask(b"3") == b"3"
        assert await second.receive() is None
        assert await first.ask(b"1") == b"1"
        for server in (clients, brokers):
            for peer in server.peers:
                peer.close()
        await net.close()

    run(test)


def test_beyond_max_connections_new_ones_wait_for_room(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with loopback_server(max_connections=2) as server:
            first, second, third = [await server.peer() for _ in range(3)]
            assert (await first.ask(b"1"), await second.ask(b"2")) == (b"1", b"2")
            third.send(b"3")
            await turns()
            assert len(server.net.connections) == 2
            first.close()
            assert await third.receive() == b"3"

    run(test)
    assert "max.connections=2 is reached: new connections have to wait" in complaints(caplog)[0]


def test_beyond_max_connections_per_ip_new_ones_are_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with loopback_server(
            max_connections_per_ip=1, max_connections_per_ip_overrides=(("127.0.0.2", 0),)
        ) as server:
            first = await server.peer()
            assert await first.ask(b"1") == b"1"
            second = await server.peer()
            assert await second.receive() is None
            first.close()
            await eventually(lambda: not server.net.connections)
            assert await (await server.peer()).ask(b"3") == b"3"

    run(test)
    assert complaints(caplog) == ["connection from 127.0.0.1 refused: max.connections.per.ip=1 is reached"]


def test_an_override_counts_for_its_address_alone() -> None:
    async def test() -> None:
        async with loopback_server(
            max_connections_per_ip=0, max_connections_per_ip_overrides=(("127.0.0.1", 2),)
        ) as server:
            peers = [await server.peer() for _ in range(3)]
            assert [await peer.ask(b"x") for peer in peers] == [b"x", b"x", None]

    run(test)


# Bursts and shortages

BURST = 2000
SOMAXCONN = Path("/proc/sys/net/core/somaxconn")


@pytest.mark.skipif(int(SOMAXCONN.read_text()) < BURST, reason=f"needs net.core.somaxconn of {BURST}")
def test_a_burst_of_connections_is_accepted_at_once_and_served() -> None:
    async def scenario() -> None:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        net = net_of(limits_of(broker_settings({"listeners": "PLAINTEXT://localhost:0"}), ()))
        _, port = net.listen("PLAINTEXT", "127.0.0.1", 0)
        clients = []
        for _ in range(BURST):  # nobody accepts meanwhile; one that finds no room would wait for a second or more
            clients.append(socket.socket())
            clients[-1].settimeout(SECONDS)
            clients[-1].connect(("127.0.0.1", port))
        net.start(echo)
        await eventually(lambda: len(net.connections) == BURST)
        for client in clients:
            client.sendall(sized(b"here"))
        for client in clients:
            client.setblocking(False)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 100), SECONDS) == sized(b"here")
            client.close()
        await net.close()

    started = time.monotonic()
    asyncio.run(scenario())
    assert time.monotonic() - started < SECONDS


def test_the_listen_backlog_is_ours_unless_it_is_set() -> None:
    settings = {"listeners": "PLAINTEXT://localhost:0"}
    assert limits_of(broker_settings(settings), ()).socket_listen_backlog_size == LISTEN_BACKLOG
    settings["socket.listen.backlog.size"] = "50"
    assert limits_of(broker_settings(settings), ()).socket_listen_backlog_size == 50


class EveryOtherFails(FailingListener):
    def accept_connection(self) -> tuple[Socket, str, int]:
        self.error = 0 if self.error else errno.ECONNABORTED
        return super().accept_connection()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS])
def test_a_shortage_makes_new_connections_wait_and_the_loop_does_not_spin(
    error: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        network = FailingNetwork()
        async with loopback_server(network=network) as server:
            first = await server.peer()
            assert await first.ask(b"first") == b"first"
            network.listener.error, network.listener.accepts = error, 0
            waiting = await server.peer()
            await eventually(lambda: network.listener.accepts > 2)
            turns = 0
            began = time.monotonic()
            while time.monotonic() - began < 2 * SHORTAGE_SECONDS:
                turns += 1
                await asyncio.sleep(0)
            assert turns > 10 * network.listener.accepts, "it is tried now and then, not in each turn"
            assert await first.ask(b"again") == b"again"
            network.listener.error = 0
            assert await waiting.ask(b"at last") == b"at last"

    monkeypatch.setattr("leadline.broker.acceptor.SHORTAGE_LOG_SECONDS", 10 * SECONDS)
    run(test)
    assert caplog.text.count("connections have to wait") == 1


def test_a_connection_that_ends_lets_the_next_one_in_at_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leadline.broker.acceptor.SHORTAGE_SECONDS", 10 * SECONDS)

    async def test() -> None:
        network = FailingNetwork()
        async with loopback_server(network=network) as server:
            first = await server.peer()
            assert await first.ask(b"first") == b"first"
            network.listener.error = errno.EMFILE
            waiting = await server.peer()
            await eventually(lambda: "connections have to wait" in caplog.text)
            network.listener.error = 0
            first.close()
            assert await waiting.ask(b"at last") == b"at last"

    run(test)


def test_a_connection_that_failed_before_it_was_accepted_does_not_stop_the_listener() -> None:
    async def test() -> None:
        async with loopback_server(network=FailingNetwork(EveryOtherFails)) as server:
            for _ in range(5):
                assert await (await server.peer()).ask(b"here") == b"here"

    run(test)

"""The network of a broker: listeners, the settings of their sockets, idle connections, and the end of all of them."""

import asyncio
import socket

import pytest

from leadline.broker.connection_quotas import SEND_BUFFER_BYTES
from leadline.broker.reconfiguration import limits_of
from leadline.broker.reply_queue import Reply
from leadline.config.broker import broker_settings
from leadline.runtime.network import UNPACED, TcpSocket
from tests.support.loopback_server import SECONDS, is_blocked, loopback_server, run, sized, turns
from tests.support.net import net_of
from tests.support.waiting import eventually


def test_the_send_buffer_is_ours_unless_it_is_set() -> None:
    def send_buffer(**settings: str) -> int:
        texts = {name.replace("_", "."): text for name, text in settings.items()}
        return limits_of(broker_settings(texts), ()).socket_send_buffer_bytes

    assert send_buffer() == SEND_BUFFER_BYTES
    assert [send_buffer(socket_send_buffer_bytes=text) for text in ("102400", "-1")] == [102_400, -1]


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_connections_within_a_machine_are_not_paced(host: str) -> None:
    async def test() -> None:
        async with loopback_server(host=host) as server:
            assert await (await server.peer()).ask(b"x") == b"x"
            (connection,) = server.net.connections
            assert isinstance(connection.sock, TcpSocket)
            used = connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert used.rstrip(b"\0") == UNPACED

    run(test)


def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async def test() -> None:
        now_s = 1000.0
        async with loopback_server(now=lambda: now_s, connections_max_idle_ms=500) as server:
            idle, busy = await server.peer(), await server.peer()
            await eventually(lambda: len(server.net.connections) == 2)
            for _ in range(2):
                now_s += 0.4
                assert await busy.ask(b"x") == b"x"
            assert await idle.receive() is None
            assert await busy.ask(b"x") == b"x"

    run(test)


def test_a_connection_whose_request_is_waiting_is_not_idle() -> None:
    async def test() -> None:
        other_is_gone = asyncio.Event()

        async def wait() -> Reply:
            await other_is_gone.wait()
            return [sized(b"done")]

        now_s = 1000.0
        async with loopback_server(lambda *_: wait(), now=lambda: now_s, connections_max_idle_ms=500) as server:
            waiting = await server.peer()
            waiting.send(b"wait")
            await eventually(lambda: is_blocked(server))
            idle = await server.peer()  # which came later
            await eventually(lambda: len(server.net.connections) == 2)
            now_s += 0.6
            assert await idle.receive() is None
            other_is_gone.set()
            assert await waiting.receive() == b"done"

    run(test)


def test_with_queued_max_request_bytes_frames_wait_for_each_other() -> None:
    async def test() -> None:
        async with loopback_server(queued_max_request_bytes=1_500_000) as server:
            peers = [await server.peer() for _ in range(6)]
            data = b"x" * 3_000_000
            for peer in peers:
                peer.send(data)
            assert [await peer.receive() for peer in peers] == [data] * 6
            assert not server.net.memory.is_full

    run(test)


@pytest.mark.parametrize("host", ["::1", ""])
def test_it_listens_on_ipv6(host: str) -> None:
    if not socket.has_ipv6:
        pytest.skip("needs IPv6")

    async def test() -> None:
        try:
            context = loopback_server(host=host)
            server = await context.__aenter__()
        except OSError as error:
            pytest.skip(f"needs IPv6: {error}")
        for address in ("::1", "127.0.0.1") if not host else ("::1",):
            assert await (await server.peer(host=address)).ask(b"hello") == b"hello"
        hosts = {connection.host for connection in server.net.connections}
        assert hosts == ({"::1", "127.0.0.1"} if not host else {"::1"})
        await context.__aexit__(None, None, None)

    run(test)


def test_an_address_in_use_is_named() -> None:
    async def test() -> None:
        async with loopback_server() as server:
            with pytest.raises(OSError, match=rf"cannot listen on 127.0.0.1:{server.port} \(TWO\): Address already"):
                net_of().listen("TWO", "127.0.0.1", server.port)

    run(test)


def test_requests_under_way_may_finish_before_the_connections_are_closed() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def finish() -> Reply:
            await go_on.wait()
            return [sized(b"done")]

        async with loopback_server(lambda *_: finish()) as server:
            peer = await server.peer()
            peer.send(b"x")
            await eventually(lambda: is_blocked(server))
            closing = asyncio.create_task(server.net.close(SECONDS))
            await turns()
            assert not closing.done()
            go_on.set()
            assert await peer.receive() == b"done"
            await closing

    run(test)

"""A connection to another broker, held against peers that answer, break, lie and keep silent."""

import asyncio
import errno
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from struct import Struct
from typing import NoReturn, TypeVar

import pytest

from leadline.cluster.broker_client import EncodeRequest, PeerGone, PeerLost, TcpBrokerClient
from leadline.model import Buffer
from leadline.runtime.network import TcpNetwork
from leadline.wire.frames import parse_response, request_frame, request_head, response_frame
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

P = TypeVar("P", bound=asyncio.BaseProtocol)
SIZE = Struct(">i")
PATIENCE_S = 120
Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]  # for a correlation id


async def properly(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(correlation_id))


def reply(correlation_id: int) -> bytes:
    pieces = response_frame(ApiVersionsResponse(throttle_time_ms=correlation_id), 1, correlation_id)
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray))


@asynccontextmanager
async def peer(*answers: Answer) -> AsyncIterator[int]:
    """One that deals with request after request like this; with the last of these, and all that follow, the same."""
    todo, writers = list(answers), list[asyncio.StreamWriter]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while True:
                (size,) = SIZE.unpack(await reader.readexactly(4))
                head = request_head(await reader.readexactly(size))
                await (todo.pop(0) if len(todo) > 1 else todo[0])(head.correlation_id, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)


async def request_number(channel: TcpBrokerClient, timeout_s: float = PATIENCE_S) -> int:
    return (await channel.ask(ApiVersionsRequest(), ApiVersionsResponse, 1, timeout_s)).throttle_time_ms


def run(
    scenario: Callable[[TcpBrokerClient], Awaitable[None]], *answers: Answer, lost: Callable[[], None] = lambda: None
) -> None:
    async def whole() -> None:
        async with peer(*answers) as port:
            channel = TcpBrokerClient(("127.0.0.1", port), "me", TcpNetwork(), lost)
            try:
                await scenario(channel)
            finally:
                channel.close()

    asyncio.run(whole())


def test_many_at_once_are_answered_each_with_its_own() -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        numbers = await asyncio.gather(*(request_number(channel) for _ in range(50)))
        assert sorted(numbers) == list(range(1, 51))

    run(scenario, properly)


def test_an_answer_in_small_pieces_comes_whole() -> None:
    async def dribble(correlation_id: int, writer: asyncio.StreamWriter) -> None:
        for byte in reply(correlation_id):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async def scenario(channel: TcpBrokerClient) -> None:
        assert [await request_number(channel), await request_number(channel)] == [1, 2]

    run(scenario, dribble)


async def hang_up(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


async def nonsense(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.write(SIZE.pack(-5))


async def another(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.write(reply(correlation_id + 7))


async def garbage(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    writer.write(SIZE.pack(6) + SIZE.pack(correlation_id) + b"\xff\xff")


@pytest.mark.parametrize("wrong", [hang_up, nonsense, another, garbage])
def test_a_broken_connection_fails_waiting_requests_and_the_next_one_connects_again(wrong: Answer) -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match=r"127\.0\.0\.1"):
            await request_number(channel)
        assert await request_number(channel) == 2

    run(scenario, wrong, properly)


async def silent(correlation_id: int, writer: asyncio.StreamWriter) -> None:
    """Not a word."""


def test_no_answer_in_time_ends_the_connection_for_all_that_wait() -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        assert await request_number(channel) == 1  # the time limit is for the answer, not for the connection
        patient = asyncio.create_task(request_number(channel))
        await asyncio.sleep(0)
        with pytest.raises(PeerLost, match=r"did not answer ApiVersionsRequest in 0\.05 s"):
            await request_number(channel, 0.05)
        with pytest.raises(PeerLost):
            await patient
        assert await request_number(channel) == 4

    run(scenario, properly, silent, silent, properly)


def test_a_broken_connection_is_reported_at_once() -> None:
    calls: list[str] = []

    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost):
            await request_number(channel)
        assert calls == ["lost"]

    run(scenario, hang_up, lost=lambda: calls.append("lost"))


def test_a_refused_connection_means_that_the_broker_is_gone() -> None:
    async def scenario() -> None:
        async with peer(properly) as port:
            pass
        channel = TcpBrokerClient(("127.0.0.1", port), "me", TcpNetwork())
        with pytest.raises(PeerGone, match=f"127.0.0.1:{port} refuses connections"):
            await request_number(channel)

    asyncio.run(scenario())


def test_a_closed_channel_sends_no_request() -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        waiting = asyncio.create_task(request_number(channel))
        while channel._connection is None:  # noqa: ASYNC110  (until it is connected)
            await asyncio.sleep(0)
        channel.close()
        with pytest.raises(PeerLost, match="is closed"):
            await waiting
        with pytest.raises(PeerLost, match="is closed"):
            await request_number(channel)

    run(scenario, silent)


def question(correlation_id: int, client_id: str) -> bytes:
    pieces = request_frame(ApiVersionsRequest(), 1, correlation_id, client_id)
    return b"".join(bytes(piece) for piece in pieces if isinstance(piece, bytes | bytearray))


def number_in(frame: Buffer) -> int:
    return parse_response(ApiVersionsResponse, frame, 1)[1].throttle_time_ms


def test_a_conversation_goes_on_until_there_is_no_further_request() -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        answers: list[int] = []

        def go_on(frame: memoryview) -> EncodeRequest | None:
            answers.append(number_in(frame))
            return question if len(answers) < 5 else None

        last = await channel.converse("it", question, go_on, PATIENCE_S)
        assert (answers, number_in(last)) == ([1, 2, 3, 4, 5], 5)
        assert await request_number(channel) == 6

    run(scenario, properly)


@pytest.mark.parametrize("wrong", [hang_up, nonsense, another, silent])
def test_a_conversation_that_breaks_raises_peer_lost(wrong: Answer) -> None:
    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match=r"127\.0\.0\.1"):
            await channel.converse("it", question, lambda _: question, 0.5 if wrong is silent else PATIENCE_S)

    run(scenario, properly, properly, wrong)


def test_what_fails_on_hearing_an_answer_ends_the_conversation(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: memoryview) -> EncodeRequest | None:
        raise ZeroDivisionError("on hearing it")

    async def scenario(channel: TcpBrokerClient) -> None:
        with pytest.raises(PeerLost, match="on hearing it"):
            await channel.converse("it", question, fail, PATIENCE_S)
        assert await request_number(channel) == 2

    run(scenario, properly)
    assert "buffer_updated() call failed" in caplog.text


def test_each_attempt_to_connect_has_twice_the_time_of_the_one_before_up_to_the_longest() -> None:
    async def scenario() -> None:
        channel = TcpBrokerClient(("127.0.0.1", 1), "me", TcpNetwork(), setup_timeout_s=(0.01, 0.03))

        async def never() -> NoReturn:
            await asyncio.sleep(3600)
            raise AssertionError

        channel._connect = never  # type: ignore[method-assign]
        for seconds in ("0.01", "0.02", "0.03", "0.03"):
            with pytest.raises(PeerLost, match=rf"cannot be reached in {seconds} s"):
                await request_number(channel)
        with pytest.raises(PeerLost, match=r"cannot be reached in 0\.005 s"):
            await request_number(channel, timeout_s=0.005)

    asyncio.run(scenario())


def test_closing_ends_a_connection_that_is_only_being_made() -> None:
    async def test() -> None:
        begun = asyncio.Event()

        class SilentNetwork(TcpNetwork):
            async def connect(
                self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
            ) -> P:
                begun.set()
                await asyncio.Event().wait()
                raise AssertionError

        channel = TcpBrokerClient(("127.0.0.1", 1), "broker-1", SilentNetwork())
        waiting = asyncio.create_task(request_number(channel, 600.0))
        await begun.wait()
        channel.close()
        await asyncio.sleep(0)  # the time limit is over, and whoever waits does not know it yet
        channel.close()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(PeerLost, match="before the client was closed"):
                await waiting

    asyncio.run(test())


def test_what_was_not_answered_in_time_does_not_arrive_later() -> None:
    """A connection that ends in an orderly way hands over what was sent before."""

    async def test() -> None:
        ended: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await reader.read()
                ended.set_result(False)
            except ConnectionResetError:
                ended.set_result(True)
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            channel = TcpBrokerClient(server.sockets[0].getsockname(), "broker-1", TcpNetwork())
            with pytest.raises(PeerLost, match="did not answer"):
                await request_number(channel, 0.01)
            async with asyncio.timeout(PATIENCE_S):
                assert await ended, "it was not broken off"
            channel.close()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_a_shortage_here_says_nothing_of_the_peer(error: Exception, remedy: str) -> None:
    class ShortNetwork(TcpNetwork):
        async def connect(
            self, protocol: Callable[[], P], host: str, port: int, tls: ssl.SSLContext | None = None
        ) -> P:
            raise error

    async def scenario(channel: TcpBrokerClient) -> None:
        channel.network = ShortNetwork()
        with pytest.raises(PeerLost, match=remedy) as lost:
            await request_number(channel)
        assert not isinstance(lost.value, PeerGone)
        channel.network = TcpNetwork()
        assert await request_number(channel) == 1

    run(scenario, properly)

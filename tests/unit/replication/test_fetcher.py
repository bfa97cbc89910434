"""A fetcher and a leader without sockets: what it asks, what it makes of the responses, and whom it disturbs."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest

from leadline.cluster.broker_client import EncodeRequest, NextRequest, PeerLost
from leadline.errors import NotLeaderOrFollower, OffsetOutOfRange
from leadline.model import TopicId, TopicPartition
from leadline.replication.effects_on_logs import FollowedPartition
from leadline.replication.fetch_requests import FetchingBroker
from leadline.replication.fetcher import Fetcher
from leadline.replication.follower import NOTHING, FetchState, follow
from leadline.wire import follower_fetch
from leadline.wire.classes import Message
from leadline.wire.frames import response_frame
from leadline.wire.messages import FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse
from tests.support import in_memory
from tests.support.brokers import joined
from tests.support.hosted import TP, Partition, partition
from tests.support.logs import ManualClock, at_offset, batch, offsets_in, whole_log
from tests.support.waiting import eventually

LEADER, SESSION, TOPIC_ID = 2, 77, TopicId(int=9)
M = TypeVar("M", bound=Message)
Part = FetchResponse.PartitionData


class Leader:
    """Sends the responses that a test has queued, then waits."""

    def __init__(self) -> None:
        self.parts: deque[list[Part] | Exception] = deque()
        self.fetches: list[FetchRequest] = []  # through the codec
        self.frames: list[follower_fetch.FollowerFetchRequest] = []  # on the fast path
        self.latest = 0
        self.closed = 0
        self._more, self._lost = asyncio.Event(), asyncio.Event()

    def put(self, *parts: Part) -> None:
        self.parts.append(list(parts))
        self._more.set()

    async def ask(self, request: Message, kind: type[M], version: int, timeout_s: float, /) -> M:
        if isinstance(request, ListOffsetsRequest):
            part = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, offset=self.latest)
            topic = ListOffsetsResponse.ListOffsetsTopicResponse(name=TP.topic, partitions=[part])
            return cast(M, ListOffsetsResponse(topics=[topic]))
        assert isinstance(request, FetchRequest)
        self.fetches.append(request)
        return cast(M, await self._answer())

    async def converse(
        self, what: str, first: EncodeRequest, next_request: NextRequest, timeout_s: float, /
    ) -> bytearray:
        ask: EncodeRequest | None = first
        while ask is not None:
            request = follower_fetch.parse_request(memoryview(bytes(ask(1, "broker-1")))[4:])
            assert request is not None
            self.frames.append(request)
            frame = bytearray(joined(response_frame(await self._answer(), 16, 1)))[4:]
            ask = next_request(memoryview(frame))
        return frame

    async def _answer(self) -> FetchResponse:
        while not self.parts:
            self._more.clear()
            waits = [asyncio.create_task(event.wait()) for event in (self._more, self._lost)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
            if self._lost.is_set():
                self._lost.clear()
                raise PeerLost("it was closed")
        answer = self.parts.popleft()
        if isinstance(answer, Exception):
            raise answer
        topic = FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=answer)
        return FetchResponse(session_id=SESSION, responses=[topic] if answer else [])

    def close(self) -> None:
        self.closed += 1
        self._lost.set()


class FetcherBench:
    def __init__(self, at: Partition, leader: Leader, fetcher: Fetcher) -> None:
        self.at, self.leader, self.fetcher, self.log = at, leader, fetcher, at.hosted.log

    async def follow(self, epoch: int = 0) -> None:
        at = self.at.hosted
        at.follower_state, effects = follow(at.log, epoch, topic_id=TOPIC_ID.bytes, partition=0)
        await self.fetcher.follow(TP, FollowedPartition(at.follower_state, at), effects)

    @property
    def offsets(self) -> list[int]:
        return offsets_in(whole_log(self.log))

    @property
    def state(self) -> FetchState:
        assert self.at.hosted.follower_state is not None
        return self.at.hosted.follower_state.state


@asynccontextmanager
async def fetcher_bench(path: Path, **topic: str) -> AsyncIterator[FetcherBench]:
    async with partition(path, **topic) as at:
        leader = Leader()
        fetcher = Fetcher(LEADER, at.context, lambda: FetchingBroker(1, 5), lambda _: leader, at.dirs)
        try:
            yield FetcherBench(at, leader, fetcher)
        finally:
            await fetcher.stop()


def records(offset: int, high_watermark: int = 0, count: int = 2, epoch: int = 0) -> Part:
    data = at_offset(batch(count), offset, epoch)
    return Part(partition_index=0, high_watermark=high_watermark, log_start_offset=0, records=bytes(data))


def nothing(high_watermark: int = 0) -> Part:
    return Part(partition_index=0, high_watermark=high_watermark, log_start_offset=0, records=b"")


def run(path: Path, test: Callable[[FetcherBench], object], **topic: str) -> None:
    async def main() -> None:
        async with fetcher_bench(path, **topic) as at:
            await cast("asyncio.Future[None]", test(at))

    asyncio.run(main())


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def test_the_first_fetch_is_full_and_each_later_one_goes_on_from_the_end_of_the_log(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        at.leader.put(records(0))
        at.leader.put(records(2, high_watermark=2))
        at.leader.put(records(4, high_watermark=4))
        await at.follow()
        await eventually(lambda: len(at.leader.frames) == 3)
        assert at.offsets == [0, 1, 2, 3, 4, 5]
        assert at.log.high_watermark == 4
        assert [fetch.session_epoch for fetch in at.leader.fetches] == [0]
        assert [(fetch.session_epoch, fetch.positions[0].fetch_offset) for fetch in at.leader.frames] == [
            (1, 2),
            (2, 4),
            (3, 6),
        ]

    run(tmp_path, test)


def test_after_an_error_the_partition_rests_and_then_fetches_again(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        at.leader.put(nothing())
        at.leader.put(Part(partition_index=0, error_code=NotLeaderOrFollower.code, high_watermark=-1, records=b""))
        await at.follow()
        following = at.at.hosted.follower_state
        assert following is not None
        await eventually(lambda: following.rests_until_ms > 0)
        assert at.offsets == []
        at.at.context.clock.ms += 1000  # type: ignore[attr-defined]
        at.leader.put(nothing())
        at.leader.put(records(0))
        await eventually(lambda: at.offsets == [0, 1])

    run(tmp_path, test)


def test_a_wall_clock_that_jumps_back_an_hour_does_not_make_it_rest_for_an_hour(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        clock = at.at.context.clock
        assert isinstance(clock, ManualClock)
        at.leader.put(nothing())
        at.leader.put(Part(partition_index=0, error_code=NotLeaderOrFollower.code, high_watermark=-1, records=b""))
        await at.follow()
        following = at.at.hosted.follower_state
        assert following is not None
        await eventually(lambda: following.rests_until_ms > 0)
        clock.ms += 1000
        clock.ahead_ms = -3_600_000
        at.leader.put(nothing())
        at.leader.put(records(0))
        await eventually(lambda: at.offsets == [0, 1])

    run(tmp_path, test)


def test_records_that_the_leader_does_not_have_are_truncated_and_remembered(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        at.log.append_as_leader(batch(3), 0)
        diverging = FetchResponse.EpochEndOffset(epoch=0, end_offset=1)
        part = nothing()
        part.diverging_epoch = diverging
        at.leader.put(nothing())
        at.leader.put(part)
        at.leader.put(records(0, epoch=1))
        await at.follow(epoch=1)
        await eventually(lambda: bool(at.at.hosted.history.truncations))
        (truncation,) = at.at.hosted.history.truncations
        assert (truncation.log_end, truncation.leader, truncation.warning) == (3, LEADER, None)
        assert truncation.to_offset < 3

    run(tmp_path, test)


def test_a_position_out_of_range_is_resolved_by_list_offsets(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        at.log.append_as_leader(batch(1), 0)
        at.log.append_as_leader(batch(1), 0)
        at.leader.latest = 1
        at.leader.put(Part(partition_index=0, error_code=OffsetOutOfRange.code, high_watermark=-1, records=b""))
        at.leader.put(nothing())
        at.leader.put(records(1, epoch=1))
        await at.follow(epoch=1)
        await eventually(lambda: at.offsets == [0, 1, 2])
        assert at.state is FetchState.FETCHING

    run(tmp_path, test)


def test_after_a_lost_connection_the_next_fetch_is_full_again(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        at.leader.put(records(0))
        await at.follow()
        await eventually(lambda: len(at.leader.frames) == 1)
        at.leader.put(records(2))
        at.fetcher.break_off()
        following = at.at.hosted.follower_state
        assert following is not None
        await eventually(lambda: at.offsets == [0, 1, 2, 3] or following.rests_until_ms > 0)
        at.at.context.clock.ms += 1000  # type: ignore[attr-defined]
        await eventually(lambda: at.offsets == [0, 1, 2, 3])
        assert at.leader.closed

    run(tmp_path, test)


def test_a_bug_on_one_response_does_not_end_the_fetcher(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def test(at: FetcherBench) -> None:
        at.leader.parts.append(ZeroDivisionError("on hearing it"))
        at.leader.put(records(0))
        await at.follow()
        following = at.at.hosted.follower_state
        assert following is not None
        await eventually(lambda: following.rests_until_ms > 0)
        at.at.context.clock.ms += 1000  # type: ignore[attr-defined]
        await eventually(lambda: at.offsets == [0, 1])

    run(tmp_path, test)
    assert f"a bug in fetching from broker {LEADER}" in caplog.text


def test_a_partition_that_is_forgotten_is_changed_no_longer(tmp_path: Path) -> None:
    async def test(at: FetcherBench) -> None:
        at.leader.put(records(0))
        await at.follow()
        await eventually(lambda: len(at.leader.frames) == 1)
        await at.fetcher.forget(TP)
        at.leader.put(records(2))
        at.leader.put()
        await eventually(lambda: len(at.leader.fetches) == 2)
        assert at.offsets == [0, 1]
        assert [topic.partitions for topic in at.leader.fetches[1].forgotten_topics_data] == [[0]]

    run(tmp_path, test)


def test_what_was_applied_before_the_task_took_over_is_not_applied_again(tmp_path: Path) -> None:
    """The records of the second partition are corrupt: the task goes over the whole response."""

    async def test(at: FetcherBench) -> None:
        other = TopicPartition(TP.topic, 1)
        second = at.at.hosted.__class__(await at.at.dirs.create(other, None), at.at.context, at.at.hosted._alterations)
        second.follower_state, effects = follow(second.log, 0, topic_id=TOPIC_ID.bytes, partition=1)
        assert effects is not NOTHING
        await at.fetcher.follow(other, FollowedPartition(second.follower_state, second), effects)
        at.leader.put(nothing(), Part(partition_index=1, high_watermark=0, log_start_offset=0, records=b""))
        await at.follow()
        await eventually(lambda: len(at.leader.frames) == 1)
        broken = bytearray(at_offset(batch(2), 0))
        broken[-1] ^= 1
        at.leader.put(records(0), Part(partition_index=1, high_watermark=0, log_start_offset=0, records=bytes(broken)))
        state = second.follower_state
        await eventually(lambda: state.rests_until_ms > 0)
        assert at.offsets == [0, 1]
        assert (second.log.log_end, at.state) == (0, FetchState.FETCHING)
        at.leader.put(records(2))
        await eventually(lambda: at.offsets == [0, 1, 2, 3])

    run(tmp_path, test)


def test_a_first_batch_that_a_deletion_has_cut_is_taken_from_a_session_as_well(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log of the leader starts within a batch: its first record lies before the position of the fetch."""

    async def test(at: FetcherBench) -> None:
        at.log.truncate_fully_and_start_at(3)
        at.leader.put(nothing())
        await at.follow()
        await eventually(lambda: len(at.leader.frames) == 1)
        cut = records(0, high_watermark=5, count=5)
        cut.log_start_offset = 3
        at.leader.put(cut)
        following = at.at.hosted.follower_state
        assert following is not None
        await eventually(lambda: at.log.log_end == 5 or following.rests_until_ms > 0)
        assert (at.log.log_end, at.state) == (5, FetchState.FETCHING)

    run(tmp_path, test)
    assert "a bug in" not in caplog.text

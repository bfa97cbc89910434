"""A partition on its broker: what an append does, and whom it reaches, and when."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from leadline.errors import NotEnoughReplicas, NotLeaderOrFollower, RequestTimedOut, WireError
from leadline.replication.partition import LeaderAndIsr
from leadline.replication.watchers import Watcher
from tests.support import in_memory
from tests.support.hosted import FOLLOWER, ME, Partition, partition
from tests.support.logs import batch

ALL, LONG_S = -1, 600.0


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(path: Path, test: Callable[[Partition], Awaitable[None]], **topic: str) -> None:
    async def main() -> None:
        async with partition(path, **topic) as hosting:
            await test(hosting)

    asyncio.run(main())


class WaitingRequest:
    """A request that waits: counts and keeps the calls it gets."""

    def __init__(self) -> None:
        self.errors: list[WireError | None] = []
        self.evaluations = 0
        self.fresh: dict[object, None] = {}
        self.waiting: Callable[[], None] | None = self.evaluate

    def evaluate(self) -> None:
        self.evaluations += 1


def test_a_produce_is_acknowledged_once_the_followers_have_it_and_the_requests_are_served(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        waiter, hosted = WaitingRequest(), at.hosted
        appended = hosted.append_as_leader(batch(2), acks=ALL)
        hosted.once_committed(appended.last_offset + 1, LONG_S, waiter.errors.append)

        def serve() -> None:
            at.fetched(2)
            assert (hosted.log.high_watermark, waiter.errors) == (2, [])

        at.serve(serve)
        assert waiter.errors == [None]

    run(tmp_path, test)


def test_a_fetch_that_waits_is_evaluated_once_for_all_appends_of_one_read(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        waiter = WaitingRequest()
        at.hosted.watchers(of_log_end=True).add(Watcher(waiter, "key"))

        def serve() -> None:
            at.hosted.append_as_leader(batch(1))
            at.hosted.append_as_leader(batch(1))
            assert (waiter.fresh, waiter.evaluations) == ({"key": None}, 0)

        at.serve(serve)
        assert waiter.evaluations == 1

    run(tmp_path, test)


def test_a_consumer_is_woken_by_the_high_watermark_and_not_by_the_end_of_the_log(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        waiter = WaitingRequest()
        at.hosted.watchers(of_log_end=False).add(Watcher(waiter, "key"))
        at.serve(lambda: at.hosted.append_as_leader(batch(1)))
        assert waiter.evaluations == 0
        at.serve(lambda: at.fetched(1))
        assert waiter.evaluations == 1

    run(tmp_path, test)


def test_outside_of_requests_the_loop_acknowledges(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        waiter = WaitingRequest()
        at.hosted.append_as_leader(batch(1))
        at.hosted.once_committed(1, LONG_S, waiter.errors.append)
        at.fetched(1)
        assert waiter.errors == []
        await asyncio.sleep(0)
        assert waiter.errors == [None]

    run(tmp_path, test)


def test_a_wait_that_is_too_long_ends_with_a_timeout(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        done = asyncio.get_running_loop().create_future()
        at.hosted.append_as_leader(batch(1))
        at.hosted.once_committed(1, 0.01, done.set_result)
        assert isinstance(await done, RequestTimedOut)

    run(tmp_path, test)


def test_waiting_produces_fail_when_another_broker_leads(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        waiter = WaitingRequest()
        at.hosted.append_as_leader(batch(1))
        at.hosted.once_committed(1, LONG_S, waiter.errors.append)
        deleted = asyncio.create_task(at.hosted.deleted(1))
        await asyncio.sleep(0)
        assert at.hosted.resign()
        assert not at.hosted.resign()
        with pytest.raises(NotLeaderOrFollower):
            await deleted
        assert [type(error) for error in waiter.errors] == [NotLeaderOrFollower]
        with pytest.raises(NotLeaderOrFollower):
            at.hosted.append_as_leader(batch(1))

    run(tmp_path, test)


@pytest.mark.parametrize("state", ["is_switching", "is_fenced"])
def test_nothing_is_appended_while_the_log_is_replaced_or_another_may_lead(tmp_path: Path, state: str) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME)
        setattr(at.hosted, state, True)
        with pytest.raises(NotLeaderOrFollower):
            at.hosted.append_as_leader(batch(1))
        assert at.hosted.log.log_end == 0

    run(tmp_path, test)


def test_too_few_in_sync_refuse_an_append_for_all_and_no_other(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.hosted.elected(LeaderAndIsr(ME, 0, (ME,)), (ME, FOLLOWER))
        with pytest.raises(NotEnoughReplicas):
            at.hosted.append_as_leader(batch(1), acks=ALL)
        assert at.hosted.append_as_leader(batch(1)).last_offset == 0

    run(tmp_path, test, **{"min.insync.replicas": "2"})


def test_a_deletion_waits_until_the_followers_have_deleted_too(tmp_path: Path) -> None:
    async def test(at: Partition) -> None:
        at.lead(ME, FOLLOWER)
        at.hosted.append_as_leader(batch(2))
        at.fetched(2)
        at.hosted.log.delete_records(2)
        deleted = asyncio.create_task(at.hosted.deleted(2))
        await asyncio.sleep(0)
        assert not deleted.done()
        at.fetched(2, log_start=2)
        await deleted

    run(tmp_path, test)

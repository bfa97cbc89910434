"""The runtime of a coordinator on real logs: shards, records, and waiting until records are committed."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from uuid import UUID

import pytest

from leadline.coordinator.runtime import (
    RECORD_OVERHEAD_BYTES,
    CoordinatorRuntime,
    InternalTopic,
    partition_for,
    tombstone_batches,
)
from leadline.errors import CoordinatorLoadInProgress, LogDirFailed, NotCoordinator, RequestTimedOut, WireError
from leadline.model import LeaderEpoch, TopicPartition
from leadline.records.batch import Header
from leadline.records.record import Record
from leadline.replication.partition import ANY_EPOCH, LeaderAndIsr
from leadline.replication.replicas import Replicas
from leadline.wire.fetch_position import NO_TOPIC_ID, FetchPosition
from tests.support import in_memory
from tests.support.dirs import log_dirs, opened
from tests.support.logs import ManualClock
from tests.support.settings import live_settings

TP = TopicPartition("__journal", 0)


class Shard:
    def __init__(self, partition: int, epoch: LeaderEpoch) -> None:
        self.partition, self.epoch = partition, epoch
        self.values: dict[bytes | None, bytes | None] = {}
        self.events: list[str] = []

    def replay(self, header: Header, records: Iterable[Record]) -> None:
        self.values |= {record.key: record.value for record in records}

    def loaded(self) -> None:
        self.events.append("loaded")

    def unloaded(self) -> None:
        self.events.append("unloaded")


Runtime = CoordinatorRuntime[Shard]


@pytest.fixture
def place() -> Iterator[Path]:
    yield from in_memory.directory()


def run(
    place: Path,
    test: Callable[[Runtime, Replicas], Awaitable[None]],
    partition_count: int | None = 1,
    timeout_ms: int = 0,
) -> None:
    async def main() -> None:
        clock = ManualClock()
        async with opened(log_dirs(place, clock=clock)) as dirs:
            replicas = Replicas(dirs, 1, live_settings())
            topic = InternalTopic(TP.topic, lambda: partition_count, lambda: 1, lambda: 1000, lambda: timeout_ms)
            runtime = CoordinatorRuntime(topic, replicas, clock, Shard)
            await test(runtime, replicas)
            await runtime.stop()

    asyncio.run(main())


async def lead(runtime: Runtime, replicas: Replicas, epoch: int, in_sync: tuple[int, ...] = (1,)) -> Shard:
    await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, epoch, in_sync), in_sync)
    with pytest.raises(CoordinatorLoadInProgress):
        runtime.shard_of("key")
    await asyncio.gather(*runtime._loading.values())
    return runtime.shard_of("key")


def test_a_shard_loads_is_active_and_unloads(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        with pytest.raises(NotCoordinator):
            runtime.shard_of("key")
        first = await lead(runtime, replicas, 1)
        for n in range(100):
            runtime.write(0, [(b"key %d" % n, b"x" * 100)])
        runtime.write_tombstones(0, [b"key 7"])
        second = await lead(runtime, replicas, 2)
        assert (first.events, second.events) == (["loaded", "unloaded"], ["loaded"])
        assert (second.epoch, len(second.values), second.values[b"key 7"]) == (2, 100, None)
        assert runtime.is_active(0, second)
        await replicas.release(TP)
        assert not runtime.is_active(0, second)
        with pytest.raises(NotCoordinator):
            runtime.shard_of("key")
        assert second.events == ["loaded", "unloaded"]

    run(place, test)


def test_a_shard_serves_nothing_before_its_records_are_committed(place: Path) -> None:
    """The next leader may lack them, and decide anew."""

    async def test(runtime: Runtime, replicas: Replicas) -> None:
        await lead(runtime, replicas, 1, (1, 2))
        end = runtime.write(0, [(b"key", b"value")])
        await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, 2, (1, 2)), (1, 2))
        loading, hosted = runtime._loading[0], replicas.hosted[TP]
        assert await asyncio.wait([loading], timeout=0.2) == (set(), {loading})
        with pytest.raises(CoordinatorLoadInProgress):
            runtime.shard_of("key")
        marker = runtime.write(0, [(b"marker", b"of a transaction")])
        hosted.follower_fetched(2, FetchPosition(NO_TOPIC_ID, 0, 2, end, -1, 0, 0), ANY_EPOCH, None, 0)
        await loading
        assert runtime.shard_of("key").values == {b"key": b"value", b"marker": b"of a transaction"}
        assert not runtime.is_committed(0, marker)

    run(place, test)


def test_a_shard_that_waits_for_its_followers_is_unloaded_when_another_broker_leads(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        await lead(runtime, replicas, 1, (1, 2))
        runtime.write(0, [(b"key", b"value")])
        await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, 2, (1, 2)), (1, 2))
        loading = runtime._loading[0]
        await asyncio.sleep(0)
        await replicas.release(TP)
        await asyncio.wait([loading])
        assert not runtime.is_loading
        with pytest.raises(NotCoordinator):
            runtime.shard_of("key")

    run(place, test)


@pytest.mark.parametrize(("byte", "offline"), [(b"\x00", ["__journal-0"]), (None, [])])
def test_a_shard_whose_log_is_damaged_is_unloaded_and_its_partition_offline(
    place: Path, byte: bytes | None, offline: list[str]
) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        await lead(runtime, replicas, 1)
        runtime.write(0, [(b"key", b"value")])
        hosted = replicas.hosted[TP]
        segment = hosted.log.segments.active
        if byte is not None:
            segment.file.write(byte, segment.size - 2)
        await replicas.lead(TP, UUID(int=1), LeaderAndIsr(1, 2, (1,)), (1,))
        await asyncio.gather(*runtime._loading.values(), return_exceptions=True)
        assert not runtime.is_loading
        assert [str(log.tp) for log in replicas.dirs.offline_logs()] == offline
        assert (hosted.leader_state is None) is bool(offline)
        if offline:
            with pytest.raises(NotCoordinator):
                runtime.shard_of("key")

    run(place, test)


def test_a_failed_directory_unloads_its_shards(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        shard = await lead(runtime, replicas, 1)
        replicas.dirs.take_offline(LogDirFailed(str(place), "writing", OSError("gone")))
        assert shard.events == ["loaded", "unloaded"]
        with pytest.raises(NotCoordinator):
            runtime.shard_of("key")

    run(place, test)


def test_without_other_replicas_records_are_committed_at_once(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        await lead(runtime, replicas, 1)
        results: list[WireError | None] = []
        runtime.when_committed(0, runtime.write(0, [(b"k", b"v")]), results.append)
        assert results == [None]

    run(place, test)


def test_records_that_the_other_replicas_do_not_get_in_time_are_an_error(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        await lead(runtime, replicas, 1)
        result: asyncio.Future[WireError | None] = asyncio.get_running_loop().create_future()
        runtime.when_committed(0, runtime.write(0, [(b"k", b"v")]) + 1, result.set_result)
        error = await result
        assert isinstance(error, RequestTimedOut)
        assert "1 ms were not enough" in str(error)

    run(place, test, timeout_ms=1)


def test_what_waits_gets_an_error_once_another_broker_leads(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        await lead(runtime, replicas, 1)
        result: asyncio.Future[WireError | None] = asyncio.get_running_loop().create_future()
        runtime.when_committed(0, runtime.write(0, [(b"k", b"v")]) + 1, result.set_result)
        await asyncio.sleep(0)
        await replicas.release(TP)
        assert isinstance(await result, NotCoordinator)

    run(place, test, timeout_ms=120_000)


def test_a_topic_that_does_not_exist_has_the_configured_partitions(place: Path) -> None:
    async def test(runtime: Runtime, replicas: Replicas) -> None:
        assert {runtime.partition_of(f"key {n}") for n in range(50)} == {0}

    run(place, test, partition_count=None)


def test_keys_stay_in_their_partition_when_the_topic_grows() -> None:
    async def main(place: Path) -> None:
        counts: list[int | None] = [None, 3, 9]
        async with opened(log_dirs(place)) as dirs:
            topic = InternalTopic(TP.topic, lambda: counts[0], lambda: 5, lambda: 1000)
            runtime = CoordinatorRuntime(topic, Replicas(dirs, 1, live_settings()), ManualClock(), Shard)
            partitions = []
            while counts:
                partitions.append({runtime.partition_of(f"key {n}") for n in range(200)})
                counts.pop(0)
            assert partitions == [set(range(5)), set(range(3)), set(range(3))]

    for place in in_memory.directory():
        asyncio.run(main(place))


def test_the_partition_is_that_of_javas_hash() -> None:
    assert partition_for("polygenelubricants", 50) == 0  # its hash is Integer.MIN_VALUE
    assert partition_for("", 50) == 0
    assert partition_for("a", 50) == 97 % 50


TWO_RECORDS = 2 * (RECORD_OVERHEAD_BYTES + 1)


@pytest.mark.parametrize(("max_bytes", "sizes"), [(10_000, [5]), (TWO_RECORDS, [2, 2, 1]), (0, [1] * 5)])
def test_tombstones_are_split_into_batches_that_fit(max_bytes: int, sizes: list[int]) -> None:
    keys = [b"a", b"b", b"c", b"d", b"e"]
    batches = list(tombstone_batches(keys, max_bytes))
    assert [len(batch) for batch in batches] == sizes
    assert [key for batch in batches for key in batch] == keys


def test_without_keys_there_are_no_tombstones() -> None:
    assert list(tombstone_batches([], 100)) == []

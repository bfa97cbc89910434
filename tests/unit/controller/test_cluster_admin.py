"""The cluster of a single node: what is asked for is done wholly or not at all, whatever happens meanwhile."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from leadline.cluster.metadata_cache import CachedTopic
from leadline.controller.log_dir_reconciliation import FAR_PRODUCER_ID, first_producer_id
from leadline.controller.topics import Assignment
from leadline.coordination import znodes
from leadline.errors import RecordTooLarge, RequestTimedOut, TopicAlreadyExists, UnknownTopicOrPartition
from leadline.model import TopicPartition
from tests.support import in_memory
from tests.support.in_process import broker_in_process
from tests.support.logs import batch

Test = Callable[[], Awaitable[None]]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def run(test: Test) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_a_client_that_disconnects_leaves_nothing_half_done(tmp_path: Path) -> None:
    """However far the creation of a topic has come when its client is gone, the tree and the broker agree."""

    async def test() -> None:
        async with broker_in_process(tmp_path / "data") as broker:
            cluster = broker.services.cluster
            mine = ((cluster.metadata.me.id,),)
            for turns in range(12):
                name = f"topic-{turns}"
                asking = asyncio.create_task(cluster.create_topic(name, mine, {}))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
                await asyncio.gather(asking, *cluster.under_way, return_exceptions=True)
                exists = name in cluster.metadata.topics
                assert exists is await cluster.tree.exists(znodes.topic_path(name))
                assert exists is (TopicPartition(name, 0) in broker.services.replicas.hosted)
                if exists:
                    with pytest.raises(TopicAlreadyExists):
                        await cluster.create_topic(name, mine, {})

    run(test)


def test_a_deletion_that_a_crash_interrupts_goes_on_after_it(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_in_process(tmp_path / "data", crash=True) as broker:
            cluster = broker.services.cluster
            for name in ("doomed", "kept"):
                await cluster.create_topic(name, ((cluster.metadata.me.id,),) * 2, {})
                broker.services.replicas.append(TopicPartition(name, 0), batch(3))
            await cluster.tree.create(znodes.delete_topic_path("doomed"))
            await broker.dirs.deletion.delete(TopicPartition("doomed", 1))  # so far it came
        async with broker_in_process(tmp_path / "data") as broker:
            assert set(broker.services.cluster.metadata.topics) == {"kept"}
            assert {tp.topic for tp in broker.dirs.logs} == {"kept"}
            assert await broker.services.cluster.tree.children(znodes.DELETE_TOPICS) == []
            mine = ((broker.services.metadata.me.id,),)
            topic = await broker.services.cluster.create_topic("doomed", mine, {})
            assert broker.dirs.logs[TopicPartition(topic.name, 0)].log_end == 0

    run(test)


@pytest.mark.parametrize("crash", [False, True])
def test_the_settings_of_topics_hold_after_a_restart(tmp_path: Path, crash: bool) -> None:
    async def test() -> None:
        tp = TopicPartition("small", 0)
        async with broker_in_process(tmp_path / "data", crash=crash) as broker:
            cluster = broker.services.cluster
            await cluster.create_topic("small", ((cluster.metadata.me.id,),), {"max.message.bytes": "200"})
            broker.services.replicas.append(tp, batch())
            await cluster.alter_topic_config("small", lambda before: {**before, "cleanup.policy": "compact"})
        async with broker_in_process(tmp_path / "data") as broker:
            assert broker.dirs.logs[tp].config.compact
            with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes=200"):
                broker.services.replicas.append(tp, batch(size=500))

    run(test)


def test_changes_at_the_same_time_all_count(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_in_process(tmp_path / "data") as broker:
            cluster = broker.services.cluster
            mine = ((cluster.metadata.me.id,),)
            await cluster.create_topic("shared", mine, {})
            names = "flush.ms flush.messages retention.ms delete.retention.ms segment.ms min.insync.replicas".split()

            def adding(name: str) -> Callable[[Mapping[str, str]], dict[str, str]]:
                return lambda before: {**before, name: "1"}

            await asyncio.gather(*(cluster.alter_topic_config("shared", adding(name)) for name in names))
            assert set(cluster.configs.topics["shared"]) == set(names)
            counts: list[int] = []

            def one_more(topic: CachedTopic) -> Assignment:
                counts.append(len(topic.partitions))
                return mine

            await asyncio.gather(*(cluster.add_partitions("shared", one_more) for _ in range(5)))
            assert counts == [1, 2, 3, 4, 5]
            ids = await asyncio.gather(*(cluster.next_producer_id() for _ in range(2500)))
            assert len(set(ids)) == 2500

    run(test)


def test_every_start_begins_a_new_epoch_above_all_that_the_log_knows(tmp_path: Path) -> None:
    async def test() -> None:
        tp = TopicPartition("epochs", 0)
        for start in range(4):
            async with broker_in_process(tmp_path / "data", crash=bool(start % 2)) as broker:
                cluster = broker.services.cluster
                if not start:
                    await cluster.create_topic("epochs", ((cluster.metadata.me.id,),), {})
                broker.services.replicas.append(tp, batch())
                assert broker.services.replicas.hosted[tp].leader.epoch == start
                assert [entry.epoch for entry in broker.dirs.logs[tp].epochs.entries] == list(range(start + 1))

    run(test)


def test_a_name_is_taken_again_while_the_topic_before_it_is_still_going(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_in_process(tmp_path / "data") as broker:
            cluster = broker.services.cluster
            mine = ((cluster.metadata.me.id,),)
            for _ in range(5):
                before = await cluster.create_topic("again", mine, {})
                with pytest.raises(RequestTimedOut):
                    await cluster.delete_topic("again", 0)
                after = await cluster.create_topic("again", mine, {})
                assert before.id != after.id
                await cluster.delete_topic("again")

    run(test)


def test_a_topic_that_is_gone_is_not_known(tmp_path: Path) -> None:
    async def test() -> None:
        async with broker_in_process(tmp_path / "data") as broker:
            cluster = broker.services.cluster
            await cluster.create_topic("short", ((cluster.metadata.me.id,),), {})
            await asyncio.gather(*(cluster.delete_topic("short") for _ in range(3)), return_exceptions=True)
            with pytest.raises(UnknownTopicOrPartition):
                await cluster.delete_topic("short")
            with pytest.raises(UnknownTopicOrPartition):
                broker.services.replicas.append(TopicPartition("short", 0), batch())

    run(test)


def test_producer_ids_begin_far_from_kafkas_and_above_all_that_a_lost_tree_gave_out(tmp_path: Path) -> None:
    async def test() -> None:
        tp = TopicPartition("t", 0)
        async with broker_in_process(tmp_path / "one") as broker:
            cluster, replicas = broker.services.cluster, broker.services.replicas
            await cluster.create_topic("t", ((cluster.metadata.me.id,),), {})
            first = first_producer_id(cluster.metadata.cluster_id, ())
            assert first >= FAR_PRODUCER_ID
            for producer_id in (0, 999, first + 5000, (1 << 63) - 1):  # the last one by a client that makes up its own
                replicas.append(tp, batch(producer_id=producer_id))
            assert await cluster.next_producer_id() == first + 5000 + 1000
            assert await cluster.next_producer_id() == first + 5000 + 1001

    run(test)

"""Settings that change while a broker runs, by what its clients or its disk see of them: before, after, and back again.

`test_dynamic_settings` holds that every dynamic setting is either here or looked at there.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from random import Random
from types import MappingProxyType
from typing import NamedTuple

import pytest

from leadline.log.cleaner import cleanable
from leadline.log.log import Log
from leadline.model import TopicPartition
from leadline.records.batch import HEADER_BYTES, walk
from leadline.records.build import build
from leadline.records.compression import Codec, compress
from leadline.records.record import Record
from leadline.wire.messages import FetchRequest, FetchResponse
from tests.support.ahead_clock import AheadClock
from tests.support.in_memory_broker import InMemoryClient, run
from tests.support.logs import batch, whole_log
from tests.support.waiting import eventually

OK, MESSAGE_TOO_LARGE, NOT_ENOUGH_REPLICAS, INVALID_TIMESTAMP, UNSUPPORTED_VERSION = 0, 10, 19, 32, 35
INVALID_RECORD = 87
Look = Callable[[InMemoryClient, TopicPartition], Awaitable[object]]


def now_ms(client: InMemoryClient) -> int:
    return client.broker.clock.now_ms()


def log_of(client: InMemoryClient, tp: TopicPartition) -> Log:
    return client.broker.replicas.hosted[tp].log


async def write(client: InMemoryClient, tp: TopicPartition, *, size: int = 100, key: str | None = "k") -> int:
    """The error code."""
    data = batch(size=size, key=key, timestamp=now_ms(client))
    return (await client.produce(tp, data)).error_code


def writing(*, size: int = 100, key: str | None = "k", early_ms: int = 0) -> Look:
    """The error code of a produce whose timestamp is that early."""

    async def look(client: InMemoryClient, tp: TopicPartition) -> int:
        data = batch(size=size, key=key, timestamp=now_ms(client) - early_ms)
        return (await client.produce(tp, data)).error_code

    return look


async def append_time_returned(client: InMemoryClient, tp: TopicPartition) -> bool:
    return (await client.produce(tp)).log_append_time_ms != -1


async def codec_on_disk(client: InMemoryClient, tp: TopicPartition) -> Codec:
    await write(client, tp, size=1000)
    (_, header), *_ = walk(whole_log(log_of(client, tp)))
    return Codec(header.attributes & 7)


async def segments_of_a_large_log(client: InMemoryClient, tp: TopicPartition) -> int:
    for _ in range(3):
        await write(client, tp, size=5000)
    return len(log_of(client, tp).segments)


async def segments_after_a_second(client: InMemoryClient, tp: TopicPartition) -> int:
    await write(client, tp)
    pass_second(client)
    await write(client, tp)
    return len(log_of(client, tp).segments)


def pass_second(client: InMemoryClient) -> None:
    assert isinstance(client.broker.clock, AheadClock)
    client.broker.clock.ahead_ms += 1000


async def index_entries(client: InMemoryClient, tp: TopicPartition) -> int:
    for _ in range(4):
        await write(client, tp)
    return len(log_of(client, tp).segments.active.offset_index.entries())


async def is_flushed(client: InMemoryClient, tp: TopicPartition) -> bool:
    await write(client, tp)
    return log_of(client, tp).recovery_point == 1


async def is_flushed_by_the_task(client: InMemoryClient, tp: TopicPartition) -> bool:
    await write(client, tp)
    pass_second(client)
    await client.broker.log_tasks.flush_dirty()
    await client.broker.dirs.dir_of(log_of(client, tp)).disk.drain()
    return log_of(client, tp).recovery_point == 1


async def start_after_retention(client: InMemoryClient, tp: TopicPartition) -> int:
    for _ in range(2):
        await write(client, tp)
        log_of(client, tp).roll()
    pass_second(client)
    await client.broker.log_tasks.delete_old_segments()
    return log_of(client, tp).log_start


async def is_preallocated(client: InMemoryClient, tp: TopicPartition) -> bool:
    await write(client, tp)
    segment = log_of(client, tp).roll()
    return client.broker.files.size(segment.file.fd) == log_of(client, tp).config.segment_bytes


async def old_fetch(client: InMemoryClient, tp: TopicPartition) -> int:
    """The error code for a consumer from before Kafka 0.11."""
    await write(client, tp)
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topic = FetchRequest.FetchTopic(topic=tp.topic, partitions=[part])
    response = await client.send(FetchRequest(max_bytes=1000, topics=[topic]), FetchResponse, 3)
    return response.responses[0].partitions[0].error_code


async def unverified_write(client: InMemoryClient, tp: TopicPartition) -> int:
    """The error code of a transaction whose coordinator does not exist, so that nobody can verify it."""
    data = batch(producer_id=7, transactional=True, timestamp=now_ms(client))
    return (await client.produce(tp, data, transactional_id="shop")).error_code


async def producers_after_a_second(client: InMemoryClient, tp: TopicPartition) -> int:
    await client.produce(tp, batch(producer_id=7, timestamp=now_ms(client)))
    pass_second(client)
    await client.broker.log_tasks.expire_producers()
    return len(log_of(client, tp).producer_state)


async def admitted_connections(client: InMemoryClient, tp: TopicPartition) -> list[bool]:
    """Whether a first and a second connection from an address are admitted."""
    quotas = client.broker.net._quotas
    first = quotas.admits("10.0.0.9")
    quotas.opened("PLAINTEXT", "10.0.0.9")
    second = quotas.admits("10.0.0.9")
    quotas.closed("PLAINTEXT", "10.0.0.9")
    return [first, second]


async def write_without_the_follower(client: InMemoryClient, tp: TopicPartition) -> int:
    """The error code of a produce to a partition whose other replica is on a broker that does not run."""
    me, replicated = client.broker.metadata.me.id, TopicPartition(f"{tp.topic}-replicated", 0)
    await client.broker.cluster.create_topic(replicated.topic, ((me, me + 1),), {})
    return await write(client, replicated)


def level_on_disk(codec: Codec, *levels: int) -> Look:
    """The one of these levels at which the leader has compressed a batch."""

    async def look(client: InMemoryClient, tp: TopicPartition) -> int:
        words = Random(1)
        values = [b" ".join(words.choices((b"anna", b"ben", b"pears", b"plums", b"seven"), k=40)) for _ in range(100)]
        sent = build([Record(n, now_ms(client), b"k", value) for n, value in enumerate(values)])
        await client.produce(tp, sent)
        stored = whole_log(log_of(client, tp))
        bodies = [compress(codec, bytes(sent[HEADER_BYTES:]), level) for level in levels]
        assert len(set(bodies)) == len(levels)
        return levels[bodies.index(stored[HEADER_BYTES:])]

    return look


async def segments_of_small_indexes(client: InMemoryClient, tp: TopicPartition) -> int:
    for _ in range(4):
        await write(client, tp)
    return len(log_of(client, tp).segments)


async def jitter_is_drawn(client: InMemoryClient, tp: TopicPartition) -> bool:
    await write(client, tp)
    return log_of(client, tp).roll().jitter_ms > 0


async def removed_files(client: InMemoryClient, tp: TopicPartition) -> int:
    """The files that retention has removed, and that are still there a moment later."""
    assert await start_after_retention(client, tp) == 2
    log = log_of(client, tp)
    await client.broker.dirs.dir_of(log).disk.drain()
    await passed(0.01)  # twice the shorter delay
    await client.broker.dirs.dir_of(log).disk.drain()
    return sum(name.endswith(".log.deleted") for name in client.broker.files.listdir(log.directory))


async def passed(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + seconds
    await eventually(lambda: loop.time() > deadline_s)


def is_cleaned_next(clean_segments: int) -> Look:
    """Whether a log of three equal segments is due, if this many of them are clean. Its records are a second old."""

    async def look(client: InMemoryClient, tp: TopicPartition) -> bool:
        log = log_of(client, tp)
        for _ in range(3):
            await write(client, tp)
            log.roll()
        pass_second(client)
        candidate = cleanable(log, clean_segments, now_ms(client))
        return candidate is not None and candidate.due

    return look


async def unclean_election_is_allowed(client: InMemoryClient, tp: TopicPartition) -> bool:
    return await client.broker.controller._allow_unclean([tp.topic]) == [tp.topic]


class Effect(NamedTuple):
    value: str
    look: Look
    before: object
    after: object
    configs: Mapping[str, str] = MappingProxyType({})  # of the topic


EFFECTS = {
    "message.max.bytes": Effect("500", writing(size=1000), OK, MESSAGE_TOO_LARGE),
    "log.cleanup.policy": Effect("compact", writing(key=None), OK, INVALID_RECORD),
    "log.message.timestamp.after.max.ms": Effect("1000", writing(early_ms=-60_000), OK, INVALID_TIMESTAMP),
    "log.message.timestamp.before.max.ms": Effect("1000", writing(early_ms=60_000), OK, INVALID_TIMESTAMP),
    "log.message.timestamp.type": Effect("LogAppendTime", append_time_returned, False, True),
    "log.message.downconversion.enable": Effect("false", old_fetch, OK, UNSUPPORTED_VERSION),
    "compression.type": Effect("zstd", codec_on_disk, Codec.NONE, Codec.ZSTD),
    "log.segment.bytes": Effect("6000", segments_of_a_large_log, 1, 3),
    "log.roll.ms": Effect("500", segments_after_a_second, 1, 2),
    "log.index.interval.bytes": Effect("10", index_entries, 0, 3),
    "log.flush.interval.messages": Effect("1", is_flushed, False, True),
    "log.flush.interval.ms": Effect("500", is_flushed_by_the_task, False, True),
    "log.retention.ms": Effect("500", start_after_retention, 0, 2),
    "log.retention.bytes": Effect("100", start_after_retention, 0, 1),
    "log.preallocate": Effect("true", is_preallocated, False, True),
    "transaction.partition.verification.enable": Effect("false", unverified_write, NOT_ENOUGH_REPLICAS, OK),
    "producer.id.expiration.ms": Effect("500", producers_after_a_second, 1, 0),
    "min.insync.replicas": Effect("2", write_without_the_follower, OK, NOT_ENOUGH_REPLICAS),
    "compression.gzip.level": Effect("1", level_on_disk(Codec.GZIP, -1, 1), -1, 1, {"compression_type": "gzip"}),
    "compression.lz4.level": Effect("3", level_on_disk(Codec.LZ4, 9, 3), 9, 3, {"compression_type": "lz4"}),
    "compression.zstd.level": Effect("9", level_on_disk(Codec.ZSTD, 3, 9), 3, 9, {"compression_type": "zstd"}),
    "log.index.size.max.bytes": Effect("16", segments_of_small_indexes, 1, 4, {"index_interval_bytes": "0"}),
    "log.roll.jitter.ms": Effect("3600000", jitter_is_drawn, False, True),
    "log.segment.delete.delay.ms": Effect("5", removed_files, 2, 0, {"retention_ms": "500"}),
    "log.cleaner.min.cleanable.ratio": Effect("0.7", is_cleaned_next(1), True, False),
    "log.cleaner.min.compaction.lag.ms": Effect("60000", is_cleaned_next(1), True, False),
    "log.cleaner.max.compaction.lag.ms": Effect("500", is_cleaned_next(2), False, True),
    "unclean.leader.election.enable": Effect("true", unclean_election_is_allowed, False, True),
    "max.connections.per.ip": Effect("1", admitted_connections, [True, True], [True, False]),
    "max.connections.per.ip.overrides": Effect("10.0.0.9:1", admitted_connections, [True, True], [True, False]),
}
_topics = count()


@pytest.mark.parametrize("name", EFFECTS)
def test_a_changed_setting_takes_effect_at_once_and_so_does_the_old_one_again(name: str) -> None:
    value, look, before, after, configs = EFFECTS[name]

    async def test(client: InMemoryClient) -> None:
        steps: list[tuple[dict[str, str], object]] = [({}, before), ({name: value}, after), ({}, before)]
        for settings, expected in steps:
            await client.broker.cluster.alter_broker_config(partial(dict, settings), of_all=True)
            topic = f"topic{next(_topics)}"
            await client.create(topic, 1, **configs)
            assert await look(client, TopicPartition(topic, 0)) == expected, settings

    run(test, AheadClock())

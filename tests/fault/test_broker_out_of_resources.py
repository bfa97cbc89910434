"""A broker that runs out of descriptors or disk space: who asks for more is told, and everybody else is served."""

import asyncio
import errno
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from leadline.log.open_files import connection_capacity
from leadline.model import Buffer, TopicPartition
from leadline.runtime.ports import OsFiles
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection, produced
from tests.support import in_memory
from tests.support.broker import RunningBroker, leadline, until_killed
from tests.support.in_process import broker_in_process
from tests.support.logs import batch, records_in
from tests.support.waiting import until

DESCRIPTORS, PARTITIONS = 160, 200
NONE, STORAGE_ERROR = 0, 56


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    yield from in_memory.directory()


def create(connection: Connection, name: str, partitions: int) -> CreateTopicsResponse.CreatableTopicResult:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    return connection.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics[0]


def produce(connection: Connection, topic: str, partition: int, data: Buffer) -> int:
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[produced(topic, bytes(data), partition)])
    answer = connection.ask(ProduceResponse, request, 9)
    return answer.responses[0].partition_responses[0].error_code


def fetch(connection: Connection, topic: str, partition: int) -> int:
    """The records that are there; an answer has those of one segment."""
    count = 0
    while True:
        position = FetchRequest.FetchPartition(partition=partition, fetch_offset=count, partition_max_bytes=1 << 20)
        topics = [FetchRequest.FetchTopic(topic=topic, partitions=[position])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, session_epoch=-1, topics=topics)
        part = connection.ask(FetchResponse, request, 11).responses[0].partitions[0]
        assert part.error_code == NONE
        if not part.records:
            return count
        count += len(records_in(bytes(part.records)))  # type: ignore[arg-type]


def open_files(broker: RunningBroker) -> int:
    return len(os.listdir(f"/proc/{broker.pid}/fd"))


def test_a_broker_with_few_descriptors_serves_many_partitions(tmp_path: Path) -> None:
    """Created, written to over several segments, stopped, started, killed, recovered and read."""
    settings = {"log.segment.bytes": "300", "log.index.interval.bytes": "50"}
    with until_killed(RunningBroker(tmp_path / "data", settings, DESCRIPTORS)) as broker:
        for end in (broker.stop, broker.kill):
            with closing(Connection("localhost", broker.port)) as connection:
                if end == broker.stop:
                    assert create(connection, "many", PARTITIONS).error_code == NONE
                for partition in range(PARTITIONS):
                    for _ in range(3):
                        assert produce(connection, "many", partition, batch(size=200)) == NONE
                    assert open_files(broker) < DESCRIPTORS
            end()
            broker.start()
        with closing(Connection("localhost", broker.port)) as connection:
            assert [fetch(connection, "many", partition) for partition in range(PARTITIONS)] == [6] * PARTITIONS
        assert broker.stop() == 0
        assert "offline" not in broker.output()


def test_connections_leave_descriptors_for_the_logs(tmp_path: Path) -> None:
    with until_killed(RunningBroker(tmp_path / "data", {}, DESCRIPTORS)) as broker, ExitStack() as crowd:
        connection = crowd.enter_context(closing(Connection("localhost", broker.port)))
        assert create(connection, "before", 40).error_code == NONE
        for partition in range(40):
            assert produce(connection, "before", partition, batch()) == NONE
        for _ in range(connection_capacity(DESCRIPTORS) + 20):  # some of them wait
            crowd.enter_context(socket.create_connection(("localhost", broker.port)))
        until(lambda: "ulimit -n" in broker.output())
        assert create(connection, "after", 40).error_code == NONE
        assert [produce(connection, "after", partition, batch()) for partition in range(40)] == [NONE] * 40
        assert [fetch(connection, "before", partition) for partition in range(40)] == [1] * 40
        crowd.close()
        with closing(Connection("localhost", broker.port)) as another:
            assert fetch(another, "after", 0) == 1
        assert broker.stop() == 0


class Filling(OsFiles):
    """A disk that the test fills and empties."""

    full = False

    def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
        if self.full and flags & os.O_CREAT and not os.path.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        return super().open(path, flags, mode)

    def pwrite(self, fd: int, data: Buffer, position: int, /) -> int:  # type: ignore[override]
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return os.pwrite(fd, data, position)


def test_a_full_disk_refuses_writes_and_new_topics_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = Filling()

    async def scenario() -> None:
        async with broker_in_process(tmp_path, files=disk) as broker:
            port = broker.addresses["PLAINTEXT"].port

            def with_a_full_disk() -> None:
                with closing(Connection("localhost", port)) as connection:
                    assert create(connection, "old", 2).error_code == NONE
                    assert produce(connection, "old", 0, batch()) == NONE
                    disk.full = True
                    assert produce(connection, "old", 0, batch()) == STORAGE_ERROR
                    assert fetch(connection, "old", 0) == 1
                    refused = create(connection, "new", 3)
                    assert refused.error_code == STORAGE_ERROR
                    assert "3 of 3 partitions of topic new could not be created" in (refused.error_message or "")
                    assert "the disk is full" in (refused.error_message or "")
                    assert not [name for name in os.listdir(tmp_path) if name.startswith("new-")]
                    disk.full = False
                    assert produce(connection, "old", 0, batch()) == NONE
                    assert fetch(connection, "old", 0) == 2
                    until(lambda: leaders(connection, "new") == [True] * 3, 60)
                    assert produce(connection, "new", 2, batch()) == NONE

            await asyncio.to_thread(with_a_full_disk)
            assert not broker.dirs.offline
            assert broker.dirs.uncreated == {}
            assert TopicPartition("new", 0) in broker.dirs.logs

    asyncio.run(scenario())


def leaders(connection: Connection, topic: str) -> list[bool]:
    topics = [MetadataRequest.MetadataRequestTopic(name=topic)]
    answer = connection.ask(MetadataResponse, MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)
    return [part.leader_id >= 0 and part.error_code == NONE for part in answer.topics[0].partitions]


def test_a_partition_that_cannot_be_opened_at_the_start_is_offline_and_named_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Short(OsFiles):
        def open(self, path: str, flags: int, mode: int = 0o644, /) -> int:
            if "broken-1/" in path and path.endswith(".log"):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
            return super().open(path, flags, mode)

    async def scenario() -> None:
        async with broker_in_process(tmp_path) as broker:
            me = broker.services.metadata.me.id
            await broker.cluster.create_topic("broken", ((me,), (me,)), {})
        async with broker_in_process(tmp_path, files=Short()) as broker:
            assert TopicPartition("broken", 0) in broker.dirs.logs
            (offline,) = broker.dirs.offline_logs()
            assert "broken-1 is offline" in str(offline)
            assert "raise ulimit -n" in str(offline)
            assert not broker.dirs.offline
        async with broker_in_process(tmp_path) as broker:
            assert {tp.partition for tp in broker.dirs.logs} == {0, 1}

    asyncio.run(scenario())


def test_the_soft_limit_of_descriptors_is_raised_at_the_start(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        with leadline(tmp_path / "data") as broker:
            assert resource.prlimit(broker.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("descriptors", range(6, 30, 4))
def test_a_start_with_hardly_any_descriptors_succeeds_or_says_in_one_line_what_is_short(
    descriptors: int, tmp_path: Path
) -> None:
    try:
        broker = RunningBroker(tmp_path / "data", {}, descriptors)
    except AssertionError as error:
        lines = str(error).splitlines()[1:]
        assert [line for line in lines if line.startswith("leadline: ")] == lines[-1:], lines
        assert "raise ulimit -n" in lines[-1]
    else:
        assert broker.stop() == 0

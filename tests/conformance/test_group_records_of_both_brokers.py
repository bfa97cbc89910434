"""The journal of groups: what Kafka wrote Leadline reads, and the other way round; both write the same records."""

import re
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from leadline.coordinator.runtime import partition_for
from leadline.records.batch import walk
from leadline.records.record import records_of
from leadline.wire.codec import decode
from leadline.wire.messages import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    GroupMetadataValue,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitValue,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.conformance.both import Both, Connection, Side
from tests.conformance.kafka.broker import broker, zookeeper
from tests.conformance.kafka.tools import tool
from tests.conformance.mirrored_group import committed_topic, coordinators, mirrored_group, subscription
from tests.conformance.test_requests_on_kafkas_directory import Client
from tests.support.broker import leadline
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

OFFSETS = "__consumer_offsets"
SETTINGS = {
    "broker.id": 3,
    "offsets.topic.num.partitions": 3,
    "offsets.topic.replication.factor": 1,
    "group.initial.rebalance.delay.ms": 0,
}
FORMATTERS = {
    name: f"kafka.coordinator.group.GroupMetadataManager${name}"
    for name in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
}


class Stay(NamedTuple):
    """A member that outlives the brokers."""

    group: str
    member_id: str
    generation: int


class Consumer:
    """What the test does with groups on either broker."""

    def __init__(self, connection: Connection) -> None:
        self.ask = connection.ask
        until(self._is_served)

    def _is_served(self) -> bool:
        coordinator = self.ask(
            FindCoordinatorResponse, FindCoordinatorRequest(coordinator_keys=["any"]), 4
        ).coordinators[0]
        return coordinator.error_code == 0 and self.ask(ListGroupsResponse, ListGroupsRequest(), 4).error_code == 0

    def join(self, group: str) -> Stay:
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            protocol_type="consumer",
            group_instance_id=f"static-{group}",
            protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
        )
        joined = self.ask(JoinGroupResponse, request, 9)
        assert joined.error_code == 0, joined
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"\0\0\0\0\0\0")
            ],
        )
        assert self.ask(SyncGroupResponse, sync, 5).error_code == 0
        return Stay(group, joined.member_id, joined.generation_id)

    def is_alive(self, stay: Stay) -> bool:
        request = HeartbeatRequest(group_id=stay.group, member_id=stay.member_id, generation_id=stay.generation)
        return self.ask(HeartbeatResponse, request, 4).error_code == 0

    def commit(self, group: str, *offsets: int, stay: Stay | None = None, retention_ms: int | None = None) -> None:
        request = OffsetCommitRequest(group_id=group, topics=[committed_topic("orders", *offsets)])
        if stay is not None:
            request.member_id, request.generation_id_or_member_epoch = stay.member_id, stay.generation
        if retention_ms is not None:
            request.retention_time_ms = retention_ms
        answer = self.ask(OffsetCommitResponse, request, 8 if retention_ms is None else 4)
        assert {partition.error_code for partition in answer.topics[0].partitions} == {0}, answer

    def state(self, *groups: str) -> object:
        """All that requests return about the groups."""
        described = self.ask(DescribeGroupsResponse, DescribeGroupsRequest(groups=list(groups)), 5)
        requested = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        fetched = self.ask(OffsetFetchResponse, OffsetFetchRequest(groups=requested), 8)
        offsets = {
            (group.group_id, topic.name, part.partition_index): (part.committed_offset, part.metadata)
            for group in fetched.groups
            for topic in group.topics
            for part in topic.partitions
        }
        listed = self.ask(ListGroupsResponse, ListGroupsRequest(), 4).groups
        return (
            described,
            offsets,
            sorted((group.group_id, group.group_state) for group in listed if group.group_id in groups),
        )


def printed(bootstrap: str, formatter: str) -> list[str]:
    """What Kafka's console consumer makes of the topic, which has no transactions: each offset is a record."""
    lines = list[str]()
    for row in tool("get-offsets", "--bootstrap-server", bootstrap, "--topic", OFFSETS).splitlines():
        _, partition, end = row.split(":")
        if int(end):
            lines += tool(
                "console-consumer", "--bootstrap-server", bootstrap, "--topic", OFFSETS, "--partition", partition,
                "--offset", "earliest", "--max-messages", end, "--formatter", FORMATTERS[formatter],
            ).splitlines()  # fmt: skip
    return sorted(re.sub(r"@[0-9a-f]+", "", line) for line in lines if "::" in line)


def test_groups_go_from_kafka_to_leadline_and_back(tmp_path: Path) -> None:
    groups = ("stable", "simple", "expires", "deleted", "ours")
    with zookeeper(tmp_path / "zookeeper") as coordinator:
        with (
            broker(tmp_path / "kafka", coordinator, **SETTINGS) as kafka,
            closing(Client("127.0.0.1", kafka.port)) as client,
        ):
            client.create(("orders", 3))
            theirs = Consumer(client.connection)
            stay = theirs.join("stable")
            theirs.commit("stable", 1, 2, stay=stay)
            theirs.commit("simple", 3)
            theirs.commit("simple", 4)
            theirs.commit("expires", 5, retention_ms=3_600_000)
            theirs.commit("deleted", 6)
            delete = DeleteGroupsRequest(groups_names=["deleted"])
            assert client.connection.ask(DeleteGroupsResponse, delete, 2).results[0].error_code == 0
            before = theirs.state(*groups)
            kafka.stop()

        with (
            leadline(kafka.log_dir, **SETTINGS) as ours,
            closing(Connection("localhost", ours.port)) as connection,
        ):
            us = Consumer(connection)
            assert us.state(*groups) == before
            assert us.is_alive(stay)
            us.commit("stable", 7, stay=stay)
            us.commit("simple", 8, 9)
            own = us.join("ours")
            us.commit("ours", 10, stay=own)
            between = us.state(*groups)
            formatted = {name: printed(ours.bootstrap, name) for name in FORMATTERS}
            assert ours.stop() == 0

        with (
            broker(tmp_path / "kafka", coordinator, **SETTINGS) as kafka,
            closing(Client("127.0.0.1", kafka.port)) as client,
        ):
            theirs = Consumer(client.connection)
            until(lambda: theirs.state(*groups) == between)
            assert theirs.is_alive(stay)
            assert theirs.is_alive(own)
            assert {name: printed(kafka.bootstrap, name) for name in FORMATTERS} == formatted
            assert " ERROR " not in kafka.log.read_text()
    offsets, metadata = formatted["OffsetsMessageFormatter"], formatted["GroupMetadataMessageFormatter"]
    assert any(line.startswith("[stable,orders,0]::OffsetAndMetadata(offset=7") for line in offsets), offsets
    assert any(line.startswith("[deleted,orders,0]::NULL") for line in offsets), offsets
    assert any(own.member_id in line and line.startswith("ours::") for line in metadata), metadata


def journal(side: Side, group: str) -> list[object]:
    """What a broker wrote about a group, but for times and for what is drawn by chance."""
    partition = partition_for(group, 50)
    part = FetchRequest.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 24)
    request = FetchRequest(topics=[FetchRequest.FetchTopic(topic=OFFSETS, partitions=[part])], max_bytes=1 << 24)
    data = side.ask(FetchResponse, request, 11).responses[0].partitions[0].records
    assert isinstance(data, memoryview)
    entries: list[object] = []
    for position, header in walk(data):
        records = [record for record in records_of(data, position, header) if group.encode() in (record.key or b"")]
        if records:
            fields = header.attributes, header.producer_id, header.producer_epoch, header.base_sequence
            entries += [(*fields, record.key, _value(record.key or b"", record.value)) for record in records]
    return entries


def _value(key: bytes, value: bytes | None) -> object:
    if value is None:
        return None
    version = int.from_bytes(value[:2], "big")
    if key[:2] == b"\0\2":
        group = decode(GroupMetadataValue, value, version, 2)
        group.current_state_timestamp = int(group.current_state_timestamp > 0)
        group.leader = (group.leader or "")[:-36]
        for member in group.members:
            member.member_id = member.member_id[:-36]
        return version, repr(group)
    commit = decode(OffsetCommitValue, value, version, 2)
    commit.commit_timestamp = int(commit.commit_timestamp > 0)
    commit.expire_timestamp = int(commit.expire_timestamp > 0)
    return version, repr(commit)


def test_both_write_the_same_records(both: Both) -> None:
    topic = both.create("journalled", 1)
    coordinators(both)
    with mirrored_group(both, "journalled-group") as group:
        member = group.alone(instance="i")
        member.commit(topic, 5)
        again = group.member("again", "i")
        again.join()
        for version in (1, 2, 5, 6, 8, 9):
            again.commit(topic, version, version=version)
        old = OffsetCommitRequest(group_id="journalled-group", topics=[committed_topic(topic, 7)])
        old.retention_time_ms = 1000
        old.member_id, old.generation_id_or_member_epoch = "", -1
        again.leave()
        group.until("Empty")
        both.ask_and_compare(OffsetCommitResponse, old, 3)
        both.ask_and_compare(DeleteGroupsResponse, DeleteGroupsRequest(groups_names=["journalled-group"]), 2)
    theirs, ours = both.map(lambda side: journal(side, "journalled-group"))
    assert len(theirs) > 10
    assert ours == theirs

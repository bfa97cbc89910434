"""OffsetCommit, OffsetFetch, OffsetDelete and TxnOffsetCommit, answered as Kafka does."""

from collections.abc import Iterator

import pytest

from leadline.wire.messages import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from tests.conformance.both import Both
from tests.conformance.mirrored_group import (
    MirroredGroup,
    committed_topic,
    coordinators,
    described,
    mirrored_group,
    subscription,
)
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

REBALANCE_IN_PROGRESS, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID = 27, 22, 25, 82
UNKNOWN_TOPIC_OR_PARTITION, OFFSET_METADATA_TOO_LARGE, INVALID_GROUP_ID = 3, 12, 24
NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC = 68, 69, 86

PARTITION = OffsetCommitRequest.OffsetCommitRequestPartition
TOPIC = OffsetCommitRequest.OffsetCommitRequestTopic
FETCH_TOPIC = OffsetFetchRequest.OffsetFetchRequestTopic
FETCH_TOPICS = OffsetFetchRequest.OffsetFetchRequestTopics
GROUP = OffsetFetchRequest.OffsetFetchRequestGroup


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return both.create("committed", 3)


@pytest.fixture
def group(both: Both, request: pytest.FixtureRequest) -> Iterator[MirroredGroup]:
    coordinators(both)
    with mirrored_group(both, request.node.name) as mirrored:
        yield mirrored


def fetch(both: Both, version: int, group: str, topics: dict[str, list[int]] | None) -> None:
    if version >= 8:
        requested = None if topics is None else [FETCH_TOPICS(name=t, partition_indexes=n) for t, n in topics.items()]
        request = OffsetFetchRequest(groups=[GROUP(group_id=group, topics=requested)])
    else:
        old = None if topics is None else [FETCH_TOPIC(name=t, partition_indexes=n) for t, n in topics.items()]
        request = OffsetFetchRequest(group_id=group, topics=old)
    both.ask_and_compare(OffsetFetchResponse, request, version)


def codes(answer: OffsetCommitResponse | TxnOffsetCommitResponse | OffsetDeleteResponse) -> list[int]:
    return [partition.error_code for topic in answer.topics for partition in topic.partitions]


@pytest.mark.parametrize("version", OffsetCommitRequest.VERSIONS)
def test_commits_without_a_group_are_answered_as_kafka_does(
    both: Both, group: MirroredGroup, topic: str, version: int
) -> None:
    """What a consumer that assigns partitions to itself does; version 0 goes into the tree."""
    read = 0 if version == 0 else 8
    everything = {topic: [0, 1, 2, 3, -1], "missing": [0]}
    for ask in (0, 1, read):
        fetch(both, ask, group.group, everything)
    partitions = [
        PARTITION(partition_index=0, committed_offset=10, committed_metadata="a note"),
        PARTITION(partition_index=1, committed_offset=0, committed_metadata=None),
        PARTITION(partition_index=2, committed_offset=1 << 62, committed_metadata="x" * 4096),
        PARTITION(partition_index=3, committed_offset=1),
        PARTITION(partition_index=-1, committed_offset=1),
    ]
    if version >= 6:
        partitions[0].committed_leader_epoch = 7
    if version == 1:
        partitions[0].commit_timestamp = 1_700_000_000_000
    topics = [TOPIC(name=topic, partitions=partitions), committed_topic("missing", 1), committed_topic("a b", 1)]
    request = OffsetCommitRequest(group_id=group.group, topics=topics)
    if 2 <= version <= 4:
        request.retention_time_ms = 3_600_000
    both.ask_and_compare(OffsetCommitResponse, request, version)
    for ask in (0, 1, 2, 7, 9):
        fetch(both, ask, group.group, everything)
        fetch(both, ask, group.group, {})
    for ask in (2, 5, 7, 8, 9):
        fetch(both, ask, group.group, None)
    group.describe()
    long = PARTITION(partition_index=2, committed_offset=11, committed_metadata="x" * 4097)
    wide = PARTITION(partition_index=1, committed_offset=11, committed_metadata="\U0001f980" * 2049)
    fits = PARTITION(partition_index=0, committed_offset=11, committed_metadata="\u00fc" * 4096)
    for some in ([long], [long, wide, fits]):
        both.ask_and_compare(
            OffsetCommitResponse,
            OffsetCommitRequest(group_id=group.group, topics=[TOPIC(name=topic, partitions=some)]),
            version,
        )
    fetch(both, read, group.group, everything)
    both.ask_and_compare(OffsetCommitResponse, OffsetCommitRequest(group_id=group.group), version)


@pytest.mark.parametrize("version", OffsetCommitRequest.VERSIONS[1:])
def test_commits_of_strangers_are_refused_as_kafka_does(
    both: Both, group: MirroredGroup, topic: str, version: int
) -> None:
    stranger = group.member("stranger")
    assert stranger.commit(topic, 1, version=version, generation=0) == [ILLEGAL_GENERATION]
    assert stranger.commit(topic, 1, version=version, generation=-1) == [0]
    assert stranger.commit(topic, 1, version=version, generation=0) == [UNKNOWN_MEMBER_ID]
    stranger.ids = ["nobody", "nobody"]
    assert stranger.commit(topic, 1, version=version, generation=-1) == [0]
    assert stranger.commit(topic, 1, version=version, generation=3) == [UNKNOWN_MEMBER_ID]
    nameless = OffsetCommitRequest(group_id="", topics=[committed_topic(topic, 5)])
    both.ask_and_compare(OffsetCommitResponse, nameless, version)
    fetch(both, 8, "", {topic: [0]})
    fetch(both, 5, "", None)


@pytest.mark.parametrize("version", OffsetCommitRequest.VERSIONS[1:])
def test_commits_of_members_count_in_their_own_generation_only(group: MirroredGroup, topic: str, version: int) -> None:
    member, stranger = group.alone(), group.member("stranger")
    assert member.commit(topic, 1, 2, version=version) == [0, 0]
    assert member.commit(topic, 1, version=version, generation=0) == [ILLEGAL_GENERATION]
    assert member.commit(topic, 1, version=version, generation=2) == [ILLEGAL_GENERATION]
    assert member.commit(topic, 1, version=version, generation=-1) == [ILLEGAL_GENERATION]
    assert stranger.commit(topic, 1, version=version, generation=-1) == [UNKNOWN_MEMBER_ID]
    assert stranger.commit(topic, 1, version=version, generation=1) == [UNKNOWN_MEMBER_ID]
    ids, member.ids = member.ids, ["nobody", "nobody"]
    assert member.commit(topic, 1, version=version) == [UNKNOWN_MEMBER_ID]
    member.ids = ids
    fetch(member.both, 9, group.group, None)
    member.leave()
    group.until("Empty")
    assert member.commit(topic, 9, version=version) == [UNKNOWN_MEMBER_ID]
    fetch(member.both, 9, group.group, None)


def test_commits_of_a_replaced_static_member_are_refused(group: MirroredGroup, topic: str) -> None:
    member = group.alone(instance="i-1")
    assert member.commit(topic, 1) == [0]
    again = group.member("again", "i-1")
    again.join()
    assert member.commit(topic, 2) == [FENCED_INSTANCE_ID]
    assert again.commit(topic, 3) == [0]
    again.instance = "i-2"
    assert again.commit(topic, 4) == [UNKNOWN_MEMBER_ID]


def test_commits_in_the_middle_of_a_rebalance_are_answered_as_kafka_does(group: MirroredGroup, topic: str) -> None:
    first, second = group.settled("first", "second")
    first.send_join()
    group.until("PreparingRebalance")
    assert second.commit(topic, 1, 2) == [0, 0]
    assert second.commit(topic, 1, generation=1) == [ILLEGAL_GENERATION]
    second.send_join()
    first.joined()
    second.joined()
    assert second.commit(topic, 3) == [REBALANCE_IN_PROGRESS]
    assert first.commit(topic, 3, generation=2) == [ILLEGAL_GENERATION]
    fetch(group.both, 9, group.group, None)
    second.send_sync()
    first.sync({first: b"", second: b""})
    second.synced()
    assert second.commit(topic, 4) == [0]
    fetch(group.both, 9, group.group, None)


@pytest.mark.parametrize("version", OffsetCommitRequest.VERSIONS[1:])
def test_the_same_partitions_again_and_again(group: MirroredGroup, topic: str, version: int) -> None:
    member = group.alone()
    for offset in (1, 9, 4, 1 << 62, -1):
        assert member.commit(topic, offset, 7, version=version) == [0, 0]
        fetch(group.both, 9, group.group, None)
    member.join()
    for offset in (5, 6):
        assert member.commit(topic, offset, 7, version=version) == [REBALANCE_IN_PROGRESS] * 2
    member.sync({member: b""})
    member.generation -= 1
    for offset in (7, 8):
        assert member.commit(topic, offset, 7, version=version) == [ILLEGAL_GENERATION] * 2
    fetch(group.both, 9, group.group, None)


@pytest.mark.parametrize("version", [8, 9])
def test_offsets_of_many_groups_at_once(both: Both, group: MirroredGroup, topic: str, version: int) -> None:
    names = [f"{group.group}-{n}" for n in range(3)]
    for n, name in enumerate(names):
        request = OffsetCommitRequest(group_id=name, topics=[committed_topic(topic, n, n + 1)])
        assert codes(both.ask_and_compare(OffsetCommitResponse, request, 8)) == [0, 0]
    some = [FETCH_TOPICS(name=topic, partition_indexes=[0, 1, 2]), FETCH_TOPICS(name="missing", partition_indexes=[0])]
    groups = [GROUP(group_id=name, topics=topics) for name in (*names, "never", "") for topics in (None, some, [])]
    for require_stable in (False, True):
        both.ask_and_compare(
            OffsetFetchResponse, OffsetFetchRequest(groups=groups, require_stable=require_stable), version
        )


# Deleting


def delete(both: Both, group: str, *topics: tuple[str, int]) -> OffsetDeleteResponse:
    requested = [
        OffsetDeleteRequest.OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=n) for n in range(count)],
        )
        for name, count in topics
    ]
    return both.ask_and_compare(OffsetDeleteResponse, OffsetDeleteRequest(group_id=group, topics=requested), 0)


def test_offsets_are_deleted_or_refused_as_kafka_does(both: Both, group: MirroredGroup, topic: str) -> None:
    other = both.create("committed-too", 2)
    assert delete(both, group.group, (topic, 1)).error_code == GROUP_ID_NOT_FOUND
    assert delete(both, "", (topic, 1)).error_code == INVALID_GROUP_ID
    request = OffsetCommitRequest(
        group_id=group.group, topics=[committed_topic(topic, 1, 2), committed_topic(other, 3)]
    )
    both.ask_and_compare(OffsetCommitResponse, request, 8)
    delete(both, group.group, (topic, 1), ("missing", 1), (other, 3))
    fetch(both, 9, group.group, None)
    delete(both, group.group)
    delete(both, group.group, (topic, 3))
    group.describe()


def test_offsets_that_consumers_read_are_not_deleted(both: Both, group: MirroredGroup, topic: str) -> None:
    other = both.create("committed-and-read", 1)
    member = group.member("reader")
    member.protocols = {"range": subscription(other)}
    member.become_known()
    member.join()
    member.sync({member: b""})
    member.commit(topic, 1)
    member.commit(other, 1)
    assert sorted(codes(delete(both, group.group, (topic, 1), (other, 1)))) == [0, GROUP_SUBSCRIBED_TO_TOPIC]
    fetch(both, 9, group.group, None)
    member.protocols = {"range": b"?"}
    member.join()
    assert codes(delete(both, group.group, (topic, 1))) == [GROUP_SUBSCRIBED_TO_TOPIC]


def test_offsets_of_other_members_than_consumers_are_not_deleted(both: Both, group: MirroredGroup, topic: str) -> None:
    member = group.member("worker")
    member.protocol_type, member.protocols = "connect", {"eager": b"anything"}
    member.become_known()
    member.join()
    member.sync({member: b""})
    member.commit(topic, 1)
    assert delete(both, group.group, (topic, 1)).error_code == NON_EMPTY_GROUP
    assert delete(both, group.group).error_code == NON_EMPTY_GROUP
    member.leave()
    group.until("Empty")
    assert codes(delete(both, group.group, (topic, 1))) == [0]


def test_the_offsets_of_a_topic_go_with_it(both: Both, group: MirroredGroup, topic: str) -> None:
    doomed = both.create("committed-and-doomed", 2)
    request = OffsetCommitRequest(
        group_id=group.group, topics=[committed_topic(doomed, 1, 2), committed_topic(topic, 3)]
    )
    both.ask_and_compare(OffsetCommitResponse, request, 8)
    only = OffsetCommitRequest(group_id=f"{group.group}-too", topics=[committed_topic(doomed, 1)])
    both.ask_and_compare(OffsetCommitResponse, only, 8)
    state = DeleteTopicsRequest.DeleteTopicState(name=doomed)
    both.ask_and_compare(DeleteTopicsResponse, DeleteTopicsRequest(topics=[state], timeout_ms=60_000), 6)
    for side in both.sides:
        until(lambda side=side: described(side, f"{group.group}-too").group_state == "Dead")  # type: ignore[misc]
    fetch(both, 9, group.group, None)
    fetch(both, 9, group.group, {doomed: [0, 1]})
    fetch(both, 9, f"{group.group}-too", {doomed: [0]})


# In transactions


@pytest.mark.parametrize("version", TxnOffsetCommitRequest.VERSIONS)
def test_commits_of_unknown_transactions_are_refused_as_kafka_does(
    both: Both, group: MirroredGroup, topic: str, version: int
) -> None:
    """Those that there are: see the tests of transactions."""
    coordinators(both, transactional_id="never-heard-of")
    part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    topic_of = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    good = topic_of(name=topic, partitions=[part(partition_index=0, committed_offset=5)])
    bad = topic_of(name="missing", partitions=[part(partition_index=0, committed_offset=5)])
    for topics in ([good, bad], [bad], []):
        request = TxnOffsetCommitRequest(
            transactional_id="never-heard-of", group_id=group.group, producer_id=99_000, producer_epoch=0, topics=topics
        )
        both.ask_and_compare(TxnOffsetCommitResponse, request, version)
    nameless = TxnOffsetCommitRequest(transactional_id="never-heard-of", group_id="", topics=[good])
    both.ask_and_compare(TxnOffsetCommitResponse, nameless, version)

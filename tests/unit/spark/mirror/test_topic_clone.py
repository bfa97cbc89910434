"""Topics of a mirror: which settings they get, and when one is refused."""

import pytest

from leadline.errors import NotController, TopicAlreadyExists
from leadline.spark.client.failures import RequestFailed
from leadline.spark.mirror.topic_clone import TooFewPartitions, clone_topic, consumer_groups
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from tests.support.scripted_brokers import ScriptedBrokers

OF_THE_TOPIC, OF_THE_BROKER, DEFAULT = 1, 4, 5
INVALID_CONFIG, NOT_AUTHORIZED = 40, 29


def configs(_: DescribeConfigsRequest) -> DescribeConfigsResponse:
    rows = [
        ("retention.ms", "5", OF_THE_TOPIC),
        ("segment.bytes", "9", OF_THE_BROKER),
        ("cleanup.policy", "x", DEFAULT),
    ]
    result = DescribeConfigsResponse.DescribeConfigsResult(
        resource_name="orders",
        configs=[
            DescribeConfigsResponse.DescribeConfigsResourceResult(name=name, value=value, config_source=source)
            for name, value, source in rows
        ],
    )
    return DescribeConfigsResponse(results=[result])


class TargetBrokers(ScriptedBrokers):
    """Creates topics, after planned errors."""

    def __init__(self, topics: dict[str, int], *errors: int) -> None:
        super().__init__(topics, {CreateTopicsRequest: self._create})
        self.errors = list(errors)

    def _create(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        (topic,) = request.topics
        code = self.errors.pop(0) if self.errors else 0
        if code in (0, TopicAlreadyExists.code):
            self.topics[topic.name] = topic.num_partitions
        result = CreateTopicsResponse.CreatableTopicResult(name=topic.name, error_code=code)
        return CreateTopicsResponse(topics=[result])


def clone(target: ScriptedBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ScriptedBrokers({"orders": 3}, {DescribeConfigsRequest: configs})
    with source.client(monkeypatch) as from_cluster:
        original = from_cluster.topics(["orders"])["orders"]  # it is connected from now on
        with target.client(monkeypatch) as to_cluster:
            clone_topic(to_cluster, "copy.orders", from_cluster, original)


def test_a_clone_has_the_partitions_and_the_own_settings_of_the_original(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetBrokers({})
    clone(target, monkeypatch)
    (request,) = target.of(CreateTopicsRequest)
    (topic,) = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("copy.orders", 3, -1)
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]


def test_a_topic_with_enough_partitions_is_used_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetBrokers({"copy.orders": 4})
    clone(target, monkeypatch)
    assert target.of(CreateTopicsRequest) == []


def test_a_topic_with_fewer_partitions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooFewPartitions, match=r"copy\.orders at broker:1 has 2 partitions, and orders at .* has 3"):
        clone(TargetBrokers({"copy.orders": 2}), monkeypatch)


def test_a_topic_that_another_client_creates_first_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetBrokers({}, TopicAlreadyExists.code)
    clone(target, monkeypatch)
    assert target.topics == {"copy.orders": 3}


def test_a_creation_follows_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TargetBrokers({}, NotController.code)
    clone(target, monkeypatch)
    assert target.topics == {"copy.orders": 3}
    assert len(target.of(CreateTopicsRequest)) == 2


def test_a_creation_that_is_refused_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RequestFailed, match=r"creating topic copy\.orders"):
        clone(TargetBrokers({}, INVALID_CONFIG), monkeypatch)


def groups(error_code: int) -> ScriptedBrokers:
    listed = [("b", "consumer"), ("a", ""), ("connect", "connect"), ("b", "consumer")]
    answer = ListGroupsResponse(
        error_code=error_code,
        groups=[ListGroupsResponse.ListedGroup(group_id=name, protocol_type=kind) for name, kind in listed],
    )
    return ScriptedBrokers({}, {ListGroupsRequest: lambda _: answer})


def test_groups_of_consumers_and_of_committers_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with groups(0).client(monkeypatch) as cluster:
        assert consumer_groups(cluster) == ["a", "b"]


def test_groups_that_a_broker_does_not_list_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with groups(NOT_AUTHORIZED).client(monkeypatch) as cluster, pytest.raises(RequestFailed, match="groups"):
        consumer_groups(cluster)

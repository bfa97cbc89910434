"""What a mirror needs beside records: topics made like those of another cluster, and the groups that there are."""

from leadline.errors import TopicAlreadyExists
from leadline.spark.client.cluster import ClusterClient, TopicMetadata
from leadline.spark.client.failures import RequestFailed
from leadline.spark.errors import JobFailed
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

TOPIC = 2  # as kind of a resource with settings
SET_FOR_THE_TOPIC = 1  # as source of a setting
DEFAULT_REPLICATION = -1
CREATE_MS = 30_000
CONSUMER_PROTOCOL = "consumer"  # the protocol type of groups that consume topics


class TooFewPartitions(JobFailed):
    """A copy keeps partitions, and has fewer of them."""


def topic_configs(cluster: ClusterClient, topic: str) -> dict[str, str]:
    """What was set for the topic itself."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=None
    )
    (result,) = cluster.ask_any_broker(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse).results
    if result.error_code:
        raise RequestFailed(f"settings of topic {topic}", result.error_code, result.error_message)
    return {
        config.name: config.value
        for config in result.configs
        if config.config_source == SET_FOR_THE_TOPIC and config.value is not None
    }


def create_topic(cluster: ClusterClient, name: str, partitions: int, configs: dict[str, str]) -> None:
    """A topic, unless it is there."""
    topic = CreateTopicsRequest.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=DEFAULT_REPLICATION,
        configs=[CreateTopicsRequest.CreateableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )

    def ask() -> None:
        controller = cluster.controller()
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CREATE_MS)
        (result,) = cluster.using(controller, lambda: controller.ask(request, CreateTopicsResponse)).topics
        if result.error_code not in (0, TopicAlreadyExists.code):
            raise RequestFailed(f"creating topic {name}", result.error_code, result.error_message)

    cluster.retry(ask)
    cluster.created_topic(name)


def clone_topic(target: ClusterClient, name: str, source: ClusterClient, original: TopicMetadata) -> None:
    """A topic for a copy: as many partitions, the same settings. One that is there must have enough partitions."""
    existing = target.topics([name]).get(name)
    if existing is None:
        create_topic(target, name, len(original.leaders), topic_configs(source, original.name))
    elif len(existing.leaders) < len(original.leaders):
        raise TooFewPartitions(
            f"topic {name} at {target.servers} has {len(existing.leaders)} partitions, and {original.name} at "
            f"{source.servers} has {len(original.leaders)}: a copy keeps partitions; add some to it"
        )


def consumer_groups(cluster: ClusterClient) -> list[str]:
    """Of consumers, by name; also those that only commit."""
    answers = cluster.ask_brokers(ListGroupsRequest(), ListGroupsResponse)
    for answer in answers:
        if answer.error_code:
            raise RequestFailed("groups", answer.error_code)
    return sorted(
        {
            group.group_id
            for answer in answers
            for group in answer.groups
            if group.protocol_type in ("", CONSUMER_PROTOCOL)
        }
    )

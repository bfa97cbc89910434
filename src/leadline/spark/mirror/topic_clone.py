"""Topics created like those of another cluster, and the groups of a cluster, for a mirror."""

from leadline.errors import TopicAlreadyExists
from leadline.spark.client.cluster import ClusterClient, TopicMetadata
from leadline.spark.client.failures import RequestFailed
from leadline.spark.errors import JobFailed, partitions_text
from leadline.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

TOPIC = 2  # the resource type of a topic
SET_FOR_THE_TOPIC = 1  # the config source of a setting of the topic itself
DEFAULT_REPLICATION = -1
CREATE_MS = 30_000
CONSUMER_PROTOCOL = "consumer"  # the protocol type of groups that consume topics


class TooFewPartitions(JobFailed):
    """The target topic has fewer partitions than the source topic."""


def topic_configs(cluster: ClusterClient, topic: str) -> dict[str, str]:
    """The settings of the topic itself, without defaults."""
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
    """Creates a topic unless it exists."""
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
    """Creates a topic with the partitions and settings of the original. An existing one must have enough partitions."""
    existing = target.topics([name]).get(name)
    if existing is None:
        create_topic(target, name, len(original.leaders), topic_configs(source, original.name))
    elif len(existing.leaders) < len(original.leaders):
        raise TooFewPartitions(
            f"topic {name} at {target.servers} has {partitions_text(len(existing.leaders))}, and {original.name} at "
            f"{source.servers} has {len(original.leaders)}: a mirror keeps partitions; add partitions to it"
        )


def consumer_groups(cluster: ClusterClient) -> list[str]:
    """The names of consumer groups, including groups that only commit."""
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

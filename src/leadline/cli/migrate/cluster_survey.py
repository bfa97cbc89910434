"""Asks a running cluster for a `ClusterReport`: each broker for its requests and settings, one for the topics."""

from collections.abc import Iterator, Sequence
from contextlib import closing

from leadline import __version__
from leadline.cli.migrate.cluster_report import (
    ClusterReport,
    ReportedBroker,
    ReportedPartition,
    ReportedSetting,
    ReportedTopic,
)
from leadline.cli.security_admin import SecurityAdmin, error_text
from leadline.cluster.served_versions import served_versions
from leadline.model import TopicPartition
from leadline.spark.client.connection import BlockingConnection, BrokerAddress
from leadline.spark.errors import JobFailed
from leadline.wire.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)

TOPIC, BROKER = 2, 4  # as types of resources that have settings
OF_TOPIC = 1  # as the source of a setting
DEFAULT = 5
MIN_INSYNC_REPLICAS = "min.insync.replicas"
TOPICS_PER_REQUEST = 200

BrokerMetadata = MetadataResponse.MetadataResponseBroker
Resource = DescribeConfigsRequest.DescribeConfigsResource
Result = DescribeConfigsResponse.DescribeConfigsResult


def survey(admin: SecurityAdmin) -> ClusterReport:
    metadata = admin.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse)
    problems: list[str] = []
    return ClusterReport(
        [_broker(admin, broker) for broker in sorted(metadata.brokers, key=lambda broker: broker.node_id)],
        list(_topics(admin, metadata, problems)),
        _reassigning(admin, problems),
        metadata.controller_id,
        problems,
    )


def _broker(admin: SecurityAdmin, broker: BrokerMetadata) -> ReportedBroker:
    admin.limit()
    try:
        address = BrokerAddress(broker.host, broker.port)
        with closing(BlockingConnection(address, admin.client.security)) as connection:
            versions = connection.ask(
                ApiVersionsRequest(client_software_name="leadline", client_software_version=__version__),
                ApiVersionsResponse,
            )
            resource = Resource(resource_type=BROKER, resource_name=str(broker.node_id), configuration_keys=None)
            configs = connection.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    except JobFailed as error:
        return ReportedBroker(broker.node_id, {}, {}, (), str(error))
    return ReportedBroker(
        broker.node_id,
        served_versions(versions),
        {feature.name: feature.max_version_level for feature in versions.finalized_features},
        [
            ReportedSetting(config.name, config.value, config.config_source == DEFAULT)
            for result in configs.results
            for config in result.configs
        ],
    )


def _topics(admin: SecurityAdmin, metadata: MetadataResponse, problems: list[str]) -> Iterator[ReportedTopic]:
    topics = sorted((topic for topic in metadata.topics if topic.name), key=lambda topic: topic.name or "")
    results = dict(_topic_configs(admin, [topic.name or "" for topic in topics]))
    for topic in topics:
        name = topic.name or ""
        result = results.get(name)
        if result is None or result.error_code:
            reason = "no answer" if result is None else error_text(result.error_code, result.error_message)
            problems.append(f"settings of topic {name}: {reason}")
        configs = [] if result is None else result.configs
        least = next((config.value for config in configs if config.name == MIN_INSYNC_REPLICAS), None)
        yield ReportedTopic(
            name,
            [
                ReportedPartition(
                    TopicPartition(name, part.partition_index), part.leader_id, part.replica_nodes, part.isr_nodes
                )
                for part in sorted(topic.partitions, key=lambda part: part.partition_index)
            ],
            {config.name: config.value or "" for config in configs if config.config_source == OF_TOPIC},
            int(least or 1),
        )


def _topic_configs(admin: SecurityAdmin, names: Sequence[str]) -> Iterator[tuple[str, Result]]:
    for n in range(0, len(names), TOPICS_PER_REQUEST):
        resources = [
            Resource(resource_type=TOPIC, resource_name=name, configuration_keys=None)
            for name in names[n : n + TOPICS_PER_REQUEST]
        ]
        for result in admin.ask(DescribeConfigsRequest(resources=resources), DescribeConfigsResponse).results:
            yield result.resource_name, result


def _reassigning(admin: SecurityAdmin, problems: list[str]) -> list[TopicPartition]:
    answer = admin.ask_controller(
        ListPartitionReassignmentsRequest(), ListPartitionReassignmentsResponse, lambda answer: [answer.error_code]
    )
    if answer.error_code:
        problems.append(f"reassignments: {error_text(answer.error_code, answer.error_message)}")
    return [TopicPartition(topic.name, part.partition_index) for topic in answer.topics for part in topic.partitions]

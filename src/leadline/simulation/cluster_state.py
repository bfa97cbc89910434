"""The partitions of the cluster and the moves under way, as a client asks for them."""

from leadline.model import TopicPartition
from leadline.simulation.checkers.topics import PartitionAtRest
from leadline.simulation.client import NoAnswer, SimulatedClient
from leadline.wire.messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    MetadataRequest,
    MetadataResponse,
)


async def partitions_of_cluster(client: SimulatedClient) -> dict[TopicPartition, PartitionAtRest]:
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    while True:
        try:
            response = await client.ask_any(request, MetadataResponse, 9)
        except NoAnswer:
            await client.back_off()
        else:
            return {
                TopicPartition(topic.name or "", partition.partition_index): PartitionAtRest(
                    partition.leader_id, partition.replica_nodes, partition.isr_nodes
                )
                for topic in response.topics
                for partition in topic.partitions
            }


async def moves_under_way(client: SimulatedClient) -> list[TopicPartition]:
    request = ListPartitionReassignmentsRequest(topics=None)
    while True:
        try:
            response = await client.ask_any(request, ListPartitionReassignmentsResponse, 0)
        except NoAnswer:
            await client.back_off()
            continue
        if response.error_code:
            await client.back_off()
            continue
        return [
            TopicPartition(topic.name, part.partition_index) for topic in response.topics for part in topic.partitions
        ]

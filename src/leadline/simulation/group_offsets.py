"""The committed offsets of a group, as a client asks for them."""

from collections.abc import Sequence
from itertools import groupby

from leadline.model import Offset, TopicPartition
from leadline.simulation.client import GROUP, NoAnswer, NotServed, SimulatedClient, name_of
from leadline.simulation.client_history import ClientHistory
from leadline.wire.messages import OffsetFetchRequest, OffsetFetchResponse


async def committed_offsets(
    client: SimulatedClient, history: ClientHistory, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Offset]:
    """Until the coordinator answers. Offsets of transactions that have not ended are waited for. -1: none."""
    topics = [
        OffsetFetchRequest.OffsetFetchRequestTopic(name=topic, partition_indexes=[tp.partition for tp in tps])
        for topic, tps in groupby(sorted(partitions), lambda tp: tp.topic)
    ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
    while True:
        try:
            response = await client.ask_coordinator((GROUP, group), request, OffsetFetchResponse, 7)
        except (NoAnswer, NotServed) as error:
            history.count(f"OffsetFetch: {type(error).__name__}")
            await client.back_off()
            continue
        parts = {
            TopicPartition(topic.name, part.partition_index): part
            for topic in response.topics
            for part in topic.partitions
        }
        codes = [response.error_code, *(part.error_code for part in parts.values())]
        if not any(codes):
            return {tp: part.committed_offset for tp, part in parts.items()}
        history.count(f"OffsetFetch: {name_of(max(codes, key=abs))}")
        client.forget_coordinator((GROUP, group))
        await client.back_off()

"""An administrator: topics come, grow and go, partitions move, leaders are elected, settings and records change."""

from collections.abc import Awaitable, Callable

from leadline.errors import TopicAlreadyExists, UnknownTopicOrPartition
from leadline.simulation.client import NoAnswer, NotServed, SimulatedClient, name_of
from leadline.simulation.client_history import TopicAttempt
from leadline.simulation.workloads.workload import Workload, WorkloadContext
from leadline.wire.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

PAUSE_S = 2.5
TIMEOUT_MS = 3000
TOPIC_RESOURCE, SET = 2, 0
SETTINGS = {
    "segment.bytes": ["2000", "10000", "1073741824"],
    "index.interval.bytes": ["0", "200", "4096"],
    "compression.type": ["producer", "gzip", "zstd"],
    "message.timestamp.type": ["CreateTime", "LogAppendTime"],
}


class Administrator(Workload):
    """Each change is requested once. Its outcome is not waited for."""

    prefix = "administrator"

    def __init__(self, client: SimulatedClient, world: WorkloadContext) -> None:
        super().__init__(client, world)
        self._topics: list[TopicAttempt] = []
        self._world = world

    async def run(self) -> None:
        actions: list[Callable[[], Awaitable[None]]] = [
            self._create, self._delete, self._grow, self._move, self._move, self._elect, self._configure,
            self._delete_records,
        ]  # fmt: skip
        while not self.is_stopping and not self._world.is_calm:
            await self.pause(PAUSE_S)
            try:
                await self.chance.choice(actions)()
            except (NoAnswer, NotServed) as error:
                self.history.count(f"administrator: {type(error).__name__}")

    def _answered(self, name: str, code: int) -> bool:
        if code:
            self.history.count(f"{name}: {name_of(code)}")
        return not code

    async def _create(self) -> None:
        number = len(self._topics)
        topic = TopicAttempt(f"{self.name}-{number}", self.chance.randint(1, 3))
        self._topics.append(topic)
        self.history.topics.append(topic)
        created = CreateTopicsRequest.CreatableTopic(
            name=topic.name, num_partitions=topic.partitions, replication_factor=self.chance.choice([1, 3, 3])
        )
        request = CreateTopicsRequest(topics=[created], timeout_ms=TIMEOUT_MS)
        code = (await self.client.ask_controller(request, CreateTopicsResponse, 5)).topics[0].error_code
        topic.is_created = self._answered("CreateTopics", code) or code == TopicAlreadyExists.code

    async def _delete(self) -> None:
        existing = [topic for topic in self._topics if topic.is_created and not topic.is_deletion_requested]
        if not existing:
            return
        topic = self.chance.choice(existing)
        topic.is_deletion_requested = True
        request = DeleteTopicsRequest(topic_names=[topic.name], timeout_ms=TIMEOUT_MS)
        code = (await self.client.ask_controller(request, DeleteTopicsResponse, 5)).responses[0].error_code
        topic.is_deleted = self._answered("DeleteTopics", code) or code == UnknownTopicOrPartition.code

    async def _grow(self) -> None:
        existing = [topic for topic in self._topics if topic.is_created and not topic.is_deletion_requested]
        if not existing:
            return
        topic = self.chance.choice(existing)
        grown = CreatePartitionsRequest.CreatePartitionsTopic(
            name=topic.name, count=topic.partitions + 1, assignments=None
        )
        request = CreatePartitionsRequest(topics=[grown], timeout_ms=TIMEOUT_MS)
        code = (await self.client.ask_controller(request, CreatePartitionsResponse, 2)).results[0].error_code
        if self._answered("CreatePartitions", code):
            topic.partitions += 1

    async def _move(self) -> None:
        tp = self.chance.choice(self.partitions)
        replicas = self.chance.sample(range(1, len(self.client.brokers) + 1), 3)
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=tp.partition, replicas=replicas
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=tp.topic, partitions=[partition])
        request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[topic])
        response = await self.client.ask_controller(request, AlterPartitionReassignmentsResponse, 0)
        code = response.error_code or response.responses[0].partitions[0].error_code
        self._answered("AlterPartitionReassignments", code)

    async def _elect(self) -> None:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=TIMEOUT_MS)
        response = await self.client.ask_controller(request, ElectLeadersResponse, 2)
        self._answered("ElectLeaders", response.error_code)

    async def _configure(self) -> None:
        name = self.chance.choice(list(SETTINGS))
        value = self.chance.choice(SETTINGS[name])
        config = IncrementalAlterConfigsRequest.AlterableConfig(name=name, config_operation=SET, value=value)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=self.partitions[0].topic, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        response = await self.client.ask_controller(request, IncrementalAlterConfigsResponse, 1)
        self._answered("IncrementalAlterConfigs", response.responses[0].error_code)

    async def _delete_records(self) -> None:
        tp = self.chance.choice(self.partitions)
        deleted = self.history.deleted_before.get(tp, 0)
        offset = deleted + self.chance.randint(0, 30)
        self.history.deleted_before[tp] = offset
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name=tp.topic, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        response = await self.client.ask(await self.client.leader_of(tp), request, DeleteRecordsResponse, 1)
        if not self._answered("DeleteRecords", response.topics[0].partitions[0].error_code):
            self.client.forget_leader(tp)

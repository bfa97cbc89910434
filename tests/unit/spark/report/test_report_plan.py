"""The plan of a report: which logs are read, and what limits are shown."""

from pathlib import Path

import pytest

from leadline.coordinator.group_shard import OFFSETS_TOPIC
from leadline.model import TopicPartition
from leadline.records.batch import assign
from leadline.spark.client import cluster as client
from leadline.spark.report.forecast import TopicLimits
from leadline.spark.report.report_plan import NothingToReport, plan_from_brokers, plan_from_files
from leadline.wire.messages import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from tests.support.logs import batch
from tests.support.replica_files import COMPACTED, Replicas
from tests.support.scripted_brokers import ScriptedBrokers

ORDERS, COMMITS = TopicPartition("orders", 0), TopicPartition(OFFSETS_TOPIC, 0)
NOT_AUTHORIZED = 29


@pytest.fixture
def replicas(tmp_path: Path) -> Replicas:
    replicas = Replicas(tmp_path, count=2)
    replicas.append(*(batch(5) for _ in range(4)))
    return replicas


def test_the_fullest_replica_of_a_partition_is_read(replicas: Replicas) -> None:
    replicas.logs[1].append_as_follower(_continued(replicas, 20))
    plan = plan_from_files(replicas.paths, [])
    ranges = [piece for task in plan.tasks for piece in task]
    assert {piece.log.log_dir for piece in ranges if piece.log is not None} == {replicas.paths[1]}
    assert plan.partitions == [ORDERS]
    assert plan.size == replicas.logs[1].size


def _continued(replicas: Replicas, offset: int) -> bytearray:
    data = batch(5)
    assign(data, 0, offset, 0)
    return data


def test_committed_offsets_are_read_and_not_reported(replicas: Replicas, tmp_path: Path) -> None:
    Replicas(tmp_path, count=1, tp=COMMITS).append(batch(2))
    plan = plan_from_files(replicas.paths, [])
    assert plan.topics == {"orders"}
    assert {piece.range.tp for task in plan.tasks for piece in task} == {ORDERS, COMMITS}


def test_an_internal_topic_is_reported_by_name(replicas: Replicas, tmp_path: Path) -> None:
    Replicas(tmp_path, count=1, tp=COMMITS).append(batch(2))
    plan = plan_from_files(replicas.paths, [OFFSETS_TOPIC])
    assert plan.topics == {OFFSETS_TOPIC}


def test_a_topic_that_is_not_in_the_directories_is_refused(replicas: Replicas) -> None:
    with pytest.raises(NothingToReport, match=r"no topic order in .*: there are orders"):
        plan_from_files(replicas.paths, ["order"])


def test_files_give_the_disk_and_whether_they_are_compacted(tmp_path: Path) -> None:
    replicas = Replicas(tmp_path, count=1, settings=COMPACTED)
    replicas.append(*(batch(5) for _ in range(20)))
    assert plan_from_files(replicas.paths, []).limits["orders"].cleanup_policy == "unknown"
    replicas.stop(cleaned=[replicas.compact(0)])
    limits = plan_from_files(replicas.paths, []).limits["orders"]
    assert (limits.cleanup_policy, limits.retention_ms, limits.retention_bytes) == ("compact", None, None)
    assert limits.disk_free is not None


class ReportedBrokers(ScriptedBrokers):
    """Two topics of which all partitions lie on one disk, and the committed offsets."""

    def __init__(self, config_error: int = 0) -> None:
        super().__init__(
            {"orders": 2, "users": 1, OFFSETS_TOPIC: 1},
            {
                ListOffsetsRequest: self._list_offsets,
                DescribeLogDirsRequest: self._describe_log_dirs,
                DescribeConfigsRequest: self._describe_configs,
            },
        )
        self.config_error = config_error

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=part.partition_index, offset=10 if part.timestamp == client.EARLIEST else 110
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    def _describe_log_dirs(self, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
        topics = [
            DescribeLogDirsResponse.DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    DescribeLogDirsResponse.DescribeLogDirsPartition(partition_index=n, partition_size=1000)
                    for n in topic.partitions
                ],
            )
            for topic in request.topics or []
        ]
        disk = DescribeLogDirsResponse.DescribeLogDirsResult(topics=topics, usable_bytes=70, total_bytes=90)
        return DescribeLogDirsResponse(results=[disk])

    def _describe_configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        values = {"retention.ms": "5000", "retention.bytes": "-1", "cleanup.policy": "compact"}
        results = [
            DescribeConfigsResponse.DescribeConfigsResult(
                resource_name=resource.resource_name,
                error_code=self.config_error,
                configs=[
                    DescribeConfigsResponse.DescribeConfigsResourceResult(name=name, value=value)
                    for name, value in values.items()
                ],
            )
            for resource in request.resources
        ]
        return DescribeConfigsResponse(results=results)

    def use(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
        """The properties of a client that reaches these brokers."""
        self.client(monkeypatch).close()
        return {"bootstrap.servers": "broker:1"}


def test_brokers_give_ranges_sizes_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_from_brokers(ReportedBrokers().use(monkeypatch), ["orders"])
    assert plan.partitions == [ORDERS, TopicPartition("orders", 1)]
    ranges = [piece.range for task in plan.tasks for piece in task]
    assert {tp: sum(range_.length for range_ in ranges if range_.tp == tp) for tp in [*plan.partitions, COMMITS]} == {
        ORDERS: 100,
        TopicPartition("orders", 1): 100,
        COMMITS: 100,
    }
    assert plan.size == 3000
    assert plan.limits == {"orders": TopicLimits(5000, -1, "compact", 70, 90)}


def test_limits_that_may_not_be_described_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_from_brokers(ReportedBrokers(NOT_AUTHORIZED).use(monkeypatch), ["orders"])
    assert plan.limits == {"orders": TopicLimits(None, None, "unknown", 70, 90)}

"""The tasks of a read, without a broker: how they are planned, and whose connections they use."""

from pyspark.sql.datasource import InputPartition

from leadline.model import TopicPartition
from leadline.spark.ranges import Range
from leadline.spark.topics.options import read_options
from leadline.spark.topics.read_tasks import MOST_CLUSTERS, ClusterPool, TaskPartition, planned, read_task

OPTIONS = read_options({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}, streaming=False)


def test_tasks_have_all_ranges_once() -> None:
    ranges = [Range(TopicPartition("orders", n), 0, 10) for n in range(3)]
    tasks = planned(OPTIONS, ranges, {})
    assert sorted(range_ for task in tasks if isinstance(task, TaskPartition) for range_ in task.task) == ranges


def test_a_partition_that_spark_made_itself_has_no_rows() -> None:
    assert list(read_task(OPTIONS, InputPartition(None))) == []


def test_tasks_of_one_process_share_the_client_of_a_cluster() -> None:
    pool = ClusterPool()
    first = pool.get({"bootstrap.servers": "localhost:1", "client.id": "a"})
    assert pool.get({"client.id": "a", "bootstrap.servers": "localhost:1"}) is first
    for port in range(2, MOST_CLUSTERS + 2):  # one more than it keeps: it begins anew
        pool.get({"bootstrap.servers": f"localhost:{port}"})
    assert pool.get({"bootstrap.servers": "localhost:1", "client.id": "a"}) is not first
    pool.close()

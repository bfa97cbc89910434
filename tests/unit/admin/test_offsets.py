"""Offsets of partitions that are on their way to another leader."""

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, cast

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from leadline.admin import offsets
from leadline.admin.connection import ClusterConnection
from leadline.admin.errors import Failure
from leadline.admin.offsets import list_offsets, stable_and_end_offsets
from leadline.model import TopicPartition

ORDERS, USERS = TopicPartition("orders", 0), TopicPartition("users", 3)


class Cluster:
    """Both a connection and its admin client: users-3 answers with these errors first."""

    remaining_s = 5.0

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.request_sizes: list[int] = []

    def admin(self) -> "Cluster":
        return self

    def metadata(self, _: "Cluster") -> None:
        pass

    def wait(self, future: "Future[Any]") -> Any:
        return future.result()

    def list_offsets(self, questions: Mapping[confluent_kafka.TopicPartition, object], **_: object) -> dict[Any, Any]:
        self.request_sizes.append(len(questions))
        return {theirs: self._answer(theirs.topic) for theirs in questions}

    def _answer(self, topic: str) -> "Future[Any]":
        future: Future[Any] = Future()
        if topic == "users" and self.errors:
            future.set_exception(KafkaException(KafkaError(self.errors.pop(0))))
        else:
            future.set_result(confluent_kafka.TopicPartition(topic, 0, 42))
        return future


def latest_offsets(cluster: Cluster) -> dict[TopicPartition, int]:
    return list_offsets(cast(ClusterConnection, cluster), cast(AdminClient, cluster), [ORDERS, USERS], "latest")


def test_only_a_partition_that_moved_is_requested_again() -> None:
    cluster = Cluster(KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION)
    assert latest_offsets(cluster) == {ORDERS: 42, USERS: 42}
    assert cluster.request_sizes == [2, 1, 1]


def test_any_other_error_is_reported_with_the_partition() -> None:
    with pytest.raises(Failure, match=r"users-3: .* \(TOPIC_AUTHORIZATION_FAILED\)"):
        latest_offsets(Cluster(KafkaError.TOPIC_AUTHORIZATION_FAILED))


def test_what_is_written_between_two_requests_does_not_seem_to_wait_for_a_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log_end = iter(range(100, 200))
    monkeypatch.setattr(offsets, "list_offsets", lambda *_, **__: {ORDERS: next(log_end)})
    stable, ends = stable_and_end_offsets(cast(ClusterConnection, None), cast(AdminClient, None), [ORDERS])
    assert stable == ends == {ORDERS: 100}

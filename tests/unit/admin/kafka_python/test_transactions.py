"""Responses about transactions become our own types."""

from types import SimpleNamespace
from typing import Any

from kafka import TopicPartition as KafkaTopicPartition  # type: ignore[import-untyped]
from kafka.errors import TransactionalIdNotFoundError  # type: ignore[import-untyped]

from leadline.admin.kafka_python.transactions import (
    MAX_REQUEST_PARTITIONS,
    describe_producers,
    describe_transaction,
    list_transactions,
)
from leadline.model import TopicPartition
from tests.support.kafka_python_client import answering_admin


def test_the_transactions_of_all_coordinators_are_sorted_by_id() -> None:
    def listing(broker_ids: list[int], **filters: Any) -> Any:
        assert filters == {"state_filters": ["Ongoing"], "producer_id_filters": [], "duration_filter_ms": 5}
        ids = {1: "shop-2", 2: "shop-1"}
        state = SimpleNamespace(value="Ongoing")
        listed = SimpleNamespace(transactional_id=ids[broker_ids[0]], producer_id=7, state=state)
        return {broker_ids[0]: [listed]}

    listings = list_transactions(answering_admin(list_transactions=listing), ["Ongoing"], longer_than_ms=5)
    assert [(item.transactional_id, item.coordinator) for item in listings] == [("shop-1", 2), ("shop-2", 1)]


def transaction(start_ms: int) -> dict[str, Any]:
    described = SimpleNamespace(
        coordinator_id=1,
        state=SimpleNamespace(value="Empty"),
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=start_ms,
        topic_partitions={KafkaTopicPartition("orders", 1)},
    )
    return {
        "_find_coordinator_id": lambda key, kind: 1,
        "describe_transactions": lambda ids: dict.fromkeys(ids, described),
    }


def test_a_transactional_id_without_a_transaction_has_no_start() -> None:
    never = describe_transaction(answering_admin(**transaction(-1)), "shop")
    ongoing = describe_transaction(answering_admin(**transaction(5)), "shop")
    assert never is not None
    assert ongoing is not None
    assert (never.started_ms, ongoing.started_ms) == (None, 5)
    assert ongoing.partitions == {TopicPartition("orders", 1)}


def test_an_unknown_transactional_id_is_none() -> None:
    def missing(ids: list[str]) -> Any:
        raise TransactionalIdNotFoundError

    answers = transaction(0) | {"describe_transactions": missing}
    assert describe_transaction(answering_admin(**answers), "shop") is None


def test_producers_without_an_open_transaction_are_left_out_and_requests_are_bounded() -> None:
    requests: list[int] = []

    def producers(partitions: list[Any]) -> Any:
        requests.append(len(partitions))
        return {
            tp: SimpleNamespace(
                active_producers=[
                    SimpleNamespace(
                        producer_id=producer_id,
                        producer_epoch=0,
                        coordinator_epoch=-1,
                        current_transaction_start_offset=start,
                        last_timestamp=9,
                    )
                    for producer_id, start in ((7, -1), (8, 40))
                ]
            )
            for tp in partitions
        }

    partitions = [TopicPartition("orders", number) for number in range(MAX_REQUEST_PARTITIONS + 1)]
    opened = describe_producers(answering_admin(describe_producers=producers), partitions)
    assert requests == [MAX_REQUEST_PARTITIONS, 1]
    assert {transaction.producer_id for transaction in opened} == {8}
    assert [transaction.tp for transaction in opened] == partitions

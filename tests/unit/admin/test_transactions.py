"""Open transactions of partitions: one that ends while coordinators are asked is left out."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from leadline.admin import transactions as module
from leadline.admin.kafka_python.admin import KafkaPythonAdmin
from leadline.admin.open_transactions import OpenTransaction, TransactionDescription
from leadline.admin.transactions import open_transactions, transactions_of
from leadline.model import TopicPartition

CLIENT = cast(KafkaPythonAdmin, None)
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def opened(tp: TopicPartition, producer_id: int, start: int = 0) -> OpenTransaction:
    return OpenTransaction(tp, producer_id, 0, -1, start, 0)


class Cluster:
    """Leaders that answer with one list after the other, and a coordinator."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *responses: list[OpenTransaction]) -> None:
        self.responses, self.partitions = list(responses), list[list[TopicPartition]]()
        monkeypatch.setattr(module, "describe_producers", self._describe_producers)
        monkeypatch.setattr(module, "list_transactions", self._list_transactions)
        monkeypatch.setattr(module, "describe_transaction", self._describe_transaction)

    def _describe_producers(self, client: object, partitions: Sequence[TopicPartition]) -> list[OpenTransaction]:
        self.partitions.append(list(partitions))
        return self.responses.pop(0)

    def _list_transactions(self, client: object, producer_ids: set[int]) -> list[SimpleNamespace]:
        return [SimpleNamespace(transactional_id=f"t{id}") for id in sorted(producer_ids)]

    def _describe_transaction(self, client: object, name: str) -> TransactionDescription | None:
        if name == "t9":  # it expired after it was listed
            return None
        return TransactionDescription(name, 1, "Ongoing", int(name[1:]), 0, 60_000, 0, frozenset())


def test_a_transaction_that_ends_meanwhile_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, [opened(ONE, 7), opened(ZERO, 8)], [opened(ZERO, 8)])
    transactions, described = open_transactions(CLIENT, [ZERO, ONE])
    assert transactions == [opened(ZERO, 8)]
    assert sorted(described) == [7, 8]
    assert cluster.partitions == [[ZERO, ONE], [ZERO, ONE]]


def test_a_later_transaction_of_the_same_producer_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch, [opened(ZERO, 7, 5)], [opened(ZERO, 7, 9)])
    assert open_transactions(CLIENT, [ZERO])[0] == []


def test_without_open_transactions_no_coordinator_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(monkeypatch, [])
    assert open_transactions(CLIENT, [ZERO]) == ([], {})
    assert len(cluster.partitions) == 1


def test_a_transaction_that_its_coordinator_has_forgotten_is_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    Cluster(monkeypatch)
    assert list(transactions_of(CLIENT, {7, 9})) == [7]

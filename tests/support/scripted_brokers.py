"""Brokers for the pipeline's client, without sockets: a function answers each kind of request."""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from leadline.spark.client import cluster as client
from leadline.spark.client.cluster import ClusterClient
from leadline.spark.client.connection import BrokerAddress, ClientSecurity
from leadline.wire.classes import Message
from leadline.wire.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)

UNKNOWN_TOPIC = 3
PATIENCE_MS = 60_000

Answer = Callable[[Any], Message]


class ScriptedBrokers:
    """Broker 1 leads every partition and coordinates everything. `answers` has a function for each kind of request."""

    def __init__(self, topics: Mapping[str, int], answers: Mapping[type[Message], Answer]) -> None:
        self.topics = dict(topics)  # the partition count of each topic
        self.answers: dict[type[Message], Answer] = {
            MetadataRequest: self._metadata,
            FindCoordinatorRequest: lambda _: FindCoordinatorResponse(host="broker", port=1),
            **answers,
        }
        self.requests: list[Any] = []
        self.connections = 0
        self.closed = 0

    def client(self, monkeypatch: pytest.MonkeyPatch, timeout_ms: int = PATIENCE_MS) -> ClusterClient:
        monkeypatch.setattr(client, "BlockingConnection", self._connect)
        return ClusterClient({"bootstrap.servers": "broker:1", "default.api.timeout.ms": str(timeout_ms)})

    def of(self, kind: type[Message]) -> list[Any]:
        return [request for request in self.requests if isinstance(request, kind)]

    def _connect(self, address: BrokerAddress, _: ClientSecurity) -> "ScriptedConnection":
        self.connections += 1
        return ScriptedConnection(self, address)

    def answer(self, request: Message) -> Message:
        self.requests.append(request)
        return self.answers[type(request)](request)

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = self.topics if request.topics is None else [topic.name for topic in request.topics]
        topics = [
            MetadataResponse.MetadataResponseTopic(
                error_code=0 if name in self.topics else UNKNOWN_TOPIC,
                name=name,
                partitions=[
                    MetadataResponse.MetadataResponsePartition(partition_index=n, leader_id=1)
                    for n in range(self.topics.get(name or "", 0))
                ],
            )
            for name in names
        ]
        broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="broker", port=1)
        return MetadataResponse(brokers=[broker], controller_id=1, topics=topics)


class ScriptedConnection:
    def __init__(self, brokers: ScriptedBrokers, address: BrokerAddress) -> None:
        self.brokers, self.address = brokers, address
        self._unread: deque[Message] = deque()

    def ask(self, request: Message, kind: type[Message]) -> Message:
        self.send(request)
        return self.answer(0, kind)

    def send(self, request: Message) -> int:
        self._unread.append(self.brokers.answer(request))
        return 0

    def answer(self, version: int, kind: type[Message]) -> Message:
        answer = self._unread.popleft()
        assert isinstance(answer, kind)
        return answer

    def swap_buffer(self, other: bytearray | None) -> bytearray:
        return other or bytearray()

    def close(self) -> None:
        self.brokers.closed += 1

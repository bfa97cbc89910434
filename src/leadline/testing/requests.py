"""The layer between the connections of the brokers and their handlers: it records requests, and applies rules."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from leadline.broker.broker import Broker
from leadline.broker.connection import Connection, ServeFrame
from leadline.broker.connection_state import CloseConnection
from leadline.broker.reply_queue import PendingReply, Reply
from leadline.cluster.metadata_cache import CachedTopic
from leadline.errors import FetchSessionIdNotFound, error_name
from leadline.model import TopicId
from leadline.runtime.ports import Time
from leadline.testing.message_parts import NamedPart, error_response
from leadline.testing.request_rules import (
    RequestRule,
    RuleAction,
    checked_api,
    error_code_of,
)
from leadline.testing.seen_requests import SeenRequest, seen_request
from leadline.wire.classes import Message
from leadline.wire.frames import FRONT, parse_response, request_bytes, response_frame
from leadline.wire.messages import FetchRequest, FetchResponse, MetadataResponse, ProduceRequest, ProduceResponse
from leadline.wire.primitives import BUFFERS

KEPT = 300  # requests
MOST_KEPT_BYTES = 16 * 1024  # of one response
OWN_CLIENT = "leadline.testing"  # the client id of the cluster itself: it is neither noted nor disturbed
FETCH, API_VERSIONS = 1, 18
SIZE_BYTES = 4
Served = Reply | PendingReply | Awaitable[Reply | None] | None


class _NamesOfTopics(Mapping[TopicId, str]):
    """The names of topics by their ids, as the broker knows them now."""

    def __init__(self, by_id: Mapping[TopicId, CachedTopic]) -> None:
        self._by_id = by_id

    def __getitem__(self, id: TopicId) -> str:
        return self._by_id[id].name

    def __iter__(self) -> Any:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)


class ClusterRequests:
    """`cluster.requests`: `delay`, `fail`, `drop` and `duplicate` add a rule, `recent` returns the last requests."""

    def __init__(self, clock: Time, brokers: Callable[[], list[int]]) -> None:
        self._clock, self._brokers = clock, brokers
        self._rules: list[RequestRule] = []
        self._recent: deque[SeenRequest] = deque(maxlen=KEPT)
        self._lock = threading.Lock()
        self.fetched_s: dict[tuple[int, int], float] = {}  # when a broker last fetched: leader and follower

    # For tests

    def delay(self, api: str | None = None, *, seconds: float, **filters: Any) -> RequestRule:
        """Serve requests later. `cluster.clock.advance` ends a delay early.

        Filters of all rules: topic, partition, client_id, broker (an id), when (a function of a SeenRequest), times
        (how often the rule applies), of_brokers (also to requests among brokers).
        """
        if seconds <= 0:
            raise ValueError(f"a delay has more than {seconds} seconds")
        return self._add(RuleAction.DELAY, api, filters, delay_s=seconds)

    def fail(self, api: str | None = None, *, error: str | int, **filters: Any) -> RequestRule:
        """Answer with an error, such as NOT_LEADER_OR_FOLLOWER, instead of serving the request.

        Of a Produce, the partitions that the rule does not name are served; of a Fetch, they return nothing.
        """
        return self._add(RuleAction.FAIL, api, filters, error_code=error_code_of(error))

    def drop(self, api: str | None = None, *, response: bool = False, **filters: Any) -> RequestRule:
        """Close the connection instead of serving a request. With `response`: serve it, and lose its response."""
        return self._add(RuleAction.DROP_RESPONSE if response else RuleAction.DROP_REQUEST, api, filters)

    def duplicate(self, api: str | None = None, **filters: Any) -> RequestRule:
        """Serve requests twice, as when a client sends one again although the first arrived."""
        return self._add(RuleAction.DUPLICATE, api, filters)

    def _add(self, action: RuleAction, api: str | None, filters: dict[str, Any], **values: Any) -> RequestRule:
        names = {"topic", "partition", "client_id", "broker", "when", "times", "of_brokers"}
        if unknown := filters.keys() - names:
            raise TypeError(
                f"a rule has no filter {', '.join(sorted(unknown))}: the filters are {', '.join(sorted(names))}"
            )
        if filters.get("broker") is not None and filters["broker"] not in self._brokers():
            raise ValueError(f"there is no broker {filters['broker']}: the brokers are {self._brokers()}")
        if filters.get("partition") is not None and filters.get("topic") is None:
            raise ValueError("a rule for a partition needs its topic, too")
        rule = RequestRule(action, checked_api(api), **filters, **values, _remove=self._remove)
        with self._lock:
            self._rules = [*self._rules, rule]
        return rule

    def _remove(self, rule: RequestRule) -> None:
        with self._lock:
            self._rules = [other for other in self._rules if other is not rule]

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules = []

    def recent(
        self, api: str | None = None, *, topic: str | None = None, client_id: str | None = None
    ) -> list[SeenRequest]:
        """The last requests of clients, the oldest first."""
        checked_api(api)
        return [
            request
            for request in list(self._recent)
            if api in (None, request.api)
            and client_id in (None, request.client_id)
            and (topic is None or any(part.topic == topic for part in request.parts))
        ]

    def lines(self, most: int = 40) -> list[str]:
        """The last requests, one line each. Those that repeat one another are counted."""
        groups: list[tuple[SeenRequest, int]] = []
        for request in list(self._recent):  # brokers add to it concurrently
            if groups and groups[-1][0].repeats(request):
                groups[-1] = request, groups[-1][1] + 1
            else:
                groups.append((request, 1))
        lines = [(request.line(error_name), count) for request, count in groups[-most:]]
        return [line if count == 1 else f"{line}  ({count} times)" for line, count in lines]

    # For brokers

    def serve_for(self, id: int, broker: Broker) -> ServeFrame:
        names, ids = _NamesOfTopics(broker.metadata.by_id), {str(id) for id in self._brokers()}
        return partial(self._serve, id, broker.requests.serve, names, ids)

    def _serve(
        self, id: int, serve: ServeFrame, names: Mapping[TopicId, str], ids: "set[str]",
        connection: Connection, frame: memoryview,
    ) -> Served:  # fmt: skip
        if len(frame) < FRONT.size:
            return serve(connection, frame)
        front = FRONT.unpack_from(frame)
        try:
            request = seen_request(id, self._clock.now_ms(), frame, front, connection.host, names, ids)
        except Exception:  # noqa: BLE001  a frame that is no request: the broker says so
            return serve(connection, frame)
        if request.client_id == OWN_CLIENT:
            return serve(connection, frame)
        if request.is_of_broker and front[0] in (FETCH, API_VERSIONS):
            if front[0] == FETCH:
                self.fetched_s[id, int(request.client_id or 0)] = self._clock.monotonic_s()
        else:
            self._recent.append(request)
        for rule in self._rules:
            if rule.matches(request):
                rule.hits += 1
                request.outcome = f"({rule.action.value})"
                return _Disturbed(rule, request, serve, connection).served(self._noted)
        return self._noted(request, serve(connection, frame))

    def _noted(self, request: SeenRequest, served: Served) -> Served:
        began_s = time.perf_counter()

        def note(reply: Reply | None) -> Reply | None:
            request.took_s = time.perf_counter() - began_s
            data = [reply] if isinstance(reply, bytes) else reply or []
            if all(isinstance(piece, BUFFERS) for piece in data):
                whole = b"".join(data)  # type: ignore[arg-type]
                request.response = whole if len(whole) <= MOST_KEPT_BYTES else None
            return reply

        if isinstance(served, PendingReply):
            frame = served.frame
            return served._replace(frame=lambda answer: note(frame(answer)))
        if isinstance(served, Awaitable):
            return _then(served, note)
        return note(served)


async def _then(reply: Awaitable[Reply | None], note: Callable[[Reply | None], Reply | None]) -> Reply | None:
    return note(await reply)


async def _reply(served: Served) -> Reply | None:
    if isinstance(served, PendingReply):
        return served.frame(await asyncio.shield(served.answer))
    if isinstance(served, Awaitable):
        return await served
    return served


class _Disturbed:
    """One request under one rule."""

    def __init__(self, rule: RequestRule, request: SeenRequest, serve: ServeFrame, connection: Connection) -> None:
        self._rule, self._request, self._inner, self._connection = rule, request, serve, connection

    def _serve(self, frame: bytes | None = None) -> Served:
        return self._inner(self._connection, memoryview(bytearray(self._request.frame if frame is None else frame)))

    def served(self, noted: Callable[[SeenRequest, Served], Served]) -> Served:
        if self._request.size > len(self._request.frame):
            raise CloseConnection("a rule of the test applies to a request that is too large for it")
        return noted(self._request, self._run())

    async def _run(self) -> Reply | None:
        match self._rule.action:
            case RuleAction.DELAY:
                await asyncio.sleep(self._rule.delay_s)
                return await _reply(self._serve())
            case RuleAction.DROP_REQUEST:
                raise CloseConnection("a rule of the test drops the request")
            case RuleAction.DROP_RESPONSE:
                await _reply(self._serve())
                raise CloseConnection("a rule of the test drops the response")
            case RuleAction.DUPLICATE:
                first = await _reply(self._serve())
                await _reply(self._serve())
                return first
            case RuleAction.FAIL:
                return await self._fail()

    async def _fail(self) -> Reply | None:
        request, head = self._request.message, self._request.head
        if request is None or head.api is None:
            raise CloseConnection("a rule of the test cannot fail a request that cannot be decoded")
        if isinstance(request, ProduceRequest):
            response: Message | None = await self._fail_produce(request)
        elif head.api.name == "Metadata":
            response = await self._fail_metadata()
        elif isinstance(request, FetchRequest) and request.session_epoch > 0:
            response = FetchResponse(error_code=FetchSessionIdNotFound.code)  # the next one names all partitions
        else:
            names = self._request.topic_names
            response = error_response(request, head.api.response, self._rule.error_code, self._rule.names, names)
            if isinstance(response, FetchResponse):
                _complete(response, self._rule)
        return None if response is None else response_frame(response, head.version, head.correlation_id)

    async def _fail_produce(self, request: ProduceRequest) -> ProduceResponse | None:
        code, names, head = self._rule.error_code, self._rule.names, self._request.head
        failed = error_response(request, ProduceResponse, code, names, {})
        assert isinstance(failed, ProduceResponse)
        served_parts = {
            topic.name: [part for part in topic.partition_data if not names(NamedPart(topic.name, part.index))]
            for topic in request.topic_data
        }
        rest = ProduceRequest(
            transactional_id=request.transactional_id,
            acks=request.acks,
            timeout_ms=request.timeout_ms,
            topic_data=[
                ProduceRequest.TopicProduceData(name=name, partition_data=parts)
                for name, parts in served_parts.items()
                if parts
            ],
        )
        if rest.topic_data:
            frame = bytes(request_bytes(rest, head.version, head.correlation_id, head.client_id))[SIZE_BYTES:]
            reply = await _reply(self._serve(frame))
            if reply is not None:
                _, served = parse_response(ProduceResponse, _whole(reply)[SIZE_BYTES:], head.version)
                _put_results(failed, served)
        if request.acks == 0:
            raise CloseConnection("a rule of the test fails a request that has no response")
        return failed

    async def _fail_metadata(self) -> MetadataResponse | None:
        head = self._request.head
        reply = await _reply(self._serve())
        if reply is None:
            return None
        _, response = parse_response(MetadataResponse, _whole(reply)[SIZE_BYTES:], head.version)
        for topic in response.topics:
            if self._rule.topic in (None, topic.name):
                topic.error_code, topic.partitions = self._rule.error_code, []
        return response


def _complete(response: FetchResponse, rule: RequestRule) -> None:
    """As Kafka refuses a fetch: partitions without records. A rule for a topic does not fail the whole response."""
    if rule.topic is not None:
        response.error_code = 0
    for topic in response.responses:
        for partition in topic.partitions:
            partition.high_watermark, partition.records = -1, b""


def _put_results(failed: ProduceResponse, served: ProduceResponse) -> None:
    """Puts the results of the served partitions into the response."""
    results = {(topic.name, part.index): part for topic in served.responses for part in topic.partition_responses}
    for topic in failed.responses:
        topic.partition_responses = [results.get((topic.name, part.index), part) for part in topic.partition_responses]


def _whole(reply: Reply) -> bytes:
    return reply if isinstance(reply, bytes) else b"".join(reply)  # type: ignore[arg-type]

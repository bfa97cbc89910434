"""Produce with what producers may ask for: acks=all, idempotence, transactions.

One step on Leadline, then the same on Kafka. A transaction is what a client sends for it: AddPartitionsToTxn, some
batches at once, EndTxn. While the one before is being completed, a broker answers CONCURRENT_TRANSACTIONS, and the
client asks again.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from functools import partial
from itertools import count as numbers
from struct import Struct

from leadline.errors import ConcurrentTransactions
from leadline.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tests.bench.batches import Maker
from tests.bench.load.brokers import Broker, pairs
from tests.bench.load.client import (
    TIMEOUT_S,
    Connection,
    Producer,
    Refused,
    create_topics,
    delete_topic,
    produce_request,
)
from tests.bench.load.steady import Values
from tests.bench.results import Goal, Row
from tests.bench.run import Run, in_turns

TWICE = Goal(times=2)
IN_A_TRANSACTION = 10  # batches
TRANSACTION = 1  # type of a coordinator
SHAPES = {"1 x 100 B": (1, 100, 10_000, 500), "16 x 1 KB": (16, 1000, 3000, 200)}  # records, bytes, requests, quick
TRANSACTIONS = 500, 20  # in one round, in a quick one
SETTINGS = {"transaction.state.log.replication.factor": "1", "transaction.state.log.min.isr": "1"}
_names = numbers()


def measure(run: Run) -> list[Row]:
    samples: list[dict[str, list[float]]] = [defaultdict(list), defaultdict(list)]
    with pairs(run.folder, more=SETTINGS) as (pair,):
        for n in run.each_round("guarantees"):
            for step, side in in_turns(STEPS, list(pair)):
                for what, value in step(run, list(pair)[side]).items():
                    samples[side][what] += [value] if n else []
    ours, theirs = samples
    return [Row(what, "us" if "CPU" in what else "/s", TWICE, ours[what], theirs[what]) for what in ours]


def _new_topic(broker: Broker) -> str:
    topic = f"guaranteed-{next(_names)}"
    create_topics(broker.port, {topic: 1})
    return topic


def _producer_id(broker: Broker, transactional_id: str | None = None) -> int:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    find = FindCoordinatorRequest(key=transactional_id or "", key_type=TRANSACTION)
    deadline_s = time.monotonic() + TIMEOUT_S
    with Connection(broker.port) as connection:
        while (response := connection.ask(request, InitProducerIdResponse, 2)).error_code:
            if time.monotonic() > deadline_s:
                raise Refused(f"InitProducerId was answered with {response.error_code}")
            connection.ask(find, FindCoordinatorResponse, 1)  # creates the topic of transactions
            time.sleep(0.05)
    return response.producer_id


def _produce(name: str, is_idempotent: bool, run: Run, broker: Broker) -> Values:
    records, value_bytes, full, quick = SHAPES[name]
    count, topic, maker = run.sized(full, quick), _new_topic(broker), Maker(records, value_bytes)
    batch, requests = bytes(maker.batch()), list[bytes]()
    if is_idempotent:
        maker, producer_id = Maker(records, value_bytes), _producer_id(broker)
        batches = (bytes(maker.batch(producer_id=producer_id)) for _ in range(count))
        requests = [produce_request(topic, 0, batch, -1) for batch in batches]
    with closing(Producer(broker.port, topic, batch, records=records, acks=-1, requests=requests)) as producer:
        spent = broker.measure(partial(producer.send, count))
    delete_topic(broker.port, topic)
    what = f"produce {name}, {'idempotent' if is_idempotent else 'acks=all'}"
    return {what: count / spent.seconds, f"{what}: CPU per request": spent.cpu_seconds / count * 1e6}


class TransactionalProducer:
    def __init__(self, broker: Broker, topic: str, count: int) -> None:
        self._topic, self.id, self._connection = topic, topic, Connection(broker.port)
        self._producer_id, maker = _producer_id(broker, self.id), Maker(1, 100)
        batches = [
            bytes(maker.batch(producer_id=self._producer_id, is_transactional=True))
            for _ in range(count * IN_A_TRANSACTION)
        ]
        requests = [produce_request(topic, 0, batch, -1, self.id) for batch in batches]
        self._bundles = [
            b"".join(requests[at : at + IN_A_TRANSACTION]) for at in range(0, len(requests), IN_A_TRANSACTION)
        ]
        self._reply = Struct(f">i4x6x{len(topic.encode())}x4x4xh28x")  # size, error
        self._add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        self._end = EndTxnRequest(
            transactional_id=self.id, producer_id=self._producer_id, producer_epoch=0, committed=True
        )

    def close(self) -> None:
        self._connection.sock.close()

    def run(self) -> None:
        for bundle in self._bundles:
            self._begin()
            self._connection.sock.sendall(bundle)
            for _ in range(IN_A_TRANSACTION):
                self._check_reply()
            if code := self._connection.ask(self._end, EndTxnResponse, 1).error_code:
                raise Refused(f"EndTxn was answered with {code}")

    def _begin(self) -> None:
        code = ConcurrentTransactions.code
        while code == ConcurrentTransactions.code:
            response = self._connection.ask(self._add, AddPartitionsToTxnResponse, 1)
            ((result,),) = (topic.results_by_partition for topic in response.results_by_topic_v3_and_below)
            code = result.partition_error_code
        if code:
            raise Refused(f"AddPartitionsToTxn was answered with {code}")

    def _check_reply(self) -> None:
        size, code = self._reply.unpack(self._connection.receive_exactly(self._reply.size))
        if size != self._reply.size - 4 or code:
            raise Refused(f"a produce was answered with {code}")


def _transact(run: Run, broker: Broker) -> Values:
    count, topic = run.sized(*TRANSACTIONS), _new_topic(broker)
    with closing(TransactionalProducer(broker, topic, count)) as producer:
        spent = broker.measure(producer.run)
    delete_topic(broker.port, topic)
    what = f"transactions of {IN_A_TRANSACTION} x 100 B"
    return {what: count / spent.seconds, f"{what}: CPU of each": spent.cpu_seconds / count * 1e6}


STEPS: tuple[Callable[[Run, Broker], Values], ...] = (
    *(partial(_produce, name, is_idempotent) for is_idempotent in (False, True) for name in SHAPES),
    _transact,
)

"""A directory with open and prepared transactions goes from Kafka to Leadline and back: each brings them to their end.

That a coordinator stopped between Prepare and its markers is arranged by hand: the record is appended while no broker
is at work there.
"""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from leadline.coordinator.runtime import partition_for
from leadline.coordinator.transaction import EXHAUSTED_FROM, ProducerIdAndEpoch, TransactionMetadata, TransactionState
from leadline.coordinator.transaction_records import read_key, read_value, transaction_record
from leadline.log.log_dirs import LogDirs
from leadline.log.producer_state import AppendOrigin
from leadline.model import TopicPartition
from leadline.records.batch import walk
from leadline.records.build import build
from leadline.records.record import Record, records_of
from leadline.wire.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.conformance.both import Connection, produced
from tests.conformance.kafka.broker import broker, zookeeper
from tests.conformance.kafka.tools import tool
from tests.support.broker import leadline
from tests.support.dirs import log_dirs
from tests.support.logs import batch, whole_log
from tests.support.waiting import until

pytestmark = pytest.mark.conformance

TOPIC, PARTITIONS, SHARDS = "t", 2, 3
JOURNAL = "__transaction_state"
SETTINGS = {
    "broker.id": 3,
    "log.retention.ms": -1,
    "transaction.state.log.num.partitions": SHARDS,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}


class Client:
    """A producer with a transactional id, at whichever broker is there."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def create(self) -> None:
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=1)
        self.connection.ask(CreateTopicsResponse, CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)

    def init(self, name: str) -> ProducerIdAndEpoch:
        identities: list[ProducerIdAndEpoch] = []
        until(lambda: self._init(name, identities))
        return identities[0]

    def _init(self, name: str, identities: list[ProducerIdAndEpoch]) -> bool:
        lookup = FindCoordinatorRequest(key=name, key_type=1)
        if self.connection.ask(FindCoordinatorResponse, lookup, 3).error_code != 0:
            return False
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
        answer = self.connection.ask(InitProducerIdResponse, request, 4)
        assert answer.error_code in (0, 14, 15, 16, 51), answer
        if answer.error_code == 0:
            identities.append(ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch))
        return answer.error_code == 0

    def resume(self, name: str, producer_id: int) -> list[tuple[int, int, bool]]:
        """Without an epoch left: the errors and epochs that a producer with another epoch gets, and then the right one,
        which asks twice; and whether it has another id then."""
        outcomes = []
        for epoch in (EXHAUSTED_FROM - 1, EXHAUSTED_FROM, EXHAUSTED_FROM, EXHAUSTED_FROM - 1):
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch
            )
            answer = self.connection.ask(InitProducerIdResponse, request, 4)
            outcomes.append((answer.error_code, answer.producer_epoch, answer.producer_id in (-1, producer_id)))
        return outcomes

    def write(self, name: str, producer: ProducerIdAndEpoch, sequence: int) -> None:
        """A record into each partition."""
        topics = [AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(PARTITIONS)))]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=topics,
        )
        until(lambda: self._added(request))
        for n in range(PARTITIONS):
            data = batch(
                key=f"{name}-", producer_id=producer.producer_id, producer_epoch=producer.epoch,
                sequence=sequence, transactional=True,
            )  # fmt: skip
            until(lambda n=n, data=data: self._produced(name, n, bytes(data)))  # type: ignore[misc]

    def _added(self, request: AddPartitionsToTxnRequest) -> bool:
        answer = self.connection.ask(AddPartitionsToTxnResponse, request, 3)
        (code,) = {
            part.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for part in topic.results_by_partition
        }
        assert code in (0, 3, 14, 16, 51), answer
        return code == 0

    def _produced(self, name: str, partition: int, data: bytes) -> bool:
        request = ProduceRequest(
            transactional_id=name, acks=-1, timeout_ms=60_000, topic_data=[produced(TOPIC, data, partition)]
        )
        response = self.connection.ask(ProduceResponse, request, 9).responses[0].partition_responses[0]
        assert response.error_code in (0, 3, 6, 19), response
        return response.error_code == 0

    def end(self, name: str, producer: ProducerIdAndEpoch, *, commit: bool = True) -> None:
        request = EndTxnRequest(
            transactional_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commit
        )
        assert self.connection.ask(EndTxnResponse, request, 3).error_code == 0
        self.until_state(name, "CompleteCommit" if commit else "CompleteAbort")

    def until_state(self, name: str, state: str) -> None:
        until(lambda: self.state(name) == state)

    def state(self, name: str) -> str:
        request = DescribeTransactionsRequest(transactional_ids=[name])
        return self.connection.ask(DescribeTransactionsResponse, request, 0).transaction_states[0].transaction_state

    def committed(self, partition: int) -> list[str]:
        """The keys that a reader of committed records sees, in order."""
        keys, aborted, offset = list[str](), set[int](), 0
        while True:
            answer = self._fetch(partition, offset)
            assert isinstance(answer.records, memoryview)
            data = bytes(answer.records)
            if not data:
                return keys
            begun = sorted((txn.first_offset, txn.producer_id) for txn in answer.aborted_transactions or ())
            for position, header in walk(data):
                while begun and begun[0][0] <= header.base_offset:
                    aborted.add(begun.pop(0)[1])
                if header.is_control:
                    aborted.discard(header.producer_id)
                elif header.producer_id not in aborted:
                    keys += [(record.key or b"").decode() for record in records_of(data, position, header)]
                offset = header.last_offset + 1

    def _fetch(self, partition: int, offset: int) -> FetchResponse.PartitionData:
        part = FetchRequest.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
        topics = [FetchRequest.FetchTopic(topic=TOPIC, partitions=[part])]
        answer = self.connection.ask(FetchResponse, FetchRequest(replica_id=-1, isolation_level=1, topics=topics), 11)
        return answer.responses[0].partitions[0]


@contextmanager
def client(host: str, port: int) -> Iterator[Client]:
    with closing(Connection(host, port)) as connection:
        yield Client(connection)


def write_by_hand(directory: Path, name: str, **changes: object) -> None:
    """As if its coordinator had stopped right behind this record: the last one, but for some changes."""

    async def main() -> None:
        dirs: LogDirs = log_dirs(directory)
        await dirs.open()
        log = dirs.logs[TopicPartition(JOURNAL, partition_for(name, SHARDS))]
        key, value = transaction_record(name, replace(_last(whole_log(log), name), **changes))  # type: ignore[arg-type]
        assert log.epochs.latest is not None
        log.append_as_leader(build([Record(0, 1, key, value)]), log.epochs.latest.epoch, AppendOrigin.COORDINATOR)
        await dirs.close()

    asyncio.run(main())


def _last(data: bytes, name: str) -> TransactionMetadata:
    metadata = None
    for position, header in walk(data):
        for record in records_of(data, position, header):
            if read_key(record.key) == name and record.value is not None:
                metadata = read_value(record.value)
    assert metadata is not None
    return metadata


def test_from_kafka_to_leadline_and_back_again(tmp_path: Path) -> None:
    everywhere = range(PARTITIONS)
    with zookeeper(tmp_path / "zookeeper") as tree:
        with broker(tmp_path / "kafka", tree, **SETTINGS) as kafka, client("127.0.0.1", kafka.port) as theirs:
            theirs.create()
            first = {name: theirs.init(name) for name in ("open", "committed", "aborted", "prepared", "idle")}
            for name in ("open", "committed", "aborted", "prepared"):
                theirs.write(name, first[name], 0)
            theirs.end("committed", first["committed"])
            theirs.end("aborted", first["aborted"], commit=False)
            kafka.stop()
        directory = kafka.log_dir
        write_by_hand(directory, "prepared", state=TransactionState.PREPARE_COMMIT)

        with leadline(directory, **SETTINGS) as ours, client("localhost", ours.port) as us:
            us.until_state("prepared", "CompleteCommit")
            states = {name: us.state(name) for name in first}
            assert states == {
                "open": "Ongoing", "committed": "CompleteCommit", "aborted": "CompleteAbort",
                "prepared": "CompleteCommit", "idle": "Empty",
            }  # fmt: skip
            assert [us.committed(n) for n in everywhere] == [[]] * PARTITIONS  # the open one was first
            us.write("open", first["open"], 1)  # its producer goes on
            us.end("open", first["open"])
            visible = ["open-0", "committed-0", "prepared-0", "open-0"]
            assert [us.committed(n) for n in everywhere] == [visible] * PARTITIONS
            second = {name: us.init(name) for name in ("open", "still", "halfway", "worn", "worn too")}
            assert second["open"] == (first["open"].producer_id, first["open"].epoch + 1)
            assert second["still"].producer_id not in {identity.producer_id for identity in first.values()}
            us.write("still", second["still"], 0)
            us.write("halfway", second["halfway"], 0)
            where = ("--bootstrap-server", ours.bootstrap, "--topic", JOURNAL)
            journal = str(partition_for("open", SHARDS))
            end = tool("get-offsets", *where, "--partitions", journal).strip().split(":")[2]
            printed = tool(
                "console-consumer", *where, "--partition", journal, "--offset", "earliest", "--max-messages", end,
                "--formatter", "kafka.coordinator.transaction.TransactionLog$TransactionLogMessageFormatter",
            )  # fmt: skip
            assert "open::TransactionMetadata(transactionalId=open" in printed
            assert {"state=Ongoing", "state=PrepareCommit", "state=CompleteCommit", "state=Empty"} <= {
                part.strip() for line in printed.splitlines() if line.startswith("open::") for part in line.split(",")
            }
            assert ours.stop() == 0
        write_by_hand(directory, "halfway", state=TransactionState.PREPARE_ABORT)
        write_by_hand(directory, "worn", producer_epoch=EXHAUSTED_FROM)
        write_by_hand(directory, "worn too", producer_epoch=EXHAUSTED_FROM)

        with broker(tmp_path / "kafka", tree, **SETTINGS) as kafka, client("127.0.0.1", kafka.port) as theirs:
            theirs.until_state("halfway", "CompleteAbort")
            assert (theirs.state("still"), theirs.state("open")) == ("Ongoing", "Empty")
            theirs.write("still", second["still"], 1)
            theirs.end("still", second["still"])
            visible += ["still-0", "still-0"]
            assert [theirs.committed(n) for n in everywhere] == [visible] * PARTITIONS
            producer_ids = {identity.producer_id for identity in (first | second).values()}
            assert theirs.init("new").producer_id not in producer_ids
            resumed = theirs.resume("worn", second["worn"].producer_id)
            kafka.stop()
            complaints = [line for line in kafka.log.read_text().splitlines() if " ERROR " in line]
            assert all("clientId=both" in line and "INIT_PRODUCER_ID" in line for line in complaints), complaints

        with leadline(directory, **SETTINGS) as ours, client("localhost", ours.port) as us:
            fenced = us.resume("worn too", second["worn too"].producer_id)
            assert fenced[1:] == resumed[1:]
            assert (fenced[0][0], resumed[0][0]) == (90, -1)  # where Kafka fails, it is fenced as it is everywhere else
            assert (us.init("still").epoch, us.state("halfway")) == (second["still"].epoch + 1, "CompleteAbort")
            assert [us.committed(n) for n in everywhere] == [visible] * PARTITIONS

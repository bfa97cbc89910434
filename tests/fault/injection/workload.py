"""What clients do while faults are injected: they write, transform and read, and note what they were promised.

- Two idempotent producers write numbered records to `input`, acks=all, and note each acknowledgement.
- Two loops read `input` in a group and write each record to `output` in transactions that carry the offsets.
- Two members of another group read `input` and commit what they have read.
- An observer reads both topics from their start with read_committed.

All of them go on through each fault. What they note is judged by the checkers of the simulation.
"""

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from leadline.model import Offset, TopicPartition
from leadline.simulation.client_history import Attempt, ClientHistory, Poll
from tests.clients.loop import Loop

INPUT, OUTPUT = "input", "output"
INTERNAL = ("__consumer_offsets", "__transaction_state")
PARTITIONS, PRODUCERS, LOOPS, MEMBERS = 3, 2, 2, 2
RECORDS_PER_S = 15  # of each producer
FLUSH_S = 120.0
DONE = b"done: "  # what a loop writes in front of each value
CLIENT: dict[str, str | int | float | bool] = {
    "socket.timeout.ms": 6000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "metadata.recovery.strategy": "none",  # as the loops have it, and for their reason
    "log_level": 0,
}
PRODUCER: dict[str, str | int | float | bool] = CLIENT | {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 5,
    "request.timeout.ms": 4000,
    "retry.backoff.ms": 50,
    "message.timeout.ms": 0,  # never: it tries until the record is acknowledged
}


@dataclass
class Notes:
    """What clients were promised and saw. All of them write to it, each to its own part."""

    history: ClientHistory = field(default_factory=ClientHistory)
    places: dict[bytes, int] = field(default_factory=dict)  # of each value in `history.attempts`
    acknowledged_at: dict[TopicPartition, list[float]] = field(default_factory=lambda: defaultdict(list))
    stored: dict[TopicPartition, dict[Offset, bytes]] = field(default_factory=lambda: defaultdict(dict))
    done: set[bytes] = field(default_factory=set)  # values of the output
    order: list[str] = field(default_factory=list)  # violations of the order of polls
    _lock: threading.Lock = field(default_factory=threading.Lock)
    refusals: list[str] = field(default_factory=list)  # of producers
    restarts: int = 0  # of loops: librdkafka 2.16 may wait for ever for a coordinator that it knows and could reach

    def sent(self, attempt: Attempt) -> None:
        with self._lock:
            self.places[attempt.value] = len(self.history.attempts)
            self.history.attempts.append(attempt)


class NumberedProducer:
    """Writes to all partitions in turn. After a fatal error it goes on under another name."""

    def __init__(self, bootstrap: str, name: str, notes: Notes) -> None:
        self._bootstrap, self._base_name, self._notes = bootstrap, name, notes
        self._names, self._numbers = 0, [0] * PARTITIONS
        self._pending: dict[bytes, Attempt] = {}  # by value
        self._stop = threading.Event()
        self._begin()
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    def _begin(self) -> None:
        """What its predecessor has not delivered by then is given up: nobody knows whether it was written."""
        for attempt in self._pending.values():
            attempt.is_given_up = True
        self._pending.clear()
        self._names += 1
        self._name, self._is_broken = f"{self._base_name}.{self._names}", False
        self._producer = Producer(PRODUCER | {"bootstrap.servers": self._bootstrap})

    def _run(self) -> None:
        count = 0
        while not self._stop.wait(1 / RECORDS_PER_S):
            if self._is_broken:
                self._begin()
            self._send(TopicPartition(INPUT, count % PARTITIONS))
            self._producer.poll(0)
            count += 1

    def _send(self, tp: TopicPartition) -> None:
        number = self._numbers[tp.partition]
        self._numbers[tp.partition] = number + 1
        value = f"{self._name} {tp} {number}".encode()
        attempt = Attempt(self._name, number, value, tp)
        self._notes.sent(attempt)
        self._pending[value] = attempt
        try:
            self._producer.produce(
                tp.topic, value, value, partition=tp.partition, on_delivery=partial(self._delivered, attempt)
            )
        except (KafkaException, BufferError) as error:
            attempt.is_given_up = True
            self._failed(str(error))

    def _delivered(self, attempt: Attempt, error: KafkaError | None, message: Message) -> None:
        self._pending.pop(attempt.value, None)
        if error is not None:
            attempt.is_given_up = True
            self._failed(f"{error.name()}: {error.str()}")
            return
        self._notes.acknowledged_at[attempt.tp].append(time.monotonic())
        offset = message.offset()
        attempt.offset = NO_PLACE if offset is None else offset

    def _failed(self, name: str) -> None:
        """An idempotent producer that repeats until it succeeds is never refused by a cluster that loses nothing."""
        self._notes.history.count(f"Produce: {name}")
        self._notes.refusals.append(f"{self._name} was refused: {name}")
        self._is_broken = True

    def stop(self) -> int:
        """How many records are not acknowledged at the end."""
        self._stop.set()
        self._thread.join()
        return self._producer.flush(FLUSH_S)


NO_PLACE = -2  # acknowledged, but the answer with the offset was lost: a later one said that it is stored


class GroupReads:
    """What a group has read and committed, over all members and generations."""

    def __init__(self, notes: Notes) -> None:
        self._notes, self._lock = notes, threading.Lock()
        self.read: dict[TopicPartition, Offset] = defaultdict(int)  # all below it was read by somebody
        self._committed: dict[TopicPartition, Offset] = defaultdict(int)  # acknowledged
        self._sent: dict[TopicPartition, Offset] = defaultdict(int)  # perhaps committed

    def floor(self, tp: TopicPartition) -> Offset:
        """What is read first after an assignment is not below this."""
        return self._committed[tp]

    def began(self, tp: TopicPartition, offset: Offset, floor: Offset) -> None:
        if offset < floor:
            self._notes.order.append(f"lost commit: the group reads {tp} from {offset}, committed was {floor}")
        with self._lock:
            if offset > self._sent[tp]:
                self._notes.order.append(f"skipped: the group reads {tp} from {offset}, committed was {self._sent[tp]}")

    def polled(self, tp: TopicPartition, offset: Offset, last: Offset | None) -> None:
        if last is not None and offset != last + 1:
            self._notes.order.append(f"poll out of order: {tp} @ {offset} followed {last}")
        with self._lock:
            if offset <= self.read[tp]:
                self.read[tp] = max(self.read[tp], offset + 1)

    def will_commit(self, offsets: dict[TopicPartition, Offset]) -> None:
        with self._lock:
            for tp, offset in offsets.items():
                self._sent[tp] = max(self._sent[tp], offset)

    def committed(self, offsets: dict[TopicPartition, Offset]) -> None:
        with self._lock:
            for tp, offset in offsets.items():
                self._committed[tp] = max(self._committed[tp], offset)


class GroupMember:
    def __init__(self, bootstrap: str, group: str, reads: GroupReads) -> None:
        self._reads = reads
        self._last: dict[TopicPartition, Offset | None] = {}  # by partition that it owns; None: nothing yet
        self._floors: dict[TopicPartition, Offset] = {}
        self._stop = threading.Event()
        self._consumer = Consumer(CLIENT | {
            "bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False,
            "auto.offset.reset": "earliest", "session.timeout.ms": 6000, "heartbeat.interval.ms": 500,
            "isolation.level": "read_committed",
        })  # fmt: skip
        self._consumer.subscribe([INPUT], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)
        self._thread = threading.Thread(target=self._run, name=group)
        self._thread.start()

    def _assigned(self, consumer: Consumer, positions: list[Position]) -> None:
        for tp in partitions_of(positions):
            self._floors[tp], self._last[tp] = self._reads.floor(tp), None

    def _revoked(self, consumer: Consumer, positions: list[Position]) -> None:
        for tp in partitions_of(positions):
            self._last.pop(tp, None)

    def _run(self) -> None:
        while not self._stop.is_set():
            next_offsets: dict[TopicPartition, Offset] = {}
            for message in self._consumer.consume(200, 0.2):
                if message.error() is None:
                    tp, offset, _ = record_of(message)
                    if tp not in self._last:
                        continue  # revoked since
                    if self._last[tp] is None:
                        self._reads.began(tp, offset, self._floors[tp])
                    self._reads.polled(tp, offset, self._last[tp])
                    self._last[tp], next_offsets[tp] = offset, offset + 1
            self._commit(next_offsets)

    def _commit(self, offsets: dict[TopicPartition, Offset]) -> None:
        if not offsets:
            return
        self._reads.will_commit(offsets)
        with suppress(KafkaException):
            results = self._consumer.commit(
                offsets=[Position(tp.topic, tp.partition, offset) for tp, offset in offsets.items()], asynchronous=False
            )
            accepted = {tp for tp, result in zip(offsets, results or [], strict=True) if result.error is None}
            self._reads.committed({tp: offset for tp, offset in offsets.items() if tp in accepted})

    def stop(self) -> None:
        """Not closed: see `tests/clients/python/exactly_once.py`. Its session ends by itself."""
        self._stop.set()
        self._thread.join()


class Observer:
    """Reads both topics from their start, as records become stable."""

    def __init__(self, bootstrap: str, notes: Notes, *, until_end: bool = False) -> None:
        self._notes = notes
        self._stop = threading.Event()
        self._consumer = Consumer(CLIENT | {
            "bootstrap.servers": bootstrap, "group.id": "observer", "enable.auto.commit": False,
            "auto.offset.reset": "error", "isolation.level": "read_committed", "enable.partition.eof": until_end,
        })  # fmt: skip
        self.ended: set[TopicPartition] = set()
        self._consumer.assign([Position(tp.topic, tp.partition, 0) for tp in all_partitions()])
        self._thread = threading.Thread(target=self._run, name="observer")
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            polls: dict[TopicPartition, Poll] = {}
            for message in self._consumer.consume(1000, 0.1):
                error = message.error()
                if error is None:
                    self._read(polls, *record_of(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    self.ended.add(TopicPartition(message.topic() or "", message.partition() or 0))
            self._notes.history.polls += polls.values()

    def _read(self, polls: dict[TopicPartition, Poll], tp: TopicPartition, offset: Offset, value: bytes) -> None:
        poll = polls.setdefault(tp, Poll("observer", tp, True, offset, offset, {}))
        poll.values[offset], poll.end = value, offset + 1
        self._notes.stored[tp][offset] = value
        if tp.topic == OUTPUT:
            self._notes.done.add(value)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class Workload:
    """The topics exist. The thread that makes it is on the host of the clients."""

    def __init__(self, bootstrap: str, path: Path) -> None:
        """`path`: where the clients write what is wrong."""
        self.bootstrap, self.notes = bootstrap, Notes()
        self.reads = GroupReads(self.notes)
        self._loops = [Loop(self._loop_command(n), path / f"loop-{n}.log") for n in range(LOOPS)]
        self._members = [GroupMember(bootstrap, "members", self.reads) for _ in range(MEMBERS)]
        self._observer = Observer(bootstrap, self.notes)
        self._producers = [NumberedProducer(bootstrap, f"producer-{n}", self.notes) for n in range(PRODUCERS)]

    def _loop_command(self, n: int) -> list[str]:
        program = [sys.executable, "-m", "tests.clients.python.exactly_once"]
        settings = [f"{name}={value}" for name, value in CLIENT.items()]
        return [*program, self.bootstrap, INPUT, OUTPUT, f"loop-{n}", *settings]

    def committed_transactions(self) -> int:
        return sum(loop.counts["committed"] for loop in self._loops)

    def last_lines_of_loops(self) -> list[str]:
        return ["".join(loop.last[-1:]).strip() for loop in self._loops]

    def restart_loops(self) -> None:
        for loop in self._loops:
            loop.kill()
            loop.start()
            self.notes.restarts += 1

    def stop_producers(self) -> int:
        """How many records nobody acknowledged."""
        return sum(producer.stop() for producer in self._producers)

    def stop(self) -> None:
        for producer in self._producers:
            producer._stop.set()
        for member in self._members:
            member.stop()
        self._observer.stop()
        for loop in self._loops:
            with suppress(ValueError, subprocess.TimeoutExpired):
                loop.kill()


def partitions_of(positions: Iterable[Position]) -> list[TopicPartition]:
    return [TopicPartition(position.topic, position.partition) for position in positions]


def all_partitions() -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in (INPUT, OUTPUT) for n in range(PARTITIONS)]


def record_of(message: Message) -> tuple[TopicPartition, Offset, bytes]:
    topic, partition, offset, value = message.topic(), message.partition(), message.offset(), message.value()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    assert isinstance(value, bytes)
    return TopicPartition(topic, partition), offset, value


def read_all(bootstrap: str, wait: Callable[[Callable[[], bool]], None]) -> Notes:
    """Both topics once more from their start: what a client sees that comes afterwards."""
    notes = Notes()
    observer = Observer(bootstrap, notes, until_end=True)
    try:
        wait(lambda: len(observer.ended) == len(all_partitions()))
    finally:
        observer.stop()
    return notes

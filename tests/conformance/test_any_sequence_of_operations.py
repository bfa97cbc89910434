"""Random sequences of operations, on a Leadline log and on Kafka's: the same answers, the same state, the same bytes.

The seeds are fixed: the same sequences every time, so that a failure is there again on the next run.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from leadline.log.log import Isolation
from leadline.log.producer_state import AppendOrigin
from tests.conformance.kafka.answers import Codec, Record
from tests.conformance.kafka.oracle import START_MS, Oracle
from tests.conformance.pair import Pair

pytestmark = pytest.mark.conformance

STEPS = 60
CODECS: tuple[Codec, ...] = ("none", "none", "gzip", "snappy", "lz4", "zstd")

SETTINGS: dict[str, Mapping[str, str]] = {
    "small segments": {"segment.bytes": "1500", "index.interval.bytes": "200", "segment.index.bytes": "200"},
    "full indexes": {"segment.bytes": "100000", "index.interval.bytes": "0", "segment.index.bytes": "80"},
    "short times": {"segment.ms": "500", "retention.ms": "3000", "segment.index.bytes": "400"},
    "bounded size": {"segment.bytes": "1000", "retention.bytes": "3000", "segment.index.bytes": "400"},
    "append time": {
        "message.timestamp.type": "LogAppendTime",
        "segment.bytes": "2000",
        "index.interval.bytes": "100",
        "segment.index.bytes": "400",
    },
    "often flushed": {"flush.messages": "3", "segment.bytes": "1200", "segment.index.bytes": "400"},
}


@dataclass
class Client:
    """A producer as it sees itself."""

    id: int
    epoch: int = 0
    sequence: int = 0
    in_transaction: bool = False
    sent: list[bytes] = field(default_factory=list)


class Walk:
    """One sequence of operations, most of them sensible."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.random = pair, random.Random(seed)
        self.clients = [Client(id) for id in (7, 1 << 33, 16, 23)]
        self.epoch = self.coordinator_epoch = 0
        self.moves: list[tuple[int, Callable[[], object]]] = [
            (10, self.append),
            (16, self.append_idempotent),
            (8, self.end_transaction),
            (2, self.repeat),
            (2, self.out_of_order),
            (5, self.replicate),
            (8, self.move_high_watermark),
            (2, self.new_leader),
            (2, self.new_producer_epoch),
            (2, self.zombie),
            (2, self.truncate),
            (1, self.start_over),
            (3, self.delete_records),
            (4, self.pair.delete_old_segments),
            (3, self.pair.run_due),
            (2, self.pair.roll),
            (2, self.pair.flush),
            (4, self.pass_time),
            (2, self.pair.expire_producers),
            (2, self.pair.reopen),
            (4, self.read),
            (1, self.change_settings),
        ]

    def run(self, steps: int) -> None:
        weights = [weight for weight, _ in self.moves]
        for _ in range(steps):
            (move,) = self.random.choices([move for _, move in self.moves], weights)
            move()
            self.pair.assert_same_state()
            self.pair.assert_same_names()

    # Records

    def records(self, count: int | None = None) -> list[Record]:
        now = self.pair.bench.clock.ms
        chosen = self.random
        count = count or chosen.randint(1, 5)
        return [
            Record(
                now + chosen.randint(-400, 100) if chosen.random() < 0.9 else -1,
                f"k{chosen.randrange(8)}".encode() if chosen.random() < 0.8 else None,
                bytes(chosen.choices(b"abc", k=chosen.choice((3, 30, 200)))) if chosen.random() < 0.9 else None,
                (("h", b"1"), ("h", None)) if chosen.random() < 0.2 else (),
            )
            for _ in range(count)
        ]

    def append(self) -> None:
        batch = self.pair.oracle.build(self.random.choice(CODECS), self.records())
        self.pair.append(batch, self.epoch)

    def append_idempotent(self) -> None:
        client = self.random.choice(self.clients)
        transactional = client.in_transaction or self.random.random() < 0.5
        self.send(client, client.sequence, transactional)

    def send(self, client: Client, sequence: int, transactional: bool) -> None:
        records = self.records()
        batch = self.pair.oracle.build(
            self.random.choice(CODECS),
            records,
            producer_id=client.id,
            producer_epoch=client.epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        if isinstance(self.pair.append(batch, self.epoch), tuple):
            client.sequence = sequence + len(records) & 0x7FFF_FFFF
            client.in_transaction = transactional
            client.sent.append(batch)

    def end_transaction(self) -> None:
        """Also of one that is not open, as a coordinator does that repeats itself."""
        client = self.random.choice(self.clients)
        marker = self.pair.oracle.end_transaction_marker(
            client.id,
            client.epoch,
            commit=self.random.random() < 0.5,
            coordinator_epoch=max(self.coordinator_epoch + self.random.choice((-1, 0, 0, 0, 0, 1)), 0),
            timestamp=self.pair.bench.clock.ms,
        )
        if isinstance(self.pair.append(marker, self.epoch, AppendOrigin.COORDINATOR), tuple):
            client.in_transaction = False

    def repeat(self) -> None:
        client = self.random.choice(self.clients)
        if client.sent:
            self.pair.append(self.random.choice(client.sent[-7:]), self.epoch)

    def out_of_order(self) -> None:
        client = self.random.choice(self.clients)
        self.send(client, client.sequence + self.random.choice((-1, 1, 10)) & 0x7FFF_FFFF, client.in_transaction)

    def new_producer_epoch(self) -> None:
        client = self.random.choice(self.clients)
        client.epoch += 1
        client.sequence = self.random.choice((0, 0, 0, 5))
        client.in_transaction = False

    def zombie(self) -> None:
        client = self.random.choice(self.clients)
        if client.epoch:
            self.send(Client(client.id, client.epoch - 1, client.sequence), client.sequence, False)

    def replicate(self) -> None:
        """Several batches at once, as a leader's log has them: with gaps, of several epochs."""
        offset, epoch, data = self.pair.log.log_end, self.epoch, b""
        for client in self.clients:
            client.in_transaction = self.in_transaction(client)
        for _ in range(self.random.randint(1, 4)):
            if data or "flush.messages" not in self.pair.settings:  # RepeatedCallbacks: a gap may cost one more flush
                offset += self.random.choice((0, 0, 0, 1, 50))
            epoch += self.random.random() < 0.2
            records = self.records()
            chosen = self.random.choice([*self.clients, None])
            if chosen is None:
                data += self.pair.oracle.build("none", records, base_offset=offset, leader_epoch=epoch)
            elif chosen.in_transaction and self.random.random() < 0.5:
                data += self.pair.oracle.end_transaction_marker(
                    chosen.id, chosen.epoch, commit=False, base_offset=offset, leader_epoch=epoch
                )
                chosen.in_transaction = False
                offset += 1
                continue
            else:
                chosen.in_transaction = chosen.in_transaction or self.random.random() < 0.5
                data += self.pair.oracle.build(
                    self.random.choice(CODECS),
                    records,
                    base_offset=offset,
                    leader_epoch=epoch,
                    producer_id=chosen.id,
                    producer_epoch=chosen.epoch,
                    base_sequence=chosen.sequence,
                    transactional=chosen.in_transaction,
                )
                chosen.sequence += len(records)
            offset += len(records)
        cut = self.random.choice((0, 0, 0, 5, 70))
        self.epoch = epoch
        if len(data) > 2 * cut + 200:
            self.pair.replicate(data[: len(data) - cut])

    def in_transaction(self, client: Client) -> bool:
        producer = self.pair.log.producer_state.by_id.get(client.id)
        return producer is not None and producer.txn_first_offset is not None

    # Everything else

    def some_offset(self) -> int:
        log = self.pair.log
        near = [segment.base_offset for segment in log.segments] + [log.log_start, log.log_end, log.high_watermark]
        if self.random.random() < 0.5:
            return max(self.random.choice(near) + self.random.choice((-1, 0, 0, 1)), 0)
        return self.random.randint(0, log.log_end + 1)

    def move_high_watermark(self) -> None:
        log = self.pair.log
        offset = log.log_end if self.random.random() < 0.5 else self.some_offset()
        if offset > log.high_watermark or self.random.random() < 0.2:
            self.pair.high_watermark(offset)

    def new_leader(self) -> None:
        self.epoch += self.random.randint(1, 2)
        if self.random.random() < 0.3:
            self.coordinator_epoch += 1

    def truncate(self) -> None:
        """In the middle of a batch, too, which leaves a gap at the end. There, Kafka takes a high watermark to the
        log's end when it next reads."""
        self.pair.truncate_to(self.some_offset())
        if self.pair.log.segments.active.end()[0] < self.pair.log.log_end:
            self.pair.high_watermark(self.pair.log.log_end)

    def start_over(self) -> None:
        self.pair.truncate_fully_and_start_at(self.some_offset() + self.random.choice((0, 0, 100)))

    def delete_records(self) -> None:
        self.pair.delete_records(self.some_offset())

    def pass_time(self) -> None:
        self.pair.advance(self.random.choice((1, 100, 600, 2000)))

    def read(self) -> None:
        for isolation in Isolation:
            self.pair.read(
                self.some_offset(),
                self.random.choice((0, 1, 61, 300, 1000, 100_000)),
                isolation,
                min_one=self.random.random() < 0.5,
            )

    def change_settings(self) -> None:
        self.pair.update_config(self.random.choice(list(SETTINGS.values())))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("name", SETTINGS)
def test_both_do_the_same(oracle: Oracle, tmp_path: Path, name: str, seed: int) -> None:
    pair = Pair(oracle, tmp_path, SETTINGS[name])
    pair.expiration_ms = 5000
    pair.open()
    Walk(pair, seed * 100 + list(SETTINGS).index(name)).run(STEPS)
    pair.close()
    pair.assert_same_files()
    assert pair.bench.clock.ms >= START_MS

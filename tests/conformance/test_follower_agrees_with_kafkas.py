"""A follower and Kafka's own fetcher, side by side: whatever the leader answers, both do the same to their logs."""

import random
from pathlib import Path

import pytest

from leadline.errors import (
    FencedLeaderEpoch,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from leadline.log.epochs import EpochEnd
from leadline.replication.follower import LATEST_TIMESTAMP, AskOffset, FetchAnswer, FetchState
from leadline.replication.partition import LeaderAndIsr
from leadline.wire.fetch_position import FetchPosition
from tests.conformance.kafka.oracle import START_MS, Oracle
from tests.support.replicas import ControllerUpdate, MemoryLog, Node, Record, Reply

pytestmark = pytest.mark.conformance

ERRORS = [FencedLeaderEpoch, NotLeaderOrFollower, UnknownLeaderEpoch, UnknownTopicOrPartition]
ASKS_AT_ONCE = "the leader has our position, but refused it"  # Kafka's asks again without a rest


class Both:
    """Two followers of the same leader, with the same input."""

    def __init__(self, oracle: Oracle, folder: Path, chosen: random.Random) -> None:
        self.oracle, self.chosen, self.epoch = oracle, chosen, 0
        self.node = Node(1, MemoryLog())
        folder.mkdir()
        oracle.open(folder, clean=False)
        oracle.ask("followed")
        self.follow()

    def follow(self) -> None:
        """Of a new leader, or of the same in a new epoch."""
        self.epoch += self.chosen.choice([1, 2])
        update = ControllerUpdate(LeaderAndIsr(2, self.epoch, (2,)), (1, 2), {}, 1)
        self.node.apply(update, START_MS)
        self.compare(self.oracle.ask("followed_epoch", leader_epoch=self.epoch))

    def compare(self, theirs: dict[str, object]) -> None:
        log, following = self.node.log, self.node.following
        assert following is not None
        if following.why == ASKS_AT_ONCE:
            following.rests_until_ms, following.why = 0, ""
        failed = following.state is FetchState.FAILED
        assert theirs == {
            "failed": failed,
            "rests": following.rests_until_ms > START_MS,
            "offset": None if failed else following.offset,
            "last_fetched_epoch": None if failed else following.last_fetched_epoch,
        }
        state = self.oracle.state()
        assert (log.log_start, log.log_end) == (state["log_start_offset"], state["log_end_offset"])
        assert log.high_watermark == state["high_watermark"]
        assert [tuple(entry) for entry in log.epochs.entries] == [tuple(entry) for entry in state["epochs"]]

    def round(self) -> None:
        """One fetch; of one that rests or failed, nothing more is to be had until the next epoch."""
        position = self.node.ask(START_MS)
        if position is None:
            self.follow()
            return
        assert isinstance(position, FetchPosition)
        reply = self.reply()
        latest, earliest = (self.offset(reply.answer.error_code) for _ in range(2))
        self.node.receive(position, reply, START_MS)
        while isinstance(question := self.node.ask(START_MS), AskOffset):
            code, offset = latest if question.timestamp == LATEST_TIMESTAMP else earliest
            self.node.receive(question, Reply(FetchAnswer(code), offset=offset), START_MS)
        self.compare(self.oracle.ask("followed_round", fetch=as_kafka_tells(reply), latest=latest, earliest=earliest))

    def reply(self) -> Reply:
        log, kind = self.node.log, self.chosen.random()
        if kind < 0.1:
            return Reply(FetchAnswer(self.chosen.choice([*ERRORS, *[OffsetOutOfRange] * 4]).code))
        if kind < 0.3:
            end = self.chosen.choice([-1, *range(log.log_start, log.log_end + 3)])
            return Reply(FetchAnswer(diverging=EpochEnd(self.chosen.randrange(self.epoch + 1), end)))
        records = self.records()
        log_end = log.log_end + len(records)
        high_watermark = self.chosen.randint(log.log_start, log_end + 3)
        log_start = self.chosen.choice([0, 0, 0, log.log_start, min(high_watermark, log_end)])
        return Reply(FetchAnswer(0, high_watermark, log_start, has_records=bool(records)), records)

    def records(self) -> tuple[Record, ...]:
        log = self.node.log
        epoch = log.epochs.latest.epoch if log.epochs.latest is not None else 0
        records = []
        for n in range(self.chosen.randrange(5)):
            epoch = self.chosen.choice([epoch, epoch, self.chosen.randint(epoch, self.epoch)])
            records.append(Record(log.log_end + n, epoch, "v"))
        return tuple(records)

    def offset(self, code: int) -> tuple[int, int]:
        """Where the leader's log ends, or starts; or why it does not tell."""
        if code != OffsetOutOfRange.code or self.chosen.random() < 0.2:
            return self.chosen.choice(ERRORS).code, -1
        log = self.node.log
        return 0, self.chosen.randint(log.log_start, log.log_end + 3)


def as_kafka_tells(reply: Reply) -> dict[str, object]:
    answer = reply.answer
    return {
        "code": answer.error_code,
        "high_watermark": answer.high_watermark,
        "log_start": answer.log_start,
        "diverging": None if answer.diverging is None else tuple(answer.diverging),
        "records": [(record.offset, record.epoch) for record in reply.records],
    }


@pytest.mark.parametrize("seed", range(20))
def test_both_followers_do_the_same(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    both = Both(oracle, tmp_path / "t-0", random.Random(seed))
    for _ in range(100):
        both.round()
    assert both.epoch > 1

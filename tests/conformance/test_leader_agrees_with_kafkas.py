"""The leader of a partition and Kafka's own, side by side: after each step both have decided the same."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline.errors import (
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    OperationNotAttempted,
    UnknownTopicOrPartition,
    WireError,
)
from leadline.replication.partition import (
    AFTER_REFUSAL,
    ANY_EPOCH,
    IsrLimits,
    LeaderAndIsr,
    LeaderEffects,
    LeaderState,
    LogOffsets,
    Proposal,
    Refusal,
)
from tests.conformance.kafka.answers import KafkaError
from tests.conformance.kafka.oracle import START_MS, Oracle

pytestmark = pytest.mark.conformance

LAG_MS = 30_000
REFUSALS = [
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidUpdateVersion,
    NotController,
    OperationNotAttempted,
    UnknownTopicOrPartition,
]
ASSIGNMENTS = [(1, 2, 3), (2, 1, 3), (1, 2), (1, 3, 4), (1,)]


class Both:
    """Two leaders of the same partition, both broker 1, with the same input."""

    def __init__(self, oracle: Oracle, folder: Path, chosen: random.Random) -> None:
        self.oracle, self.chosen, self.now_ms = oracle, chosen, START_MS
        self.proposals: list[Proposal] = []
        self.answered = 0  # of them
        min_isr = chosen.choice([1, 2, 3])
        oracle.time(self.now_ms)
        folder.mkdir()
        oracle.open(folder, {"min.insync.replicas": str(min_isr)}, clean=False)
        oracle.ask("partition", lag_ms=LAG_MS)
        self.brokers = dict.fromkeys(range(1, 5), ANY_EPOCH)
        oracle.ask("partition_living", brokers=list(self.brokers))
        decision, replicas = LeaderAndIsr(1, 0, (1, 2, 3)), (1, 2, 3)
        self.ours = LeaderState(
            decision,
            replicas,
            LogOffsets(0, 0, 0),
            self.now_ms,
            self.brokers,
            IsrLimits(min_isr, LAG_MS),
        )
        self._tell(decision, replicas)

    def _tell(self, decision: LeaderAndIsr, replicas: tuple[int, ...]) -> None:
        self.compare(
            self.oracle.ask(
                "partition_decided",
                leader_epoch=decision.leader_epoch,
                partition_epoch=decision.partition_epoch,
                isr=decision.isr,
                replicas=replicas,
            )
        )

    def carry_out(self, effects: LeaderEffects) -> None:
        if effects.alter_isr is not None:
            self.proposals.append(effects.alter_isr)

    def compare(self, theirs: dict[str, object]) -> None:
        ours = self.ours
        assert theirs == {
            "high_watermark": ours.high_watermark,
            "log_end": ours.log_end,
            "low_watermark": ours.low_watermark(0),
            "isr": sorted(ours.isr),
            "maximal_isr": sorted(ours.maximal_isr),
            "is_pending": ours.pending is not None,
            "leader_epoch": ours.epoch,
            "partition_epoch": ours.partition_epoch,
            "after_append": 0 if (too_few := ours.too_few_in_sync()) is None else too_few.code,
            "proposals": len(self.proposals),
            "proposed": sorted(self.proposals[-1].proposed.isr) if self.proposals else None,
        }

    def compare_in_a_new_epoch(self) -> None:
        """Ours does not wait for a replica that cannot join, and looks again at once; in a new epoch Kafka's does."""
        decision = LeaderAndIsr(1, self.ours.epoch + 1, self.ours.isr, self.ours.partition_epoch + 1)
        self.carry_out(self.ours.decided(decision, self.ours.replicas, self.now_ms))
        self._tell(decision, self.ours.replicas)

    def compare_once_both_have_looked(self, theirs: dict[str, object]) -> None:
        if theirs["high_watermark"] == self.ours.high_watermark:
            self.compare(theirs)
        else:
            self.compare_in_a_new_epoch()

    def ask_and_compare(self, code: int, op: str, **arguments: object) -> None:
        """What Kafka's does, if `code` is 0; otherwise it is to be refused with that."""
        try:
            self.compare_once_both_have_looked(self.oracle.ask(op, **arguments))
            our_code = 0
        except KafkaError as refused:
            our_code = refused.code
        assert our_code == code

    # Steps

    def append(self) -> None:
        acks = self.chosen.choice([-1, -1, 1])
        code = _code_of(self.ours.check_in_sync) if acks == -1 else 0
        if code == 0:
            self.carry_out(self.ours.appended(self.ours.log_end + 1, self.now_ms))
        self.ask_and_compare(code, "partition_append", acks=acks)

    def fetch(self) -> None:
        replica = self.chosen.choice([2, 2, 3, 3, 4])
        follower = self.ours.followers.get(replica)
        near = 0 if follower is None else follower.log_end
        offset = min(max(near + self.chosen.choice([-1, 0, 1, 2, 100]), 0), self.ours.log_end)
        log_start = self.chosen.choice([0, 0, offset])
        code = _code_of(lambda: self.ours.follower(replica, self.ours.epoch))
        if code == 0:
            self.carry_out(self.ours.follower_fetched(replica, offset, log_start, self.now_ms))
        fetch = {"replica": replica, "offset": offset, "log_start": log_start, "leader_epoch": self.ours.epoch}
        self.ask_and_compare(code, "partition_fetched", **fetch)

    def shrink(self) -> None:
        self.carry_out(self.ours.shrink(self.now_ms))
        self.compare_once_both_have_looked(self.oracle.ask("partition_shrink"))

    def wait(self) -> None:
        self.now_ms += self.chosen.choice([1, 5000, LAG_MS, LAG_MS + 1])
        self.oracle.time(self.now_ms)

    def answer(self) -> None:
        """The controller alters the ISR as proposed, or in another way, or refuses."""
        if len(self.proposals) == self.answered:
            return
        proposal, self.answered = self.proposals[-1], len(self.proposals)
        proposed = proposal.proposed
        decision = self.chosen.choice(
            [
                proposed._replace(partition_epoch=proposed.partition_epoch + 1),
                proposed._replace(partition_epoch=proposed.partition_epoch + 1),
                proposed,
                proposed._replace(leader_epoch=proposed.leader_epoch + 1),
                proposed._replace(partition_epoch=proposed.partition_epoch - 1),
                None,
            ]
        )
        if decision is None:
            code = self.chosen.choice(REFUSALS).code
            is_forgotten = AFTER_REFUSAL.get(code) is Refusal.FORGET and proposal is self.ours.pending
            self.carry_out(self.ours.alter_refused(proposal, code, self.now_ms))
            theirs = self.oracle.ask("partition_answered", code=code)
            if is_forgotten and not set(proposed.isr) <= set(self.ours.isr):
                self.compare_in_a_new_epoch()
            else:
                self.compare_once_both_have_looked(theirs)
            return
        self.carry_out(self.ours.isr_altered(proposal, decision, self.now_ms))
        self.compare(
            self.oracle.ask(
                "partition_answered",
                code=0,
                leader_epoch=decision.leader_epoch,
                partition_epoch=decision.partition_epoch,
                isr=decision.isr,
            )
        )

    def decide(self) -> None:
        """The same leader again, in a new epoch, or what was decided long ago."""
        replicas = self.chosen.choice(ASSIGNMENTS)
        isr = tuple(replica for replica in replicas if replica == 1 or self.chosen.random() < 0.5)
        newer = self.chosen.choice([-1, 1, 1])
        decision = LeaderAndIsr(1, max(self.ours.epoch + newer, 0), isr, self.ours.partition_epoch + newer)
        self.carry_out(self.ours.decided(decision, replicas, self.now_ms))
        self._tell(decision, replicas)

    def live(self) -> None:
        alive = [broker for broker in (1, 2, 3, 4) if broker == 1 or self.chosen.random() < 0.8]
        gone = self.brokers.keys() - set(alive)
        self.brokers.clear()
        self.brokers.update(dict.fromkeys(alive, ANY_EPOCH))
        self.carry_out(self.ours.brokers_left(gone, self.now_ms))
        theirs = self.oracle.ask("partition_living", brokers=alive)
        if gone.isdisjoint(self.ours.followers.keys() - set(self.ours.isr)):
            self.compare(theirs)
        else:
            self.compare_in_a_new_epoch()


def _code_of(check: Callable[[], object]) -> int:
    try:
        check()
    except WireError as error:
        return error.code
    return 0


@pytest.mark.parametrize("seed", range(20))
def test_both_leaders_decide_the_same(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    both = Both(oracle, tmp_path / "t-0", chosen)
    steps = [both.append, both.fetch, both.shrink, both.wait, both.answer, both.decide, both.live]
    for step in chosen.choices(steps, weights=[4, 10, 5, 4, 4, 1, 1], k=200):
        step()
    assert both.ours.log_end > 0

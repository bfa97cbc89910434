"""Faults one after the other under load. After each, all replicas are in sync again, and every promise was kept.

what was acknowledged is there, once and in its order
each record of the input is in the output once, in the order of its partition, as read_committed shows it
the group reads on from what it committed, and skips nothing
a broker ends by itself only where Kafka's does
within SETTLE_S after a fault all of that goes on
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from leadline.model import Offset, TopicPartition
from leadline.simulation.checkers.reads import changed_reads, repeated_reads, skipped_reads
from leadline.simulation.checkers.writes import Stored, doubled_writes, lost_writes, unordered_writes
from leadline.simulation.client_history import Attempt, ClientHistory
from tests.fault.injection.fault_cluster import FaultCluster
from tests.fault.injection.injected_fault import InjectedFault
from tests.fault.injection.tally import Tally
from tests.fault.injection.workload import (
    DONE,
    INPUT,
    INTERNAL,
    NO_PLACE,
    OUTPUT,
    PARTITIONS,
    Notes,
    Workload,
    all_partitions,
    read_all,
)
from tests.support.identical_replicas import replicas_are_identical

SETTLE_S = 300.0  # for a machine that has much else to do
IMPATIENT_S = (
    45.0  # without a transaction; then loops are started again: librdkafka may wait for a coordinator for ever
)
POLL_S = 0.05
NOWHERE = 1 << 62  # an offset beyond all that is stored
TOPICS = (INPUT, OUTPUT, *INTERNAL)


class Stalled(Exception):
    """Something that must go on does not."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How far the notes had come."""

    attempts: int
    ends: dict[TopicPartition, Offset]
    order: int
    polls: int
    refusals: int
    at: float


class FaultRun:
    def __init__(self, cluster: FaultCluster, workload: Workload, tell: Callable[[str], None]) -> None:
        self.cluster, self.workload, self.tell = cluster, workload, tell
        self.tallies: dict[str, Tally] = {}

    @property
    def notes(self) -> Notes:
        return self.workload.notes

    # One fault

    def play(self, fault: InjectedFault) -> Tally:
        """What this one came to. Raises Stalled."""
        tally, mark = Tally(faults=1), self._mark()
        what = fault.inject()
        time.sleep(fault.seconds)
        tally.violations += self._ended_brokers(fault)
        fault.heal()
        self._judge(tally, mark, self.settle())
        outcome = "; ".join(tally.violations) or "ok"
        self.tell(f"{fault.name:13} {what}, {fault.seconds:.1f} s; unavailable {tally.unavailable_s:.1f} s: {outcome}")
        self.tallies.setdefault(fault.name, Tally()).add(tally)
        return tally

    def _mark(self) -> Mark:
        ends = {tp: max(self.notes.stored[tp], default=-1) + 1 for tp in all_partitions()}
        counts = len(self.notes.order), len(self.notes.history.polls), len(self.notes.refusals)
        return Mark(len(self.notes.history.attempts), ends, *counts, time.monotonic())

    def _ended_brokers(self, fault: InjectedFault) -> list[str]:
        if fault.may_end_broker or self.cluster.is_apache:
            return []
        ids = [id for id in self.cluster.ids if not self.cluster.is_running(id)]
        return [f"broker {id} ended: {last_line(self.cluster.brokers[id].output())}" for id in ids]

    # Until all goes on

    def settle(self) -> int:
        """How many of the attempts went all the way: some of each partition that were made after the fault."""
        deadline = time.monotonic() + SETTLE_S
        self._wait(lambda: self.cluster.is_in_sync(TOPICS), deadline, self._replicas_behind)
        sent = len(self.notes.history.attempts)
        self._wait(lambda: self._is_sent_to_all_behind(sent), deadline, lambda: "the producers send nothing")
        count = len(self.notes.history.attempts)
        self._wait_until_through(self.notes.history.attempts[:count], deadline)
        return count

    def _wait_until_through(self, due: list[Attempt], deadline: float) -> None:
        self._wait(lambda: is_acknowledged(due), deadline, lambda: f"not acknowledged: {not_acknowledged(due)}")
        committed, impatient = self.workload.committed_transactions(), time.monotonic() + IMPATIENT_S
        while missing := self._not_transformed(due):
            if time.monotonic() > deadline:
                raise Stalled(f"not transformed: {missing}")
            if committed != self.workload.committed_transactions():
                committed, impatient = self.workload.committed_transactions(), time.monotonic() + IMPATIENT_S
            elif time.monotonic() > impatient:
                impatient = time.monotonic() + IMPATIENT_S
                last = "; ".join(self.workload.last_lines_of_loops())
                self.tell(f"the transactional clients are started again; they last said: {last}")
                self.workload.restart_loops()
            time.sleep(POLL_S)
        self._wait(lambda: not self._not_observed(due), deadline, lambda: f"not read: {self._not_observed(due)}")
        self._wait(
            lambda: self._is_read(due), deadline, lambda: f"the group read up to {dict(self.workload.reads.read)}"
        )

    def _wait(self, condition: Callable[[], bool], deadline: float, why: Callable[[], str]) -> None:
        while not condition():
            if time.monotonic() > deadline:
                raise Stalled(why())
            time.sleep(POLL_S)

    def _replicas_behind(self) -> str:
        return f"not all replicas are in sync: {self.cluster.states_of(TOPICS)}"

    def _is_sent_to_all_behind(self, sent: int) -> bool:
        return len({attempt.tp for attempt in self.notes.history.attempts[sent:]}) == PARTITIONS

    def _not_transformed(self, due: list[Attempt]) -> list[bytes]:
        return [a.value for a in due if a.offset is not None and DONE + a.value not in self.notes.done][:5]

    def _not_observed(self, due: list[Attempt]) -> list[bytes]:
        stored = self.notes.stored
        return [a.value for a in due if a.offset is not None and a.offset >= 0 and a.offset not in stored[a.tp]][:5]

    def _is_read(self, due: list[Attempt]) -> bool:
        ends = {attempt.tp: attempt.offset for attempt in due if attempt.offset is not None and attempt.offset >= 0}
        return all(self.workload.reads.read[tp] > offset for tp, offset in ends.items())

    # What it came to

    def _judge(self, tally: Tally, mark: Mark, count: int) -> None:
        """The new records only: `finish` judges all of them once more."""
        history, stored = self.notes.history, {tp: dict(values) for tp, values in self.notes.stored.items()}
        tally.acknowledged = sum(attempt.offset is not None for attempt in history.attempts[mark.attempts : count])
        recent = {tp: {o: value for o, value in values.items() if o >= mark.ends[tp]} for tp, values in stored.items()}
        values = (value.removeprefix(DONE) for values in recent.values() for value in values.values())
        first = min((self.notes.places[value] for value in values), default=mark.attempts)
        tally.add(judged(history.attempts[min(first, mark.attempts) : count], stored, recent))
        disorder = list(repeated_reads(ClientHistory(polls=history.polls[mark.polls :])))
        disorder += self.notes.order[mark.order :]
        tally.add(Tally(reordered=len(disorder), violations=disorder))
        tally.violations += sorted(set(self.notes.refusals[mark.refusals :]))
        tally.unavailable_s = max(self._gaps(mark.at), default=0.0)

    def _gaps(self, since: float) -> Iterator[float]:
        for times in self.notes.acknowledged_at.values():
            recent = [at for at in times[-5000:] if at >= since]
            yield from (later - earlier for earlier, later in pairwise([since, *recent]))

    # At the end

    def finish(self) -> Tally:
        """All that was written is read once more by a new client, and replicas are compared. Raises Stalled."""
        tally, left = Tally(), self.workload.stop_producers()
        tally.violations += [f"{left} records were not acknowledged within two minutes"] if left else []
        deadline = time.monotonic() + SETTLE_S
        self._wait(lambda: self.cluster.is_in_sync(TOPICS), deadline, self._replicas_behind)
        attempts = self.notes.history.attempts
        self._wait_until_through(attempts, deadline)
        again = read_all(self.cluster.bootstrap, self._wait_to_the_end)
        tally.add(judged(attempts, again.stored, again.stored))
        missing = missing_outputs(again)
        tally.add(Tally(lost=len(missing), violations=missing))
        history = ClientHistory(polls=self.notes.history.polls)
        changed = [*changed_reads(history, again.stored), *skipped_reads(history, again.stored, again.stored)]
        disorder = list(repeated_reads(history))
        tally.add(Tally(lost=len(changed), reordered=len(disorder), violations=[*changed, *disorder]))
        directories = [broker.directory for broker in self.cluster.brokers.values()]
        try:
            replicas_are_identical(directories, [str(tp) for tp in all_partitions()])
        except AssertionError as error:
            tally.violations.append(f"different replicas: {error}")
        return tally

    def _wait_to_the_end(self, condition: Callable[[], bool]) -> None:
        self._wait(condition, time.monotonic() + SETTLE_S, lambda: "the topics cannot be read to their end")


def judged(attempts: list[Attempt], stored: Stored, recent: Stored) -> Tally:
    """By the checkers of the simulation. `recent`: those records whose order is checked."""
    attempts = [with_place(attempt, stored) for attempt in attempts]
    history = ClientHistory(attempts=[*attempts, *map(output_of, attempts)])
    lost, doubled = list(lost_writes(history, stored)), list(doubled_writes(history, recent))
    reordered = list(unordered_writes(history, recent))
    violations = [*lost, *doubled, *reordered]
    return Tally(lost=len(lost), doubled=len(doubled), reordered=len(reordered), violations=violations)


def output_of(attempt: Attempt) -> Attempt:
    """What a loop writes of it, to any partition: the records of a partition of the input keep their order."""
    return Attempt(f"{attempt.producer} {attempt.tp}", attempt.number, DONE + attempt.value, attempt.tp)


def with_place(attempt: Attempt, stored: Stored) -> Attempt:
    """One whose offset was lost with its answer is somewhere."""
    if attempt.offset != NO_PLACE:
        return attempt
    place = next((offset for offset, value in stored[attempt.tp].items() if value == attempt.value), NOWHERE)
    return Attempt(attempt.producer, attempt.number, attempt.value, attempt.tp, place)


def missing_outputs(notes: Notes) -> list[str]:
    return [
        f"lost transaction: {value!r} of {tp} @ {offset} is not in the output"
        for tp, values in notes.stored.items()
        if tp.topic == INPUT
        for offset, value in values.items()
        if DONE + value not in notes.done
    ]


def is_acknowledged(due: list[Attempt]) -> bool:
    return all(attempt.offset is not None or attempt.is_given_up for attempt in due)


def not_acknowledged(due: list[Attempt]) -> list[bytes]:
    return [attempt.value for attempt in due if attempt.offset is None and not attempt.is_given_up][:5]


def last_line(text: str) -> str:
    return text.splitlines()[-1] if text else ""

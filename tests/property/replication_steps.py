"""Three replicas and a controller, and everything that a network, a power supply and an operator can do to them.

A walk is a row of numbers: each one picks one of all the steps that are possible then. One thing is not done: nobody
takes the power from the last in-sync replica. No broker that acknowledges before its disk does would survive that.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from leadline.errors import UnknownServerError, WireError
from leadline.model import BrokerId, Offset
from leadline.replication.follower import BACKOFF_MS
from leadline.replication.partition import LeaderAndIsr, LeaderState, Proposal
from tests.support.replicas import LAG_MS, Ask, Controller, ControllerUpdate, MemoryLog, Node, Record, Reply

IDS = (1, 2, 3)
ASSIGNMENTS = ((1, 2, 3), (3, 1, 2), (1, 2), (2, 3), (3, 1))
MOST_IN_FLIGHT = 8

Step = Callable[[], object]


class Decided(NamedTuple):
    """LeaderAndIsr on its way to a broker."""

    to: BrokerId
    update: ControllerUpdate


class LeaderRequest(NamedTuple):
    """A follower's request on its way to the leader."""

    by: BrokerId
    incarnation: int
    to: BrokerId
    ask: Ask


class LeaderResponse(NamedTuple):
    """The response to a LeaderRequest, on its way back."""

    to: BrokerId
    incarnation: int
    ask: Ask
    reply: Reply


class Altered(NamedTuple):
    """The answer to AlterPartition."""

    to: BrokerId
    incarnation: int
    proposal: Proposal
    decision: LeaderAndIsr | int


class Waiting(NamedTuple):
    """A producer that waits for acks=all."""

    leader: LeaderState
    record: Record


Message = Decided | LeaderRequest | LeaderResponse | Altered


class Model:
    def __init__(self, *, min_isr: int = 1, unclean: bool = False, keeps_epochs: bool = True) -> None:
        self.now_ms = 1_000_000
        self.nodes = {n: Node(n, MemoryLog(keeps_epochs=keeps_epochs), min_isr) for n in IDS}
        self.in_flight: list[Message] = []
        self.controller = Controller(
            IDS, lambda to, update: self.in_flight.append(Decided(to, update)), unclean=unclean
        )
        self.waiting: list[Waiting] = []
        self.acknowledged: list[Record] = []
        self.deleted_to: Offset = 0
        self.produced = 0

    # What can happen

    def step(self, choice: int) -> None:
        """One of all the steps that are possible now; one in fifteen is a blow."""
        steps = list(self._blows() if choice % 15 == 14 else self._steps())
        steps[choice // 15 % len(steps)]()

    def _steps(self) -> Iterator[Step]:
        """What shall happen more often comes more often."""
        for node in self.nodes.values():
            if node.leader is not None:
                yield from [partial(self.produce, node)] * 2
                yield partial(self.produce, node, acks_all=False)
                yield partial(node.shrink, self.now_ms)
            if node.following is not None:
                yield from [partial(self.at_once, self.ask, node)] * 4
                yield from [partial(self.ask, node)] * 2 * (len(self.in_flight) < MOST_IN_FLIGHT)
            if node.proposals:
                yield from [partial(self.at_once, self.alter, node), partial(self.alter, node)] * 2
            if not node.is_up:
                yield from [partial(self.start, node)] * 2
            elif node.is_leaving:
                yield from [node.crash] * 2  # so it ends, with nothing left to do
            elif node.id not in self.controller.alive:
                yield from [partial(self.rejoin, node)] * 2
            else:
                yield node.log.flush
        for message in self.in_flight[:MOST_IN_FLIGHT]:
            yield from [partial(self.deliver, message)] * 3
        yield partial(self.wait, BACKOFF_MS)
        yield self.controller.tell_all

    def _blows(self) -> Iterator[Step]:
        for node in self.nodes.values():
            if node.is_up:
                yield from self._blows_at(node)
            if node.id in self.controller.alive:
                yield partial(self.controller.failed, node.id)
                if node.is_up:
                    yield partial(self.shut_down, node)
        for message in self.in_flight[:MOST_IN_FLIGHT]:
            yield partial(self.lose, message)
            if not isinstance(message, Altered):
                yield partial(self.deliver, message, again=True)
        if self.controller.target == self.controller.assigned:
            yield from [partial(self.controller.reassign, target) for target in ASSIGNMENTS]
        yield self.controller.elect_preferred
        yield from [partial(self.wait, LAG_MS + 1)] * 3

    def _blows_at(self, node: Node) -> Iterator[Step]:
        if node.leader is not None:
            yield partial(self.delete_records, node)
        if node.proposals:
            yield partial(self.lose_proposal, node)
        yield node.crash
        if self._others_in_sync(node):
            yield partial(self.take_power, node)

    def produce(self, node: Node, *, acks_all: bool = True) -> None:
        self.produced += 1
        try:
            end = node.append(f"v{self.produced}", self.now_ms, acks_all=acks_all)
        except WireError:
            return
        if acks_all and node.leader is not None:
            self.waiting.append(Waiting(node.leader, node.log.records[end - 1 - node.log.log_start]))

    def ask(self, node: Node) -> None:
        ask = node.ask(self.now_ms)
        if ask is not None:
            self.in_flight.append(LeaderRequest(node.id, node.incarnation, node.follows, ask))

    def at_once(self, step: Callable[[Node], object], node: Node) -> None:
        """All requests of the node and the responses to them arrive without delay."""
        before = list(self.in_flight)
        step(node)
        while new := [message for message in self.in_flight if message not in before]:
            self.deliver(new[0])

    def deliver(self, message: Message, *, again: bool = False) -> None:
        """With `again`: it arrives now, and once more later."""
        if not again:
            self.in_flight.remove(message)
        node = self.nodes[message.to]
        if not node.is_up:
            return
        match message:
            case Decided():
                node.apply(message.update, self.now_ms)
            case LeaderRequest():
                reply = node.serve(message.by, message.incarnation, message.ask, self.now_ms)
                self.in_flight.append(LeaderResponse(message.by, message.incarnation, message.ask, reply))
            case LeaderResponse() if message.incarnation == node.incarnation:
                node.receive(message.ask, message.reply, self.now_ms)
            case Altered() if message.incarnation == node.incarnation:
                node.altered(message.proposal, message.decision, self.now_ms)
            case _:
                pass  # for a process that is gone

    def lose(self, message: Message) -> None:
        self.in_flight.remove(message)
        if isinstance(message, Altered):  # whoever waits for an answer notices that none comes
            lost = message._replace(decision=UnknownServerError.code)
            self.in_flight.append(lost)
            self.deliver(lost)

    def alter(self, node: Node) -> None:
        proposal = node.proposals.pop(0)
        self.in_flight.append(Altered(node.id, node.incarnation, proposal, self.controller.alter(proposal)))

    def lose_proposal(self, node: Node) -> None:
        node.altered(node.proposals.pop(0), UnknownServerError.code, self.now_ms)

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def delete_records(self, node: Node) -> None:
        """All that is safe but for the last one."""
        before = max(node.log.high_watermark - 1, node.log.log_start)
        node.log.delete_records(before)
        self.deleted_to = max(self.deleted_to, before)

    def start(self, node: Node) -> None:
        node.start()
        self.controller.started(node.id, node.incarnation)

    def shut_down(self, node: Node) -> None:
        """It requests a controlled shutdown. A broker outside the ISR is gone at once."""
        node.is_leaving = node.id in self.controller.current.isr
        self.controller.shut_down(node.id)
        if not node.is_leaving:
            node.crash()

    def rejoin(self, node: Node) -> None:
        """Its session was over, it was not: it registers again."""
        node.incarnation += 1
        self.controller.started(node.id, node.incarnation)

    def take_power(self, node: Node) -> None:
        node.crash(power_failed=True)
        if node.id in self.controller.alive:
            self.controller.failed(node.id)

    def _others_in_sync(self, node: Node) -> bool:
        others = set(self.controller.current.isr) - {node.id}
        return any(self.nodes[other].is_up and other in self.controller.alive for other in others)

    def acknowledge(self) -> None:
        """Answers produces with acks=all: acknowledged if committed, refused if another broker leads."""
        waiting = [one for one in self.waiting if self.nodes[one.leader.me].leader is one.leader]
        self.acknowledged += [one.record for one in waiting if one.leader.is_safe(one.record.offset + 1)]
        self.waiting = [one for one in waiting if not one.leader.is_safe(one.record.offset + 1)]

    def recover(self) -> None:
        """All is well again: what was under way is lost, but everybody is back."""
        for message in list(self.in_flight):
            self.lose(message)
        for node in self.nodes.values():
            if node.is_leaving:
                node.crash()
            if not node.is_up:
                self.start(node)
            elif node.id not in self.controller.alive:
                self.rejoin(node)

    def is_out_and_back(self, node: Node) -> bool:
        """A follower falls behind and catches up. Returns whether its leader has proposed it, still unanswered."""
        self._fall_behind(node)
        leader, rounds = self.nodes[self.controller.current.leader], 20 + self.produced
        while node.id not in self.controller.current.isr and not leader.proposals and rounds:
            self.at_once(self.ask, node)
            rounds -= 1
        return bool(leader.proposals)

    def _fall_behind(self, node: Node) -> None:
        """It is silent until it is out of the ISR; the others go on."""
        leader = self.nodes[self.controller.current.leader]
        self.produce(leader)
        for _ in range(2):
            self.wait(LAG_MS)
            for other in self.nodes.values():
                if other is not node and other.following is not None:
                    for _ in range(2):
                        self.at_once(self.ask, other)
        leader.shrink(self.now_ms)
        while leader.proposals:
            self.at_once(self.alter, leader)

    def lose_the_departed(self, *, leaving_are_missed: bool) -> None:
        """Brokers that are down are noticed; those that shut down only serve as leaders. All messages arrive."""
        for node in self.nodes.values():
            is_missed = leaving_are_missed or node.id not in self.controller.shutting_down
            if not node.is_up and node.id in self.controller.alive and is_missed:
                self.controller.failed(node.id)
            if node.id in self.controller.shutting_down and node.leader is None:
                node.following = None
        self.deliver_all()

    def deliver_all(self) -> None:
        while self.in_flight:
            self.deliver(self.in_flight[0])

    def quiet_round(self, wait_ms: int = BACKOFF_MS) -> None:
        """Every follower fetches once, and every message arrives."""
        self.controller.tell_all()
        for node in self.nodes.values():
            self.ask(node)
            for _ in list(node.proposals):
                self.alter(node)
        self.deliver_all()
        self.wait(wait_ms)

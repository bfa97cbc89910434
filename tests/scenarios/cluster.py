"""Three replicas moved by explicit steps: what a test does not do does not happen."""

from leadline.errors import WireError
from leadline.model import BrokerId, Offset
from leadline.replication.partition import LeaderState
from tests.support.replicas import Controller, ControllerUpdate, MemoryLog, Node


class Cluster:
    """Brokers 1, 2 and 3. Decisions and answers of the controller arrive at once, unless held back."""

    def __init__(self, *, min_isr: int = 1, unclean: bool = False, keeps_epochs: bool = True) -> None:
        self.now_ms = 1_000_000
        self.nodes = {n: Node(n, MemoryLog(keeps_epochs=keeps_epochs), min_isr) for n in (1, 2, 3)}
        self.holds_answers = False  # of the controller to its leaders
        self.controller = Controller((1, 2, 3), self._tell, unclean=unclean)

    def _tell(self, broker: BrokerId, update: ControllerUpdate) -> None:
        if self.nodes[broker].is_up:
            self.nodes[broker].apply(update, self.now_ms)

    # What is looked at

    @property
    def leader(self) -> Node:
        return self.nodes[self.controller.current.leader]

    @property
    def leading(self) -> LeaderState:
        assert self.leader.leader is not None
        return self.leader.leader

    @property
    def isr(self) -> set[BrokerId]:
        return set(self.controller.current.isr)

    def logs(self) -> list[str]:
        return [node.log.values() for node in self.nodes.values()]

    def high_watermarks(self) -> list[Offset]:
        return [node.log.high_watermark for node in self.nodes.values()]

    # What is done

    def produce(self, values: str) -> Offset:
        """One record for each letter; the offset behind the last one. Whether it is safe: see is_acknowledged."""
        for value in values:
            end = self.leader.append(value, self.now_ms)
        return end

    def is_acknowledged(self, end: Offset) -> bool:
        return self.leading.is_safe(end)

    def fetch(self, *followers: BrokerId) -> None:
        """One round: each follower fetches once and gets its response."""
        for broker in followers:
            node = self.nodes[broker]
            ask = node.ask(self.now_ms)
            assert ask is not None, f"{broker} has nothing to ask"
            reply = self.nodes[node.follows].serve(broker, node.incarnation, ask, self.now_ms)
            node.receive(ask, reply, self.now_ms)
            self.answer_leaders()

    def replicate(self, *followers: BrokerId) -> None:
        """Rounds by all followers, until nothing changes any longer."""
        for _ in range(10):
            self.fetch(*(broker for broker in followers if self.nodes[broker].ask(self.now_ms) is not None))

    def answer_leaders(self) -> None:
        """Let the controller decide on what leaders have proposed."""
        if self.holds_answers:
            return
        for node in self.nodes.values():
            while node.proposals:
                proposal = node.proposals.pop(0)
                node.altered(proposal, self.controller.alter(proposal), self.now_ms)

    def wait(self, ms: int, *fetching: BrokerId) -> None:
        """Time passes while some followers go on fetching; the leader checks which are late."""
        for _ in range(10):
            self.now_ms += ms // 10
            self.fetch(*fetching)
        self.leader.shrink(self.now_ms)
        self.answer_leaders()

    def crash(self, *brokers: BrokerId, power_failed: bool = False) -> None:
        """They are gone, and the controller has not noticed yet."""
        for broker in brokers:
            self.nodes[broker].crash(power_failed=power_failed)

    def notice(self, *brokers: BrokerId) -> None:
        """Their sessions expire."""
        for broker in brokers:
            self.controller.failed(broker)

    def start(self, *brokers: BrokerId) -> None:
        for broker in brokers:
            self.nodes[broker].start()
            self.controller.started(broker, self.nodes[broker].incarnation)

    def refusal(self, value: str) -> type[WireError] | None:
        """Why a record is not taken."""
        try:
            self.leader.append(value, self.now_ms)
        except WireError as error:
            return type(error)
        return None

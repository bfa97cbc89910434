"""What the supervisor of several brokers decides: whom to start, to stop and to kill, and when.

Each broker is in one state. NEXT_STATE has all transitions:

    starting --serves--> serving      starting, serving --dies--> waiting --due--> starting
    starting, serving --leaves--> away --back--> serving
    starting, serving --stop--> stopping --leaves--> ended      waiting, away --stop--> ended

A broker that dies is started again after a back-off: FIRST_BACKOFF_S, doubled for each end in a row, MAX_BACKOFF_S at
most. After STABLE_S of serving, it starts again from the first pause. The policy decides whether it dies or leaves.

Brokers stop in reverse order, so that the first one, which is most often the controller, moves leadership for all
others. The first request to stop lets each finish before the next one begins, or stops all at once, as the policy says;
the second stops all at once; the third kills them.

Pure: events and times in, actions out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from leadline.model import BrokerId

FIRST_BACKOFF_S, MAX_BACKOFF_S, STABLE_S = 0.5, 30.0, 60.0
MAX_DOUBLINGS = 10  # beyond this the back-off is at its maximum


def backoff_s(ends: int) -> float:
    """The pause before a broker is started again, after `ends` failures in a row."""
    return min(FIRST_BACKOFF_S * 2.0 ** min(ends - 1, MAX_DOUBLINGS), MAX_BACKOFF_S)


class ProcessState(Enum):
    STARTING = "starting"  # its process runs, and does not serve yet
    SERVING = "serving"
    WAITING = "waiting"  # it ended, and is started again once its back-off is over
    AWAY = "away"  # it ended, and is not started again
    STOPPING = "stopping"  # it was asked to end
    ENDED = "ended"  # it ended, as all shall end


class ProcessEvent(Enum):
    SERVES = "serves"
    DIES = "dies"  # its process ended, and the supervisor will start another
    LEAVES = "leaves"  # its process ended for good
    DUE = "due"  # its back-off is over
    BACK = "back"  # it was started by hand
    STOP = "stop"  # its turn to stop


_S, _E = ProcessState, ProcessEvent
NEXT_STATE: dict[tuple[ProcessState, ProcessEvent], ProcessState] = {
    (_S.STARTING, _E.SERVES): _S.SERVING,
    (_S.STARTING, _E.DIES): _S.WAITING,
    (_S.STARTING, _E.LEAVES): _S.AWAY,
    (_S.STARTING, _E.STOP): _S.STOPPING,
    (_S.SERVING, _E.DIES): _S.WAITING,
    (_S.SERVING, _E.LEAVES): _S.AWAY,
    (_S.SERVING, _E.STOP): _S.STOPPING,
    (_S.WAITING, _E.DUE): _S.STARTING,
    (_S.WAITING, _E.STOP): _S.ENDED,
    (_S.AWAY, _E.BACK): _S.SERVING,
    (_S.AWAY, _E.STOP): _S.ENDED,
    (_S.STOPPING, _E.LEAVES): _S.ENDED,
}
HAVE_PROCESS = frozenset({_S.STARTING, _S.SERVING, _S.STOPPING})


class Verb(Enum):
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"
    ANNOUNCE = "announce"  # all brokers serve, for the first time
    FINISH = "finish"  # nothing is left to be done


class Action(NamedTuple):
    verb: Verb
    broker: BrokerId = -1  # -1: all of them


class SupervisionPolicy(NamedTuple):
    restarts: bool  # whether a broker that ended is started again
    stops_in_turn: bool  # whether a broker stops after the one before it has ended
    needs_all: bool  # whether all stop if one ends before all of them have served
    kill_after_s: float  # how long a broker may take to stop


@dataclass(slots=True)
class SupervisedBroker:
    state: ProcessState = ProcessState.STARTING
    ends: int = 0  # in a row, without having served for STABLE_S
    serving_since_s: float | None = None  # None: it does not serve
    due_s: float | None = None  # when to start it again (waiting) or to kill it (stopping)


class Supervision:
    """Each method takes an event and returns what must be done, in order. `exit_code` is known after FINISH."""

    def __init__(self, ids: Sequence[BrokerId], policy: SupervisionPolicy) -> None:
        self.policy = policy
        self.brokers = {id: SupervisedBroker() for id in ids}
        self.stop_requests = 0
        self.unclean: set[BrokerId] = set()  # those that were away or failed when all had to stop
        self.missing: BrokerId | None = None  # the one that ended before all had served, if the policy needs all
        self._is_announced = False

    @property
    def exit_code(self) -> int:
        return 1 if self.unclean or self.missing is not None else 0

    @property
    def next_due_s(self) -> float | None:
        """When `pass_time` has something to do."""
        return min((broker.due_s for broker in self.brokers.values() if broker.due_s is not None), default=None)

    def count(self, *states: ProcessState) -> int:
        return sum(broker.state in states for broker in self.brokers.values())

    def begin(self) -> list[Action]:
        return [Action(Verb.START, id) for id in self.brokers]

    def serves(self, id: BrokerId, now_s: float) -> list[Action]:
        broker = self.brokers[id]
        if broker.state is not ProcessState.STARTING:
            return []  # it was stopped in the meantime
        self._move(broker, ProcessEvent.SERVES)
        broker.serving_since_s = now_s
        if self._is_announced or self.count(ProcessState.SERVING) < len(self.brokers):
            return []
        self._is_announced = True
        return [Action(Verb.ANNOUNCE)]

    def came_back(self, id: BrokerId, now_s: float) -> None:
        """A broker that had ended was started by hand."""
        self._move(self.brokers[id], ProcessEvent.BACK)
        self.brokers[id].serving_since_s = now_s

    def ended(self, id: BrokerId, now_s: float, *, is_clean: bool) -> list[Action]:
        broker = self.brokers[id]
        if self.stop_requests:
            if not is_clean or broker.state is not ProcessState.STOPPING:
                self.unclean.add(id)
            self._move(broker, ProcessEvent.LEAVES)
            return self._continue_stop(now_s)
        if self.policy.restarts:
            self._wait(broker, now_s)
            return []
        self._move(broker, ProcessEvent.LEAVES)
        if self.policy.needs_all and not self._is_announced:
            self.missing = id
            return self.stop(now_s)
        return [Action(Verb.FINISH)] if self.count(ProcessState.AWAY) == len(self.brokers) else []

    def _wait(self, broker: SupervisedBroker, now_s: float) -> None:
        since_s = broker.serving_since_s
        is_stable = since_s is not None and now_s - since_s >= STABLE_S
        broker.ends = 1 if is_stable else broker.ends + 1
        self._move(broker, ProcessEvent.DIES)
        broker.due_s = now_s + backoff_s(broker.ends)

    def pass_time(self, now_s: float) -> list[Action]:
        actions = []
        for id, broker in self.brokers.items():
            if broker.due_s is None or broker.due_s > now_s:
                continue
            if broker.state is ProcessState.WAITING:
                self._move(broker, ProcessEvent.DUE)
                actions.append(Action(Verb.START, id))
            else:
                broker.due_s = None
                self.unclean.add(id)
                actions.append(Action(Verb.KILL, id))
        return actions

    def stop(self, now_s: float) -> list[Action]:
        """The first request stops the brokers, the second hurries, the third kills."""
        self.stop_requests += 1
        if self.stop_requests < 3:
            return self._continue_stop(now_s)
        running = [id for id, broker in self.brokers.items() if broker.state in HAVE_PROCESS]
        self.unclean.update(running)
        return [Action(Verb.KILL, id) for id in running]

    def _continue_stop(self, now_s: float) -> list[Action]:
        actions = []
        in_turn = self.policy.stops_in_turn and self.stop_requests == 1
        for id, broker in reversed(self.brokers.items()):
            if in_turn and self.count(ProcessState.STOPPING):
                break
            if broker.state in (ProcessState.STOPPING, ProcessState.ENDED):
                continue
            if broker.state is ProcessState.WAITING:
                self.unclean.add(id)
            if self._move(broker, ProcessEvent.STOP) is ProcessState.STOPPING:
                broker.due_s = now_s + self.policy.kill_after_s
                actions.append(Action(Verb.TERMINATE, id))
        if self.count(ProcessState.ENDED) == len(self.brokers):
            actions.append(Action(Verb.FINISH))
        return actions

    @staticmethod
    def _move(broker: SupervisedBroker, event: ProcessEvent) -> ProcessState:
        broker.due_s = broker.serving_since_s = None
        broker.state = NEXT_STATE[broker.state, event]
        return broker.state

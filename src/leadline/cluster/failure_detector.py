"""Failure detection between brokers: what an attempt to reach a broker proves, and who may act on it.

Pure: outcomes and times in, verdicts and times out.

An attempt ends in one of four ways.
    ANSWERED    the broker runs
    LOCKED      the broker runs, but a login failed on one of both sides: it is not silent. If it were, a password or a
                certificate that is wrong everywhere would make all brokers stop leading
    REFUSED     its address refuses connections: its process has ended. It proves nothing about a broker that has never
                answered: Kafka's own brokers register before they listen
    LOST        the connection broke, or no answer came in time: this proves nothing by itself

A broker is silent after a third of zookeeper.session.timeout.ms in which all attempts were LOST. One broker cannot tell
whether the other side is cut off or its own. So only the side that hears most of the brokers acts on silence; of two
halves, neither does.
    hears_most      more than half of the brokers answer, counting this one: silent brokers may be treated as gone
    is_isolated     more than half of the brokers are silent: they may have elected new leaders
"""

import math
from enum import Enum

SILENCES_PER_SESSION = 3
LEAST_SILENCE_S = 5.0  # a busy broker may be silent for a few seconds, however short the session
PROBES_PER_SILENCE = 4
PROBE_TIMEOUTS_PER_SILENCE = 3
FAILED_PROBE_TIMEOUT_S = 1.0  # for a broker that counts as failed: its return is noticed soon
FIRST_RETRY_S, RETRY_S = 0.01, 0.1  # a process that is ending may accept a connection before it refuses the next


class ProbeOutcome(Enum):
    """How an attempt to reach a broker ended."""

    ANSWERED = "answered"
    LOCKED = "locked"
    REFUSED = "refused"
    LOST = "lost"


class Reachability(Enum):
    """The state of a broker, judged by attempts to reach it."""

    REACHABLE = "reachable"
    NOT_LISTENING = "not listening"  # it refuses connections, and never answered: it may be starting
    GONE = "gone"  # it refuses connections, and has answered before: its process has ended
    UNHEARD = "unheard"  # the last attempt was lost
    SILENT = "silent"  # all attempts were lost, for as long as a silence lasts


class FailureDetector:
    """Judges one broker. `has_answered`: it is known to have listened before."""

    def __init__(self, now_s: float, silence_s: float = math.inf, *, has_answered: bool = False) -> None:
        self.verdict = Reachability.REACHABLE
        self._silence_s, self._has_answered = silence_s, has_answered
        self._last_contact_s = now_s  # when it last answered or refused; at first, when the detector was made
        self._retry_s = FIRST_RETRY_S

    def judge(self, outcome: ProbeOutcome, now_s: float) -> Reachability:
        if outcome is ProbeOutcome.LOST:
            self.verdict = (
                Reachability.SILENT if now_s - self._last_contact_s >= self._silence_s else Reachability.UNHEARD
            )
            return self.verdict
        self._last_contact_s = now_s
        if outcome is ProbeOutcome.LOCKED:
            self.verdict = Reachability.REACHABLE
        elif outcome is ProbeOutcome.ANSWERED:
            self._has_answered, self._retry_s = True, FIRST_RETRY_S
            self.verdict = Reachability.REACHABLE
        else:
            self.verdict = Reachability.GONE if self._has_answered else Reachability.NOT_LISTENING
        return self.verdict

    def next_retry_s(self) -> float:
        """The pause after a failed attempt. It doubles, up to a limit, until the broker answers."""
        retry_s, self._retry_s = self._retry_s, min(2 * self._retry_s, RETRY_S)
        return retry_s

    @property
    def probe_timeout_s(self) -> float:
        """How long a probe may take."""
        is_silent = self.verdict is Reachability.SILENT
        return FAILED_PROBE_TIMEOUT_S if is_silent else self._silence_s / PROBE_TIMEOUTS_PER_SILENCE

    @property
    def probe_interval_s(self) -> float:
        """The pause between two probes of a broker that answers."""
        return self._silence_s / PROBES_PER_SILENCE


class MajorityDetector:
    """Whether one broker has heard most of the brokers for as long as a silence lasts.

    A broker that was cut off does not hear all others again at the same moment.
    """

    def __init__(self, now_s: float, silence_s: float) -> None:
        self._silence_s = silence_s
        self._minority_s = now_s  # when this broker last heard too few; at first, when the detector was made

    def judge(self, brokers: int, unheard: int, now_s: float) -> None:
        if not hears_most(brokers, unheard):
            self._minority_s = now_s

    def hears_most(self, now_s: float) -> bool:
        return now_s - self._minority_s >= self._silence_s


def silence_s(session_timeout_ms: int) -> float:
    return max(session_timeout_ms / SILENCES_PER_SESSION / 1000, LEAST_SILENCE_S)


def hears_most(brokers: int, unheard: int) -> bool:
    return 2 * unheard < brokers


def is_isolated(brokers: int, silent: int) -> bool:
    return 2 * silent > brokers

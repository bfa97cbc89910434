"""Logins of this broker that other brokers refused: when to retry, and what to log.

Pure: times and reasons in.

All connections to a peer share the state. After a refusal there is a pause before the next connection: longer after
each one, `MAX_BACKOFF_S` at most. A connection that broke during a login is no refusal: the peer may have ended.
"""

from typing import NamedTuple

FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.1, 1.0  # the latter as Kafka's reconnect.backoff.max.ms


class _Refusal(NamedTuple):
    reason: str
    backoff_s: float
    until_s: float


class LoginFailures:
    def __init__(self) -> None:
        self._by_peer: dict[str, _Refusal] = {}

    def pending(self, peer: str, now_s: float) -> str | None:
        """The reason of the last refusal, if it is too early to try again."""
        refusal = self._by_peer.get(peer)
        return refusal.reason if refusal is not None and now_s < refusal.until_s else None

    def failed(self, peer: str, reason: str, now_s: float, *, is_refusal: bool = True) -> bool:
        """Whether the reason is another than before."""
        before = self._by_peer.get(peer)
        backoff_s = FIRST_BACKOFF_S if before is None else min(2 * before.backoff_s, MAX_BACKOFF_S)
        self._by_peer[peer] = _Refusal(reason, backoff_s, now_s + backoff_s if is_refusal else now_s)
        return before is None or before.reason != reason

    def succeeded(self, peer: str) -> bool:
        """Whether the login before was refused."""
        return self._by_peer.pop(peer, None) is not None

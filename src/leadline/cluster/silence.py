"""Silence between brokers: how long it lasts before it counts, and who may act on it.

Pure: numbers.

A broker that does not answer for a third of zookeeper.session.timeout.ms is silent. From one place nobody can tell
whether the other side is cut off or the own one. So only the side that hears most of the brokers acts; of two halves,
neither does.

    hears_most      more than half of the brokers answer, counting oneself: the silent ones may be treated as gone
    is_isolated     more than half of the brokers are silent: the others may have elected new leaders
"""

SHARE_OF_SESSION = 3
LEAST_S = 5.0  # a busy broker may be silent for a few seconds, however short the session


def silence_s(session_timeout_ms: int) -> float:
    return max(session_timeout_ms / SHARE_OF_SESSION / 1000, LEAST_S)


def hears_most(brokers: int, unheard: int) -> bool:
    return 2 * unheard < brokers


def is_isolated(brokers: int, silent: int) -> bool:
    return 2 * silent > brokers

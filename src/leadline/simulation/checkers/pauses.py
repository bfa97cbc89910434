"""A clean stop of one broker, while all is well, does not pause acknowledgements."""

from collections.abc import Iterator
from typing import NamedTuple

from leadline.simulation.client_history import ClientHistory, Delivery

LONGEST_S = 1.0


class CleanStop(NamedTuple):
    broker: str
    began_s: float
    ended_s: float  # of the time in which nothing else happened


def paused_acknowledgements(history: ClientHistory, stop: CleanStop) -> Iterator[str]:
    for attempt in history.attempts:
        if attempt.delivery is Delivery.AT_MOST_ONCE or attempt.transaction is not None or attempt.is_given_up:
            continue
        if not stop.began_s <= attempt.sent_s <= stop.ended_s - LONGEST_S:
            continue
        acknowledged_s = stop.ended_s if attempt.acknowledged_s is None else attempt.acknowledged_s
        if acknowledged_s - attempt.sent_s > LONGEST_S:
            yield (
                f"paused acknowledgements: {attempt.value!r} waited for {acknowledged_s - attempt.sent_s:.1f} s, "
                f"{attempt.sent_s - stop.began_s:.3f} s after the clean stop of {stop.broker} began"
            )

"""The data of the demo: orders of coffee shops, written to a topic by a thread.

One shop is far busier than the others. The rate of orders rises and falls within seconds. One order in BROKEN is
incomplete, as if its writer had lost power.
"""

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import Producer

SHOPS = [f"{city}-{n}" for city in ("bergen", "porto", "riga", "trieste", "utrecht", "vilnius") for n in range(1, 11)]
BUSIEST, BUSY_SHARE = "trieste-4", 0.4
MENU = {"espresso": 1.9, "cortado": 2.6, "flat white": 3.4, "filter": 2.8, "croissant": 2.2, "cinnamon bun": 3.1}
BROKEN = 400
WAVE_S = 12.0
INTERVAL_S = 0.05


def orders(seed: int = 4) -> Iterator[tuple[str, bytes]]:
    """Key and value of each order, without an end."""
    random_source, number = random.Random(seed), 0
    while True:
        number += 1
        shop = BUSIEST if random_source.random() < BUSY_SHARE else random_source.choice(SHOPS)
        items = random_source.choices(list(MENU), k=random_source.choice((1, 1, 1, 2, 2, 3, 8)))
        order = {
            "order": number,
            "shop": shop,
            "items": items,
            "total": round(sum(MENU[item] for item in items), 2),
            "paid": random_source.choice(("card", "card", "card", "cash")),
        }
        value = json.dumps(order).encode()
        yield shop, value[: len(value) // 2] if number % BROKEN == 0 else value


class OrderWriter:
    """Writes orders to a topic in its own thread until it is stopped."""

    def __init__(self, producer: "Producer", topic: str, per_second: int) -> None:
        self.written = 0
        self._producer, self._topic, self._per_second = producer, topic, per_second
        self._failed: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Stop, and return the number of orders in the topic. RuntimeError if one is not acknowledged."""
        self.halt()
        left = self._producer.flush(30)
        if left or self._failed:
            raise RuntimeError(f"{left + len(self._failed)} orders were not acknowledged: {self._failed[:1]}")
        return self.written

    def halt(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        started_s, stream = time.monotonic(), orders()
        due = 0.0
        while not self._stop.wait(INTERVAL_S):
            due += (
                INTERVAL_S
                * self._per_second
                * (1 + 0.7 * math.sin((time.monotonic() - started_s) / WAVE_S * 2 * math.pi))
            )
            while self.written < due:
                key, value = next(stream)
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                self.written += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._failed.append(str(error))

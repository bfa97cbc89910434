"""Time and chance of one simulated process."""

import uuid
from collections.abc import MutableSequence
from random import Random
from typing import Any

from leadline.simulation.virtual_loop import VirtualLoop

EPOCH_MS = 1_700_000_000_000  # what the wall clock shows at first


class VirtualTime:
    """`skew_ms`: how far the wall clock of this host is off."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self._loop, self.skew_ms = loop, skew_ms
        self.monotonic_s = loop.time

    def now_ms(self) -> int:
        return EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms


class SeededChance:
    def __init__(self, seed: str) -> None:
        self._random = Random(seed)
        self.uniform, self.randint = self._random.uniform, self._random.randint

    def new_uuid(self) -> uuid.UUID:
        return uuid.UUID(int=self._random.getrandbits(128), version=4)

    def shuffle(self, items: MutableSequence[Any], /) -> None:
        self._random.shuffle(items)

    def secret_bytes(self, length: int, /) -> bytes:
        return self._random.randbytes(length)

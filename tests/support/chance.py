"""Randomness that a seed repeats."""

from random import Random
from uuid import UUID


class SeededChance:
    def __init__(self, seed: int = 0) -> None:
        self._random = Random(seed)
        self.uniform, self.randint, self.shuffle = self._random.uniform, self._random.randint, self._random.shuffle
        self.secret_bytes = self._random.randbytes

    def new_uuid(self) -> UUID:
        return UUID(int=self._random.getrandbits(128), version=4)

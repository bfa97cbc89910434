"""A set that is iterated in the order of insertion, which never depends on memory addresses."""

from typing import TypeVar

T = TypeVar("T")


class OrderedSet(dict[T, None]):
    __slots__ = ()

    def add(self, item: T) -> None:
        self[item] = None

    def discard(self, item: T) -> None:
        self.pop(item, None)

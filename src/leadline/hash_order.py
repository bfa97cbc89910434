"""The order in which the hash tables of Java and Scala hand out their keys: Kafka writes some of its files in it.

Pure: keys in, the same keys out in another order.

Each table starts with 16 slots and doubles when it is three quarters full; keys come out slot by slot.
    Java's Properties and HashMap   within a slot: as they were put in. A table that has grown may have turned that
                                    order round where three keys shared a slot; this is not imitated
    Scala's mutable maps and sets   within a slot: by hash
    Scala's immutable maps, sets    up to four keys as they were put in; from five on a trie of 5 bits of the hash a
                                    level, where what lies in a node itself comes before what lies below it
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

K = TypeVar("K")

WORD = 0xFFFFFFFF
LEAST_SLOTS = 16
IN_ORDER = 4  # up to this many keys an immutable map keeps in the order of insertion
LEVEL_BITS = 5
HASH_BITS = 32


def string_hash(text: str) -> int:
    """java.lang.String.hashCode, as an unsigned word: of UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & WORD
    return value


def long_hash(value: int) -> int:
    """java.lang.Long.hashCode, as an unsigned word."""
    return (value ^ value >> 32) & WORD


def spread(value: int) -> int:
    return value ^ value >> 16


def properties(keys: Iterable[str]) -> list[str]:
    """java.util.Properties since Java 9: grows when the keys reach three quarters of the slots."""
    unordered = list(keys)
    return _slot_by_slot(unordered, _slots(len(unordered)), string_hash)


def java_map(keys: Iterable[K], hash_of: Callable[[K], int], most: int = 0) -> list[K]:
    """java.util.HashMap: grows when the keys exceed three quarters of the slots. `most`: the most it had."""
    unordered = list(keys)
    return _slot_by_slot(unordered, _slots(max(most, len(unordered)) - 1), hash_of)


def mutable(keys: Iterable[K], hash_of: Callable[[K], int], slots: int | None = None) -> list[K]:
    """scala.collection.mutable.Map and Set, filled key by key, or made with a number of slots."""
    unordered = list(keys)
    last_slot = (_slots(len(unordered)) if slots is None else slots) - 1

    def place(key: K) -> tuple[int, int]:
        value = spread(hash_of(key))
        return value & last_slot, _signed(value)

    return sorted(unordered, key=place)


def immutable(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """scala.collection.immutable.Map and Set."""
    unordered = list(keys)
    return unordered if len(unordered) <= IN_ORDER else trie(unordered, hash_of)


def trie(keys: Iterable[K], hash_of: Callable[[K], int]) -> list[K]:
    """scala.collection.immutable.HashMap and HashSet, however few the keys: what groupBy makes."""
    return [key for _, key in _trie([(_improve(hash_of(key)), key) for key in keys], 0)]


def _slots(count: int) -> int:
    """The smallest table that `count` keys fill to less than three quarters."""
    slots = LEAST_SLOTS
    while count >= slots * 3 // 4:
        slots *= 2
    return slots


def _slot_by_slot(keys: list[K], slots: int, hash_of: Callable[[K], int]) -> list[K]:
    return sorted(keys, key=lambda key: spread(hash_of(key)) & slots - 1)


def _trie(entries: Sequence[tuple[int, K]], shift: int) -> list[tuple[int, K]]:
    if shift >= HASH_BITS:
        return list(entries)  # the same hash: as they came
    branches: dict[int, list[tuple[int, K]]] = defaultdict(list)
    for entry in entries:
        branches[entry[0] >> shift & 31].append(entry)
    in_order = [branches[bits] for bits in sorted(branches)]
    leaves = [branch[0] for branch in in_order if len(branch) == 1]
    below = [entry for branch in in_order if len(branch) > 1 for entry in _trie(branch, shift + LEVEL_BITS)]
    return leaves + below


def _improve(value: int) -> int:
    value = value + ~(value << 9) & WORD
    value ^= value >> 14
    value = value + (value << 4) & WORD
    return value ^ value >> 10


def _signed(value: int) -> int:
    return value - (1 << HASH_BITS) if value >> HASH_BITS - 1 else value

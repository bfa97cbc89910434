"""Keys come out in the order of Java's and Scala's hash tables. The conformance tests compare files in this order."""

import pytest

from leadline import hash_order
from leadline.hash_order import immutable, java_map, long_hash, mutable, properties, string_hash, trie


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", 1 << 31), ("\U0001f600", 1772899)],
)
def test_strings_hash_as_in_java(text: str, value: int) -> None:
    assert string_hash(text) == value


@pytest.mark.parametrize(("number", "value"), [(0, 0), (7, 7), (1 << 32, 1), (-1, 0)])
def test_longs_hash_as_in_java(number: int, value: int) -> None:
    assert long_hash(number) == value


def numbers(*values: int) -> list[int]:
    return list(values)


def test_a_map_hands_out_keys_slot_by_slot_and_within_a_slot_as_they_came() -> None:
    assert java_map(numbers(17, 3, 1, 33), long_hash) == [17, 1, 33, 3]


def test_a_map_grows_beyond_three_quarters_and_never_shrinks() -> None:
    twelve = [*range(11), 16]
    assert java_map(twelve, long_hash)[:2] == [0, 16]
    assert java_map([*twelve, 11], long_hash)[-1] == 16
    assert java_map(numbers(16, 1), long_hash) == [16, 1]
    assert java_map(numbers(16, 1), long_hash, most=13) == [1, 16]


def test_properties_grow_when_they_reach_three_quarters() -> None:
    keys = [chr(n) for n in range(64, 75)]
    assert properties([*keys, "P"])[-1] == "P"
    assert properties([*keys[:-1], "P"])[:2] == ["@", "P"]


def test_mutable_scala_maps_order_a_slot_by_hash() -> None:
    assert mutable(numbers(33, 17, 1, 3), long_hash) == [1, 17, 33, 3]
    assert mutable(numbers(33, 17, 1, 3), long_hash, slots=64) == [1, 3, 17, 33]


def test_a_negative_hash_comes_first_in_its_slot() -> None:
    assert mutable(["low", "high"], {"low": 0x10, "high": 0x8000_8010}.__getitem__) == ["high", "low"]


def test_small_immutable_scala_maps_keep_the_order_and_larger_ones_are_tries() -> None:
    four, five = numbers(9, 2, 7, 1), numbers(9, 2, 7, 1, 5)
    assert immutable(four, long_hash) == four
    assert immutable(five, long_hash) == trie(five, long_hash) != five


def test_a_trie_has_every_key_once_also_where_hashes_collide() -> None:
    keys = [f"k{n}" for n in range(500)]
    assert sorted(trie(keys, string_hash)) == sorted(keys)
    assert trie(keys, lambda key: 7) == keys
    assert hash_order.trie([], string_hash) == []

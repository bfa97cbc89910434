"""Where partitions go: as Kafka's own rules have it, in its own examples and in general."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.controller.topics import assign, manual_assignment
from leadline.errors import InvalidReplicaAssignment, InvalidReplicationFactor, UnknownServerError

RACKS: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_without_racks_replicas_are_shifted_more_with_each_round() -> None:
    assignment = assign(dict.fromkeys(range(5)), 10, 3)
    assert assignment == (
        (0, 1, 2), (1, 2, 3), (2, 3, 4), (3, 4, 0), (4, 0, 1),
        (0, 2, 3), (1, 3, 4), (2, 4, 0), (3, 0, 1), (4, 1, 2),
    )  # fmt: skip


def test_with_racks_each_has_one_replica_before_one_has_two() -> None:
    assignment = assign(RACKS, 7, 3)
    assert assignment == ((0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3), (0, 4, 2))


def test_partitions_that_are_added_go_on_where_the_first_ones_ended() -> None:
    brokers = dict.fromkeys(range(3))
    assert assign(brokers, 4, 2) + assign(brokers, 5, 2, first=4, shift=1) == assign(brokers, 9, 2)


def test_impossible_assignments_are_refused() -> None:
    with pytest.raises(InvalidReplicationFactor):
        assign({1: None}, 1, 2)
    with pytest.raises(UnknownServerError):
        assign({1: None, 2: "north"}, 1, 1)


def test_a_chosen_broker_must_be_there_unless_it_may_come_later() -> None:
    with pytest.raises(InvalidReplicaAssignment, match="partition 0: broker 3 does not exist"):
        manual_assignment({0: [1, 3]}, {1, 2})
    assert manual_assignment({0: [1, 3]}, None) == ((1, 3),)


@given(
    st.dictionaries(st.integers(0, 40), st.sampled_from("abcd"), min_size=1, max_size=12),
    st.integers(1, 30),
    st.data(),
)
def test_replicas_are_spread_over_brokers_and_racks(
    racks: dict[int, str], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    start, shift = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    assignment = assign(dict(racks), partitions, factor, start=start, shift=shift)
    leaders = [replicas[0] for replicas in assignment]
    assert max(map(leaders.count, racks)) - min(map(leaders.count, racks)) <= 1
    for replicas in assignment:
        assert len(set(replicas)) == factor
        assert len({racks[broker] for broker in replicas}) == min(factor, len(set(racks.values())))

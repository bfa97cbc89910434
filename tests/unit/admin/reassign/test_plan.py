"""Plans for moving partitions: even, over racks, and with as little to copy as can be; and the file they are in."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline.admin.reassign.plan import (
    OngoingReassignment,
    ReplicaMove,
    ThrottledReplicas,
    involved,
    make_plan,
    moves,
    progress,
    throttled_replicas,
)
from leadline.admin.reassign.plan_file import PlanError
from leadline.model import TopicPartition

NO_RACKS = dict.fromkeys((1, 2, 3))


def tp(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def numbered(*replicas: list[int]) -> dict[TopicPartition, list[int]]:
    return {tp(number): brokers for number, brokers in enumerate(replicas)}


def test_what_is_even_stays() -> None:
    current = numbered([1, 2], [2, 3], [3, 1])
    assert make_plan(current, NO_RACKS) == current


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = numbered([1, 2], [2, 1], [1, 2], [2, 1], [1, 2], [2, 1])
    plan = make_plan(current, NO_RACKS)
    assert Counter(broker for replicas in plan.values() for broker in replicas) == {1: 4, 2: 4, 3: 4}
    assert sum(len(move.adding) for move in moves(current, plan, {})) == 4
    assert Counter(replicas[0] for replicas in plan.values()) == {1: 2, 2: 2, 3: 2}


def test_the_leaders_of_each_topic_are_spread_and_not_only_those_of_all() -> None:
    """A topic of many partitions must not decide where a smaller one is led."""
    current = {
        tp(n, topic): [1, 2, 3] for topic, count in (("__consumer_offsets", 50), ("orders", 6)) for n in range(count)
    }
    plan = make_plan(current, dict.fromkeys((4, 5, 6)))
    for topic, least in (("__consumer_offsets", 16), ("orders", 2)):
        leaders = Counter(replicas[0] for tp, replicas in plan.items() if tp.topic == topic)
        assert min(leaders[broker] for broker in (4, 5, 6)) >= least
        assert max(leaders.values()) - min(leaders.values()) <= 1


def test_a_broker_that_is_to_go_is_emptied_and_nothing_else_moves() -> None:
    current = numbered([1, 2], [2, 3], [3, 1])
    plan = make_plan(current, {1: None, 2: None})
    assert {frozenset(replicas) for replicas in plan.values()} == {frozenset({1, 2})}
    assert sum(len(move.adding) for move in moves(current, plan, {})) == 2


@pytest.mark.parametrize(("copies", "plan"), [(3, [1, 2, 3]), (1, [1])])
def test_there_are_as_many_copies_as_are_wanted(copies: int, plan: list[int]) -> None:
    assert make_plan({tp(0): [1, 2]}, NO_RACKS, copies) == {tp(0): plan}


def test_more_copies_than_brokers_cannot_be() -> None:
    with pytest.raises(PlanError, match="4 replicas need 4 brokers, but the brokers are 1, 2 and 3"):
        make_plan({tp(0): [1]}, NO_RACKS, 4)


def test_a_copy_goes_to_a_rack_that_has_none_before_it_goes_to_an_emptier_broker() -> None:
    racks = {1: "a", 2: "a", 3: "b"}
    assert make_plan(numbered([1], [3], [3], [3]), racks, 2)[tp(0)] == [1, 3]


@given(
    st.dictionaries(st.integers(1, 8), st.sampled_from("abc"), min_size=1),
    st.lists(st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True), min_size=1, max_size=12),
    st.data(),
)
def test_plans_are_whole_and_even_and_do_not_crowd_a_rack(
    racks: dict[int, str], current: list[list[int]], data: st.DataObject
) -> None:
    copies = data.draw(st.integers(1, min(3, len(racks))))
    plan = make_plan(numbered(*current), racks, copies)
    assert plan.keys() == numbered(*current).keys()
    for replicas in plan.values():
        assert len(set(replicas)) == len(replicas) == copies
        assert set(replicas) <= racks.keys()
        assert len({racks[broker] for broker in replicas}) == min(copies, len(set(racks.values())))
    again = make_plan(plan, racks, copies)
    assert {tp: set(replicas) for tp, replicas in again.items()} == {tp: set(plan[tp]) for tp in plan}
    one_rack = dict.fromkeys(racks)
    loads = Counter(dict.fromkeys(racks, 0))
    loads.update(broker for replicas in make_plan(numbered(*current), one_rack, copies).values() for broker in replicas)
    assert max(loads.values()) - min(loads.values()) <= 1


def test_a_move_copies_to_brokers_without_a_replica() -> None:
    (move,) = moves(numbered([1, 2], [3]), numbered([2, 3, 1], [3]), {tp(0): 500, tp(1): 900})
    assert move == ReplicaMove(tp(0), [1, 2], [2, 3, 1], 500)
    assert (move.adding, involved([move])) == ([3], [1, 2, 3])


def test_another_order_is_a_change_but_copies_nothing() -> None:
    assert moves(numbered([1, 2]), numbered([2, 1]), {tp(0): 500}) == [ReplicaMove(tp(0), [1, 2], [2, 1], 0)]


def test_current_and_new_replicas_are_throttled() -> None:
    """The old replicas of a partition that moves already."""
    under_way = {
        tp(1): OngoingReassignment([1, 2, 3], adding=[3], removing=[1]),
        tp(0, "x"): OngoingReassignment([1, 2], [2], []),
    }
    plan = moves(numbered([1], [1, 2]), numbered([1, 3], [2]), {})
    assert throttled_replicas(under_way, plan) == {
        "orders": ThrottledReplicas(["0:1", "1:1", "1:2"], ["0:3"]),
        "x": ThrottledReplicas(["0:1"], ["0:2"]),
    }


def test_how_far_a_plan_is() -> None:
    plan = numbered([1], [2], [3])
    state = progress(plan, numbered([1], [1], [3, 1]), {tp(2): OngoingReassignment([3, 1], [3], [1])})
    assert (list(state.done), list(state.moving), state.left_out) == ([tp(0)], [tp(2)], {tp(1): [1]})
    assert state.is_open
    assert not progress(plan, plan, {}).is_open

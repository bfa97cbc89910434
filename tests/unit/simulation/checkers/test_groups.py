"""Each law about groups is broken by a history that was made for it."""

import pytest

from leadline.model import TopicPartition
from leadline.simulation.checkers import groups
from leadline.simulation.client_history import ClientHistory, GroupAssignment, OffsetCommitAttempt, Poll

TP, OTHER = TopicPartition("records", 0), TopicPartition("records", 1)


def assignment(member: str, generation: int, *partitions: TopicPartition, joined_s: float = 0.0) -> GroupAssignment:
    return GroupAssignment("g", member, generation, list(partitions), joined_s, joined_s + 1)


def test_a_partition_has_one_owner_in_a_generation() -> None:
    shared = [assignment("a", 1, TP), assignment("b", 1, OTHER), assignment("b", 2, TP), assignment("b", 2, TP)]
    assert list(groups.doubled_owners(ClientHistory(assignments=shared))) == []
    shared.append(assignment("c", 2, TP))
    assert list(groups.doubled_owners(ClientHistory(assignments=shared))) == [
        "two owners: records-0 belongs to b and to c in generation 2 of g"
    ]


@pytest.mark.parametrize(("joined_s", "broken"), [(0.5, False), (5.0, True)])
def test_whoever_joins_later_gets_no_earlier_generation(joined_s: float, broken: bool) -> None:
    history = ClientHistory(assignments=[assignment("a", 2), assignment("b", 1, joined_s=joined_s)])
    assert bool(list(groups.shrunken_generations(history))) == broken


def commit(
    offset: int, requested_s: float, answered_s: float | None, *, is_committed: bool = True
) -> OffsetCommitAttempt:
    return OffsetCommitAttempt("g", TP, offset, requested_s, answered_s, is_committed and answered_s is not None)


@pytest.mark.parametrize(
    ("offset", "broken"),
    [(20, False), (15, False), (30, False), (10, True), (25, True), (-1, True)],
    ids=["the last", "overlaps the last", "never answered", "superseded", "refused", "none"],
)
def test_an_acknowledged_commit_stays(offset: int, broken: bool) -> None:
    history = ClientHistory(
        commits=[
            commit(10, 0, 1),
            commit(15, 2, 4),
            commit(20, 3, 5),
            commit(30, 2, None),
            commit(25, 6, 7, is_committed=False),
        ]
    )
    assert bool(list(groups.lost_commits(history, {"g": {TP: offset}}))) == broken


def test_without_an_acknowledged_commit_there_may_be_none() -> None:
    history = ClientHistory(commits=[commit(10, 0, None)])
    for offset, broken in ((-1, False), (10, False), (5, True)):
        assert bool(list(groups.lost_commits(history, {"g": {TP: offset}}))) == broken


def test_what_is_below_a_committed_offset_was_read() -> None:
    polls = [Poll("g", TP, True, 10, 20, {}), Poll("g", TP, True, 0, 12, {}), Poll("g", TP, True, 25, 30, {})]
    history = ClientHistory(group_polls=polls)
    assert list(groups.unread_commits(history, {"g": {TP: 20}})) == []
    (line,) = groups.unread_commits(history, {"g": {TP: 30}})
    assert line == "unread commit: g has committed 30 in records-0, and has read up to 20 only"
    history.deleted_before[TP] = 25
    assert list(groups.unread_commits(history, {"g": {TP: 30}})) == []


@pytest.mark.parametrize(
    ("members", "broken"),
    [
        ({"a": (2, [TP]), "b": (2, [OTHER])}, False),
        ({"a": (2, [TP]), "b": (1, [OTHER])}, True),
        ({"a": (2, [TP, OTHER]), "b": (-1, None)}, True),
        ({"a": (2, [TP])}, True),
        ({"a": (2, [TP, OTHER]), "b": (2, [TP])}, True),
    ],
    ids=["settled", "two generations", "one outside", "a partition without owner", "two owners"],
)
def test_the_members_of_a_settled_group_share_all_partitions(
    members: dict[str, tuple[int, list[TopicPartition] | None]], broken: bool
) -> None:
    assert bool(list(groups.unsettled("g", members, [TP, OTHER]))) == broken

"""A consumer reads from an in-sync replica in its rack that has the offset, if the leader is in another one."""

from types import SimpleNamespace
from typing import cast

import pytest

from leadline.api.replica_selector import NO_REPLICA, closer_replica
from leadline.replication.partition import LeaderState

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def leader() -> LeaderState:
    followers = {
        2: SimpleNamespace(log_start=0, log_end=50, caught_up_ms=9),
        3: SimpleNamespace(log_start=10, log_end=60, caught_up_ms=1),
        4: SimpleNamespace(log_start=0, log_end=90, caught_up_ms=1),
    }
    return cast(LeaderState, SimpleNamespace(me=1, isr={1, 2, 3}, followers=followers))


@pytest.mark.parametrize(
    ("rack", "offset", "replica"),
    [("a", 5, NO_REPLICA), ("b", 20, 3), ("b", 5, 2), ("b", 70, NO_REPLICA), ("c", 20, NO_REPLICA), ("d", 20, -1)],
)
def test_the_replica_that_has_most_is_chosen(rack: str, offset: int, replica: int) -> None:
    assert closer_replica(leader(), RACKS, rack, offset) == replica

"""The states of a group: which may follow which."""

import pytest

from leadline.coordinator.classic_group import ClassicGroup
from leadline.coordinator.group_rebalance import GroupLimits
from leadline.coordinator.group_state import MAY_FOLLOW, GroupState
from tests.support.groups import NOW


@pytest.mark.parametrize("before", GroupState)
@pytest.mark.parametrize("after", GroupState)
def test_a_group_moves_along_the_table_and_not_otherwise(before: GroupState, after: GroupState) -> None:
    group = ClassicGroup("g", GroupLimits(1, 0), NOW)
    group.state = before
    if after in MAY_FOLLOW[before]:
        group._enter(after, NOW + 1)
        assert (group.state, group.state_since_ms) == (after, NOW + 1)
    else:
        with pytest.raises(AssertionError):
            group._enter(after, NOW + 1)

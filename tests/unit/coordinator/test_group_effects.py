"""The names of a group's timers."""

from leadline.coordinator.group_effects import JOIN_TIMER, SYNC_TIMER, session_timer


def test_no_member_id_makes_its_session_the_timer_of_the_group() -> None:
    sessions = {session_timer(member_id) for member_id in ("join", "sync", "group", "", "member")}
    assert len(sessions) == 5
    assert not sessions & {JOIN_TIMER, SYNC_TIMER}

"""A replica leaves: those that stay in sync go on at once, whatever the leader last heard of it."""

from tests.scenarios.cluster import Cluster


def test_one_that_was_idle_and_leaves_is_not_waited_for() -> None:
    """Its last fetches in the session named no partition; they came before it left."""
    cluster = Cluster(min_isr=2)
    cluster.produce("a")
    cluster.replicate(2, 3)
    assert cluster.controller.shut_down(3)
    end = cluster.produce("b")
    cluster.replicate(2)
    assert (cluster.isr, cluster.is_acknowledged(end)) == ({1, 2}, True)


def caught_up_but_leaving(cluster: Cluster) -> int:
    """Replica 3 is out, catches up and is proposed; then it leaves. The offset behind a record that it lacks."""
    cluster.produce("a")
    cluster.wait(31_000, 2)
    assert cluster.isr == {1, 2}
    cluster.holds_answers = True
    cluster.replicate(3)
    assert cluster.leading.maximal_isr == (1, 2, 3)
    assert cluster.controller.shut_down(3)
    end = cluster.produce("b")
    cluster.replicate(2)
    assert not cluster.is_acknowledged(end)  # nobody knows yet whether it has joined
    return end


def test_one_that_the_controller_does_not_let_join_is_not_waited_for() -> None:
    cluster = Cluster(min_isr=2)
    end = caught_up_but_leaving(cluster)
    cluster.holds_answers = False
    cluster.answer_leaders()
    assert (cluster.isr, cluster.is_acknowledged(end)) == ({1, 2}, True)
    end = cluster.produce("c")
    cluster.replicate(2)
    assert cluster.is_acknowledged(end)


def test_one_that_was_not_let_join_is_waited_for_again_once_it_is_another_process() -> None:
    cluster = Cluster(min_isr=2)
    caught_up_but_leaving(cluster)
    cluster.holds_answers = False
    cluster.answer_leaders()
    cluster.crash(3)
    cluster.start(3)
    cluster.holds_answers = True
    cluster.replicate(3)
    cluster.leader.proposals.clear()
    cluster.leading.pending = None
    end = cluster.produce("c")
    cluster.replicate(2)
    assert not cluster.is_acknowledged(end)
    cluster.replicate(3)
    assert cluster.is_acknowledged(end)


def keeping_up(cluster: Cluster) -> int:
    """Replica 3 keeps up and is about to join, but is not proposed; then it is silent. An offset that it lacks."""
    cluster.produce("a")
    cluster.wait(31_000, 2)
    cluster.holds_answers = True
    cluster.replicate(3)
    cluster.leader.proposals.clear()
    cluster.leading.pending = None
    end = cluster.produce("b")
    cluster.replicate(2)
    assert not cluster.is_acknowledged(end)
    return end


def test_one_that_is_gone_is_not_waited_for() -> None:
    cluster = Cluster(min_isr=2)
    end = keeping_up(cluster)
    cluster.crash(3)
    cluster.notice(3)
    assert cluster.is_acknowledged(end)


def test_one_that_is_silent_is_waited_for_until_it_is_late() -> None:
    cluster = Cluster(min_isr=2)
    end = keeping_up(cluster)
    cluster.now_ms += 30_001
    cluster.leader.shrink(cluster.now_ms)
    assert cluster.is_acknowledged(end)


def test_a_fetch_from_the_same_place_shows_that_another_is_late() -> None:
    cluster = Cluster(min_isr=2)
    end = keeping_up(cluster)
    cluster.now_ms += 30_001
    cluster.leader.sessions.clear()  # it says all anew
    cluster.fetch(2)
    assert cluster.is_acknowledged(end)

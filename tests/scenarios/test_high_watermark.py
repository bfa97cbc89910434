"""When a record is safe to show, and who decides what "all replicas" means."""

from leadline.errors import IneligibleReplica, NotEnoughReplicas, NotLeaderOrFollower, UnknownServerError
from tests.scenarios.cluster import Cluster


def test_the_high_watermark_needs_a_second_round_of_fetches() -> None:
    cluster = Cluster()
    end = cluster.produce("a")
    cluster.fetch(2, 3)
    assert (cluster.logs(), cluster.high_watermarks()) == (["a", "a", "a"], [0, 0, 0])  # who has it, is not known yet
    assert not cluster.is_acknowledged(end)
    cluster.fetch(2, 3)
    assert cluster.high_watermarks() == [1, 0, 0]
    assert cluster.is_acknowledged(end)
    cluster.fetch(2, 3)
    assert cluster.high_watermarks() == [1, 1, 1]


def test_one_in_sync_follower_that_does_not_fetch_holds_everybody_back() -> None:
    cluster = Cluster()
    end = cluster.produce("a")
    cluster.replicate(2)
    assert not cluster.is_acknowledged(end)
    cluster.wait(31_000, 2)  # until it is out
    assert (cluster.isr, cluster.is_acknowledged(end)) == ({1, 2}, True)


def test_the_isr_shrinks_by_late_replicas_and_expands_by_replicas_that_catch_up() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.wait(31_000, 2)
    assert cluster.isr == {1, 2}
    cluster.produce("bc")
    cluster.replicate(2)
    cluster.fetch(3)  # it asks from 0 on, and does not have anything yet
    assert cluster.isr == {1, 2}
    cluster.fetch(3)
    assert cluster.isr == {1, 2, 3}


def test_a_follower_with_nothing_to_fetch_stays_in_sync_even_if_it_is_gone() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.replicate(2, 3)
    cluster.wait(90_000, 2)
    assert cluster.isr == {1, 2, 3}
    cluster.produce("b")
    cluster.wait(31_000, 2)
    assert cluster.isr == {1, 2}


def test_a_follower_that_is_always_one_fetch_behind_is_in_sync() -> None:
    cluster = Cluster()
    for _ in range(100):
        cluster.produce("ab")  # when it fetches, there is always more
        cluster.now_ms += 1000
        cluster.fetch(2, 3)
        cluster.leader.shrink(cluster.now_ms)
        cluster.answer_leaders()
    assert cluster.isr == {1, 2, 3}


def test_a_follower_that_fetches_all_the_time_but_too_slowly_is_not() -> None:
    cluster = Cluster()
    for _ in range(100):
        cluster.produce("abcd")  # one more than it gets at a time
        cluster.now_ms += 1000
        cluster.fetch(2)
        cluster.leader.shrink(cluster.now_ms)
        cluster.answer_leaders()
    assert cluster.isr == {1}
    cluster.replicate(2)
    for _ in range(30):
        cluster.replicate(2)
    assert cluster.isr == {1, 2}


def test_one_that_is_about_to_join_is_waited_for() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.wait(31_000)
    assert cluster.isr == {1}
    end = cluster.produce("bcd")
    assert cluster.is_acknowledged(end)  # nobody else is in sync, nor near it
    cluster.holds_answers = True
    cluster.replicate(2)
    end = cluster.produce("e")
    assert not cluster.is_acknowledged(end)
    cluster.replicate(2)
    assert cluster.is_acknowledged(end)


def test_while_an_expansion_is_pending_the_newcomer_counts_already() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.wait(31_000)
    cluster.holds_answers = True
    cluster.replicate(2)
    assert (set(cluster.leading.isr), set(cluster.leading.maximal_isr)) == ({1}, {1, 2})
    cluster.now_ms += 60_000  # not about to join any longer, but proposed
    end = cluster.produce("b")
    assert not cluster.is_acknowledged(end)
    cluster.holds_answers = False
    cluster.answer_leaders()
    assert (cluster.isr, cluster.is_acknowledged(end)) == ({1, 2}, False)


def test_a_late_replica_still_counts_while_its_removal_is_pending() -> None:
    cluster = Cluster()
    end = cluster.produce("a")
    cluster.replicate(2)
    cluster.holds_answers = True
    cluster.wait(31_000, 2)
    assert (set(cluster.leading.maximal_isr), cluster.is_acknowledged(end)) == ({1, 2, 3}, False)
    cluster.holds_answers = False
    cluster.answer_leaders()
    assert (cluster.isr, cluster.is_acknowledged(end)) == ({1, 2}, True)


def test_a_proposal_is_repeated_until_it_is_answered_and_forgotten_when_refused() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.wait(31_000)
    cluster.holds_answers = True
    cluster.replicate(2)
    (proposal,) = cluster.leader.proposals
    cluster.leader.altered(proposal, UnknownServerError.code, cluster.now_ms)
    assert cluster.leader.proposals == [proposal, proposal]
    cluster.leader.altered(proposal, IneligibleReplica.code, cluster.now_ms)
    assert cluster.leading.maximal_isr == (1,)
    cluster.fetch(2)
    assert cluster.leader.proposals[2:] == [proposal]  # a new one, that only looks the same
    assert cluster.leader.proposals[2] is not proposal


def test_too_few_in_sync_replicas_refuse_records_and_show_none() -> None:
    cluster = Cluster(min_isr=2)
    end = cluster.produce("a")
    cluster.wait(31_000)
    assert (cluster.isr, cluster.refusal("b")) == ({1}, NotEnoughReplicas)
    assert not cluster.is_acknowledged(end)  # it is on one replica only
    cluster.replicate(2)
    assert (cluster.isr, cluster.refusal("b")) == ({1, 2}, None)
    assert cluster.is_acknowledged(end)


def test_a_deposed_leader_that_does_not_know_it_acknowledges_nothing() -> None:
    cluster = Cluster()
    old = cluster.leader
    cluster.notice(1)  # its session is over, but it runs
    assert (cluster.leader.id, old.leader is not None) == (2, True)
    old.append("x", cluster.now_ms)
    cluster.produce("a")
    cluster.replicate(3)
    assert old.log.high_watermark == 0
    cluster.controller.started(1, old.incarnation)  # a new session
    cluster.replicate(1, 3)
    assert cluster.logs() == ["a", "a", "a"]


def test_a_fetch_of_a_process_that_is_gone_does_not_count() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.replicate(2, 3)
    ask = cluster.nodes[2].ask(cluster.now_ms)
    assert ask is not None
    old = cluster.nodes[2].incarnation
    cluster.crash(2)
    cluster.start(2)
    ask = ask._replace(current_leader_epoch=cluster.leading.epoch)
    late = cluster.leader.serve(2, old, ask, cluster.now_ms)
    assert late.answer.error_code == NotLeaderOrFollower.code
    assert cluster.isr == {1, 3}

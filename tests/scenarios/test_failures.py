"""Brokers that die and come back: what they keep, what they give up, and what nobody may lose."""

import pytest

from leadline.model import NO_LEADER
from leadline.replication.follower import FetchState
from tests.scenarios.cluster import Cluster


def acknowledged(cluster: Cluster, values: str, *followers: int) -> None:
    """Records that are safe, while the followers do not know yet."""
    end = cluster.produce(values)
    for _ in range(1 + len(values)):
        if not cluster.is_acknowledged(end):
            cluster.fetch(*followers)
    assert cluster.is_acknowledged(end)


def test_when_the_leader_fails_the_next_in_sync_replica_goes_on() -> None:
    cluster = Cluster()
    acknowledged(cluster, "ab", 2, 3)
    cluster.crash(1)
    cluster.notice(1)
    assert (cluster.leader.id, cluster.isr) == (2, {2, 3})
    assert cluster.leader.log.values() == "ab"
    end = cluster.produce("c")
    cluster.replicate(3)
    assert cluster.is_acknowledged(end)


def test_a_new_leader_advances_its_high_watermark_once_its_followers_fetch() -> None:
    cluster = Cluster()
    acknowledged(cluster, "ab", 2, 3)
    cluster.crash(1)
    cluster.notice(1)
    assert cluster.leader.log.high_watermark == 0  # the followers had not heard of more
    cluster.replicate(3)
    assert cluster.leader.log.high_watermark == 2


def test_a_replica_joins_the_isr_once_it_has_all_that_an_earlier_leader_may_have_acknowledged() -> None:
    cluster = Cluster(min_isr=2)
    acknowledged(cluster, "a", 2, 3)
    cluster.replicate(2, 3)
    cluster.produce("b")
    cluster.fetch(3)
    cluster.wait(31_000, 2)
    acknowledged(cluster, "c", 2)
    cluster.crash(1)
    cluster.notice(1)
    assert (cluster.leader.id, cluster.isr, cluster.leader.log.high_watermark) == (2, {2}, 2)
    assert cluster.nodes[3].log.log_end == 2
    cluster.fetch(3)  # it holds all up to the high watermark, but not all that was acknowledged
    assert cluster.isr == {2}
    cluster.fetch(3)
    assert cluster.isr == {2, 3}


def test_a_follower_fails_and_catches_up() -> None:
    cluster = Cluster()
    acknowledged(cluster, "a", 2, 3)
    cluster.crash(3)
    cluster.notice(3)
    acknowledged(cluster, "bcdefg", 2)
    cluster.start(3)
    assert cluster.isr == {1, 2}
    cluster.fetch(3, 3)
    assert (cluster.logs()[2], cluster.isr) == ("abcdefg", {1, 2})  # it has all, and is to say so
    cluster.fetch(3)
    assert cluster.isr == {1, 2, 3}


def test_the_preferred_leader_leads_again_once_it_is_in_sync() -> None:
    cluster = Cluster()
    acknowledged(cluster, "a", 2, 3)
    cluster.crash(1)
    cluster.notice(1)
    cluster.produce("b")
    cluster.start(1)
    assert not cluster.controller.elect_preferred()  # it lacks a record
    cluster.replicate(1, 3)
    assert cluster.controller.elect_preferred()
    assert (cluster.leader.id, cluster.isr) == (1, {1, 2, 3})
    cluster.replicate(2, 3)
    acknowledged(cluster, "c", 2, 3)
    assert cluster.logs() == ["abc", "abc", "abc"]


def test_a_leader_that_shuts_down_hands_over_first() -> None:
    cluster = Cluster()
    acknowledged(cluster, "a", 2, 3)
    assert cluster.controller.shut_down(1)
    assert (cluster.leader.id, cluster.isr) == (2, {2, 3})
    cluster.crash(1)
    cluster.notice(1)
    assert (cluster.leader.id, cluster.controller.current.leader_epoch) == (2, 1)  # and nothing more happens


@pytest.mark.parametrize(("keeps_epochs", "left"), [(True, "ab"), (False, "")])
def test_truncation_to_the_high_watermark_loses_what_leader_epochs_keep(keeps_epochs: bool, left: str) -> None:
    """Of two replicas in sync, the follower truncates at a new epoch; before it fetches, the leader is gone."""
    cluster = Cluster(keeps_epochs=keeps_epochs)
    acknowledged(cluster, "ab", 2, 3)
    cluster.crash(3)
    cluster.notice(3)  # a new epoch, with the same leader
    assert (cluster.isr, cluster.nodes[1].log.values()) == ({1, 2}, "ab")
    cluster.crash(1)
    cluster.notice(1)
    assert (cluster.leader.id, cluster.leader.log.values()) == (2, left)


@pytest.mark.parametrize("keeps_epochs", [True, False])
def test_replicas_that_part_after_both_crash_agree_again_by_leader_epochs_alone(keeps_epochs: bool) -> None:
    cluster = Cluster(keeps_epochs=keeps_epochs)
    cluster.crash(3)
    cluster.notice(3)
    acknowledged(cluster, "a", 2)
    cluster.fetch(2)
    cluster.nodes[2].log.flush()
    acknowledged(cluster, "b", 2)
    cluster.nodes[1].log.flush()
    cluster.crash(1, 2, power_failed=True)
    cluster.notice(1, 2)
    cluster.start(2)  # which lost b
    cluster.produce("c")
    cluster.start(1)
    cluster.replicate(1)
    assert cluster.nodes[2].log.values() == "ac"
    assert cluster.nodes[1].log.values() == ("ac" if keeps_epochs else "ab")
    assert (cluster.nodes[1].warnings != []) is keeps_epochs  # b was safe: it goes, but not in silence


def test_without_an_in_sync_replica_there_is_no_leader() -> None:
    cluster = Cluster()
    cluster.produce("a")
    cluster.wait(31_000)
    cluster.crash(1)
    cluster.notice(1)
    assert (cluster.controller.current.leader, cluster.isr) == (NO_LEADER, {1})
    cluster.start(1)
    assert (cluster.leader.id, cluster.leader.log.values()) == (1, "a")


def test_an_unclean_election_loses_records_and_says_so() -> None:
    cluster = Cluster(unclean=True)
    acknowledged(cluster, "a", 2, 3)
    end = cluster.produce("b")
    cluster.wait(31_000)
    assert (cluster.isr, cluster.is_acknowledged(end)) == ({1}, True)
    cluster.crash(1)
    cluster.nodes[1].log.set_high_watermark(end)  # it had been checkpointed
    cluster.notice(1)
    assert (cluster.leader.id, cluster.isr, cluster.controller.current.recovering) == (2, {2}, True)
    assert cluster.leader.log.values() == "a"
    cluster.produce("c")
    cluster.start(1)
    cluster.replicate(1, 3)
    assert cluster.logs() == ["ac", "ac", "ac"]
    assert cluster.nodes[1].warnings == ["records from 1 on go, below the high watermark 2"]
    assert not cluster.controller.current.recovering


def test_after_many_short_epochs_a_follower_goes_back_one_by_one() -> None:
    """Two leaders in turn, each alone: their logs part in one epoch after the other."""
    cluster = Cluster(unclean=True)
    acknowledged(cluster, "a", 2, 3)
    cluster.crash(3)
    cluster.notice(3)
    for value, leader, other in [("b", 1, 2), ("c", 2, 1), ("d", 1, 2), ("e", 2, 1)]:
        if not cluster.nodes[leader].is_up:
            cluster.start(leader)
        if other in cluster.controller.alive:
            cluster.crash(other)
            cluster.notice(other)
        cluster.produce(value)
        cluster.crash(leader)
        cluster.notice(leader)
    assert cluster.logs()[:2] == ["abd", "ace"]
    cluster.start(2)
    cluster.start(1)
    cluster.fetch(1)
    assert cluster.logs()[0] == "ab"  # d goes, of an epoch that the leader never had; then it is to ask again
    cluster.replicate(1)
    assert cluster.logs()[:2] == ["ace", "ace"]


def test_a_follower_that_ends_before_the_leader_starts_begins_anew_there() -> None:
    cluster = Cluster()
    acknowledged(cluster, "ab", 2, 3)
    cluster.crash(3)
    cluster.notice(3)
    acknowledged(cluster, "cdef", 2)
    cluster.fetch(2)
    cluster.leader.log.delete_records(4)
    cluster.start(3)
    cluster.fetch(3)
    following = cluster.nodes[3].following
    assert following is not None
    assert following.state is FetchState.ENDS_ELSEWHERE
    cluster.fetch(3, 3)
    assert (cluster.nodes[3].log.log_start, cluster.nodes[3].warnings != []) == (4, True)
    cluster.replicate(2, 3)
    assert (cluster.logs(), cluster.isr) == (["ef", "ef", "ef"], {1, 2, 3})


def test_a_replica_moves_to_another_broker_without_a_moment_of_fewer_copies() -> None:
    cluster = Cluster()
    cluster.controller.reassign((1, 2))
    assert cluster.isr == {1, 2}
    acknowledged(cluster, "abcd", 2)
    cluster.controller.reassign((3, 2))
    assert (cluster.controller.assigned, cluster.leader.id, cluster.isr) == ((3, 2, 1), 1, {1, 2})
    cluster.replicate(2, 3)
    assert (cluster.controller.assigned, cluster.leader.id, cluster.isr) == ((3, 2), 3, {2, 3})
    cluster.replicate(2)
    assert cluster.logs() == ["", "abcd", "abcd"]


def test_a_reassignment_waits_for_its_new_replicas_whatever_fails_meanwhile() -> None:
    cluster = Cluster()
    cluster.controller.reassign((1, 2))
    acknowledged(cluster, "a", 2)
    cluster.controller.reassign((3,))
    cluster.crash(1)
    cluster.notice(1)
    assert (cluster.leader.id, cluster.isr) == (2, {2})
    cluster.replicate(3)
    assert (cluster.controller.assigned, cluster.isr) == ((3,), {3})
    assert cluster.leader.log.values() == "a"

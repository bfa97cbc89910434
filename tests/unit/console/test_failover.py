"""What the console says about a failover."""

from leadline.admin.explanation import LedEpoch, PartitionExplanation, ReplicaStatus
from leadline.admin.open_transactions import BlockedPartition
from leadline.console.failover import failover, log_end
from leadline.model import TopicPartition

TP = TopicPartition("orders", 0)


def explanation(ends: dict[int, int], isr: list[int], high_watermark: int) -> PartitionExplanation:
    """Broker 1 leads."""
    statuses = [ReplicaStatus(id, id == 1, id in isr, 0, end, high_watermark) for id, end in ends.items()]
    blocked = BlockedPartition(TP, high_watermark, high_watermark, ())
    return PartitionExplanation(TP, 1, list(ends), isr, statuses, [LedEpoch(4, 0)], [], blocked, True)


def texts(partition: PartitionExplanation, failing: int, min_isr: int = 1) -> str:
    return "\n".join(step.what for step in failover(partition, failing, min_isr))


def test_the_first_replica_in_sync_leads_in_the_next_epoch() -> None:
    text = texts(explanation({1: 50, 3: 50, 2: 50}, [1, 2, 3], 50), 1)
    assert "elects broker 3, in epoch 5" in text
    assert "All 50 offsets below the high watermark survive" in text
    assert "Then replicas 3,2 are in sync" in text


def test_a_replica_that_is_not_in_sync_is_passed_over() -> None:
    assert "elects broker 2" in texts(explanation({1: 50, 3: 9, 2: 50}, [1, 2], 50), 1)


def test_records_that_only_the_leader_has_are_named() -> None:
    steps = failover(explanation({1: 53, 2: 50}, [1, 2], 50), 1, 1)
    (lost,) = [step for step in steps if step.is_bad]
    assert lost.what.startswith("3 records from 50 on are only on the old leader")


def test_a_follower_ahead_of_the_new_leader_truncates() -> None:
    text = texts(explanation({1: 53, 2: 50, 3: 52}, [1, 2, 3], 50), 1)
    assert "Broker 3 is ahead of the new leader: it truncates its log from 52 back to 50" in text


def test_too_few_replicas_refuse_writes() -> None:
    text = texts(explanation({1: 50, 2: 50}, [1, 2], 50), 1, min_isr=2)
    assert "Only replica 2 is in sync, and min.insync.replicas is 2" in text


def test_without_another_replica_in_sync_there_is_no_leader() -> None:
    assert "has the only replica" in texts(explanation({1: 50}, [1], 50), 1)
    text = texts(explanation({1: 50, 2: 10}, [1], 50), 1)
    assert "No other replica is in sync" in text
    assert "unclean.leader.election.enable=true, broker 2 would lead" in text


def test_a_follower_may_fail_without_a_new_leader() -> None:
    text = texts(explanation({1: 50, 2: 50, 3: 10}, [1, 2], 50), 2)
    assert "broker 1 leads on" in text
    assert "Then replica 1 is in sync" in text
    assert "the high watermark does not wait for it" in texts(explanation({1: 50, 2: 50, 3: 10}, [1, 2], 50), 3)


def test_the_end_of_a_replica_is_reckoned_from_its_lag() -> None:
    partition = explanation({1: 50}, [1], 50)
    assert log_end(partition, ReplicaStatus(2, False, True, lag=8)) == 42
    assert log_end(partition, ReplicaStatus(2, False, True)) is None

"""What a failover of a partition would do now, step by step, if a broker failed.

The rules are Kafka's: the controller elects the first replica of the assignment that is alive and in sync, and the
epoch grows by one. Followers truncate what the new leader does not have. The records below the high watermark are on
all in-sync replicas, so they survive.

Pure: an explanation in, sentences out.
"""

from collections.abc import Sequence
from typing import NamedTuple

from leadline.admin.explanation import PartitionExplanation, ReplicaStatus
from leadline.admin.formatting import count_text, ids_text
from leadline.model import BrokerId, Offset


class FailoverStep(NamedTuple):
    what: str
    is_bad: bool = False


def log_end(explanation: PartitionExplanation, replica: ReplicaStatus) -> Offset | None:
    """The end of a replica's log. Without a report, only its lag is known."""
    if replica.log_end is not None:
        return replica.log_end
    if replica.lag is None or explanation.blocked is None:
        return None
    leader = next((status.log_end for status in explanation.statuses if status.is_leader), None)
    end = leader if leader is not None else explanation.blocked.high_watermark
    return max(end - replica.lag, 0)


def failover(explanation: PartitionExplanation, failing: BrokerId, min_isr: int) -> list[FailoverStep]:
    """The steps after the failure of one broker that has a replica."""
    if failing != explanation.leader:
        return _follower_fails(explanation, failing, min_isr)
    epoch = explanation.epochs[0].epoch + 1 if explanation.epochs else None
    steps = [FailoverStep(f"Broker {failing} fails. It leads, so clients cannot write or read for a moment.")]
    candidates = [id for id in explanation.replicas if id in explanation.isr and id != failing]
    if not candidates:
        return [*steps, *_without_candidate(explanation, failing)]
    new = candidates[0]
    in_epoch = "" if epoch is None else f", in epoch {epoch}"
    steps.append(
        FailoverStep(
            f"The controller elects broker {new}{in_epoch}: of the replicas {ids_text(explanation.replicas)} it is the "
            f"first that is alive and in sync."
        )
    )
    steps += _survival(explanation, new)
    steps += _truncations(explanation, new, failing)
    steps.append(_writable(candidates, min_isr))
    steps.append(
        FailoverStep(f"When broker {failing} is back, it truncates what broker {new} does not have, and catches up.")
    )
    return steps


def _survival(explanation: PartitionExplanation, new: BrokerId) -> list[FailoverStep]:
    if explanation.blocked is None:
        return []
    committed = explanation.blocked.high_watermark
    steps = [
        FailoverStep(f"All {committed:,} offsets below the high watermark survive: every in-sync replica holds them.")
    ]
    ends = {status.id: log_end(explanation, status) for status in explanation.statuses}
    leader_end, new_end = ends.get(explanation.leader or 0), ends.get(new)
    if leader_end is not None and new_end is not None and leader_end > new_end:
        lost = count_text(leader_end - new_end, "record")
        steps.append(
            FailoverStep(
                f"{lost} from {new_end} on are only on the old leader. They were not acknowledged with acks=all; "
                "producers send them again, and those with acks=1 lose them.",
                is_bad=True,
            )
        )
    return steps


def _truncations(explanation: PartitionExplanation, new: BrokerId, failing: BrokerId) -> list[FailoverStep]:
    ends = {status.id: log_end(explanation, status) for status in explanation.statuses}
    new_end = ends.get(new)
    if new_end is None:
        return []
    return [
        FailoverStep(f"Broker {id} is ahead of the new leader: it truncates its log from {end} back to {new_end}.")
        for id, end in ends.items()
        if id not in (new, failing) and end is not None and end > new_end
    ]


def _without_candidate(explanation: PartitionExplanation, failing: BrokerId) -> list[FailoverStep]:
    others = [id for id in explanation.replicas if id != failing]
    if not others:
        return [FailoverStep("It has the only replica: the partition has no leader until the broker is back.", True)]
    return [
        FailoverStep("No other replica is in sync: the partition has no leader until the broker is back.", True),
        FailoverStep(
            f"With unclean.leader.election.enable=true, broker {others[0]} would lead, and the records that it lacks "
            "would be lost.",
            True,
        ),
    ]


def _writable(in_sync: Sequence[BrokerId], min_isr: int) -> FailoverStep:
    noun = f"replica {ids_text(in_sync)} is" if len(in_sync) == 1 else f"replicas {ids_text(in_sync)} are"
    if len(in_sync) < min_isr:
        return FailoverStep(
            f"Only {noun} in sync, and min.insync.replicas is {min_isr}: producers with acks=all are refused "
            "(NOT_ENOUGH_REPLICAS) until another one has caught up.",
            True,
        )
    return FailoverStep(f"Then {noun} in sync. min.insync.replicas is {min_isr}: writes with acks=all continue.")


def _follower_fails(explanation: PartitionExplanation, failing: BrokerId, min_isr: int) -> list[FailoverStep]:
    steps = [
        FailoverStep(f"Broker {failing} fails. It follows: broker {explanation.leader} leads on, no epoch changes.")
    ]
    if failing not in explanation.isr:
        return [*steps, FailoverStep("It was not in sync: the high watermark does not wait for it.")]
    left = [id for id in explanation.isr if id != failing]
    steps.append(
        FailoverStep(
            f"The leader takes it out of the in-sync replicas: {ids_text(left)} are left. Until then, acks=all waits "
            "for it: for replica.lag.time.max.ms at most, or until the controller notices."
        )
    )
    return [*steps, _writable(left, min_isr)]

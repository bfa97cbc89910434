"""A partition explained in text, from the reports of its brokers."""

from typing import Any

from leadline.model import TopicPartition
from leadline.testing.explanation import explanation_of

TP = TopicPartition("orders", 0)


def report(
    *, leads: bool = False, follows: dict[str, str] | None = None, requested: list[int] | None = None, **history: Any
) -> dict[str, Any]:
    leading = {"replicas": [1, 2], "isr": [1], "min_isr": 1, "asked_isr": requested} if leads else None
    return {
        "leader": 1, "leader_epoch": 4, "leads": leading, "follows": follows,
        "log_start": 0, "log_end": 9, "high_watermark": 8, "last_stable_offset": 7,
        "history": {"elections": [], "isr_changes": [], "truncations": []} | history,
    }  # fmt: skip


def test_leader_replicas_and_offsets_are_named() -> None:
    reports = {1: report(leads=True, requested=[1, 2]), 2: report(follows={"state": "waiting", "why": "no answer"})}
    assert explanation_of(TP, reports, {3: "killed"}).splitlines() == [
        "orders-0",
        "  leader     broker 1, epoch 4",
        "  replicas   1,2",
        "  in sync    1 (min.insync.replicas=1)",
        "  requested  1,2 in sync; the controller has not answered yet",
        "  broker 1   leads, offsets 0 to 9, high watermark 8, last stable offset 7",
        "  broker 2   follows (waiting, no answer), offsets 0 to 9, high watermark 8, last stable offset 7",
        "  broker 3   killed",
    ]


def test_an_election_is_named_once_and_events_are_in_order() -> None:
    election = {"at_ms": 2000, "epoch": 4, "leader": 1, "isr": [1], "unclean": True}
    truncation = {"at_ms": 3000, "to_offset": 5, "leader": 1}
    change = {"at_ms": 1000, "before": [1, 2], "after": [1], "why": "replica 2 is late"}
    reports = {
        1: report(leads=True, elections=[election], isr_changes=[change]),
        2: report(elections=[election | {"at_ms": 2001}], truncations=[truncation]),
    }
    lines = explanation_of(TP, reports, {}).splitlines()[-3:]
    assert [line[27:] for line in lines] == [
        "in sync 1 instead of 1,2: replica 2 is late",
        "broker 1 leads: epoch 4, in sync 1, and may lack records that were acknowledged",
        "broker 2 removed offsets from 5 on: its leader, broker 1, lacks them",
    ]


def test_a_partition_without_a_leader_says_so() -> None:
    alone = report() | {"leader": -1}
    assert "  leader     none, epoch 4" in explanation_of(TP, {2: alone}, {})
    assert "neither leads nor follows" in explanation_of(TP, {2: alone}, {})

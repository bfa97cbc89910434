"""A partition explained: what several brokers saw, put together."""

import io
from typing import Any

from leadline.admin.explanation import (
    PartitionExplanation,
    PartitionReports,
    ReplicaStatus,
    as_json,
    explain_partition,
)
from leadline.admin.formatting import moment_text
from leadline.admin.open_transactions import BlockedPartition, OpenTransaction
from leadline.cli.explain.explanation_text import NO_HISTORY, lines_of
from leadline.cli.terminal import TextStyles
from leadline.model import TopicPartition

TP = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000


def election(epoch: int, leader: int, *isr: int, at_ms: int, unclean: bool = False) -> dict[str, object]:
    return {"at_ms": at_ms, "epoch": epoch, "leader": leader, "isr": list(isr), "log_end": 0, "unclean": unclean}


def report(broker: int, log_end: int, **others: Any) -> dict[str, Any]:
    history = {"elections": [], "isr_changes": [], "truncations": []} | others.pop("history", {})
    return {
        "broker": broker,
        "now_ms": NOW_MS,
        "log_start": 0,
        "log_end": log_end,
        "high_watermark": 8,
        "size_bytes": 1000,
        "epochs": [[0, 0], [2, 5]],
        "leads": None,
        "follows": {"state": "FETCHING", "offset": log_end, "why": ""},
        "history": history,
    } | others


def follower(id: int, fetched_ms: int, caught_up_ms: int) -> dict[str, int]:
    return {"id": id, "log_end": 8, "fetched_ms": fetched_ms, "caught_up_ms": caught_up_ms}


LEADER = report(
    2,
    10,
    leads={
        "replicas": [1, 2, 3],
        "isr": [2, 1],
        "asked_isr": None,
        "followers": [follower(1, NOW_MS - 40, NOW_MS - 40), follower(3, NOW_MS - 50, NOW_MS - 90_000)],
    },
    history={
        "elections": [election(0, 1, 1, 2, 3, at_ms=NOW_MS - 9000), election(2, 2, 2, 3, at_ms=NOW_MS - 7000)],
        "isr_changes": [{"at_ms": NOW_MS - 3000, "epoch": 2, "before": [2, 3], "after": [2, 1, 3], "why": "1 is back"}],
    },
)
TRUNCATED = {"at_ms": NOW_MS - 4000, "epoch": 2, "leader": 2, "log_end": 7, "to_offset": 5, "warning": None}


def reports(*replicas: dict[str, Any], leader: int | None = 2, **others: Any) -> PartitionReports:
    return PartitionReports(
        TP, leader, [1, 2, 3], [2, 1], {replica["broker"]: replica for replica in replicas}, **({"silent": {}} | others)
    )


def states(explanation: PartitionExplanation) -> dict[int, str]:
    return {status.id: status.state for status in explanation.statuses}


def test_each_replica_is_shown_by_its_own_report_and_its_leaders() -> None:
    explanation = explain_partition(reports(LEADER, report(1, 10), report(3, 4)))
    assert [
        (status.id, status.is_leader, status.in_sync, status.log_end, status.lag) for status in explanation.statuses
    ] == [
        (1, False, True, 10, 0),
        (2, True, True, 10, 0),
        (3, False, False, 4, 6),
    ]
    assert states(explanation) == {1: "fetched 40 ms ago", 2: "leads", 3: "fetched 50 ms ago, caught up 1 min 30 s ago"}


def test_a_replica_that_does_not_copy_is_shown_with_the_reason() -> None:
    failed = report(1, 10, follows={"state": "FAILED", "offset": 10, "why": "leader epoch 1 is over"})
    explanation = explain_partition(reports(LEADER, failed, silent={3: "its broker is away"}))
    assert states(explanation) == {1: "failed: leader epoch 1 is over", 2: "leads", 3: "its broker is away"}
    assert explanation.statuses[2].log_end is None
    assert (
        states(explain_partition(reports(report(1, 10), report(3, 4, follows=None), leader=None)))[3]
        == "waits for a leader"
    )


def test_the_state_of_a_leader_shows_the_isr_it_has_requested() -> None:
    proposing = LEADER | {"leads": LEADER["leads"] | {"asked_isr": [2]}}
    assert states(explain_partition(reports(proposing)))[2] == "leads, has requested 2 as in-sync replicas"


def test_epochs_are_shown_with_leader_and_start_as_far_as_reported() -> None:
    earlier = report(1, 10, history={"elections": [election(1, -1, 2, at_ms=NOW_MS - 8000)]})
    later = report(3, 10, history={"elections": [election(2, 2, 2, 3, at_ms=NOW_MS - 6000)]})
    explanation = explain_partition(reports(LEADER, earlier, later))
    assert [(epoch.epoch, epoch.start_offset, epoch.leader, epoch.since_ms) for epoch in explanation.epochs] == [
        (2, 5, 2, NOW_MS - 7000),
        (1, None, -1, NOW_MS - 8000),
        (0, 0, 1, NOW_MS - 9000),
    ]


def test_events_of_all_reports_are_shown_newest_first() -> None:
    explanation = explain_partition(reports(LEADER, report(1, 10, history={"truncations": [TRUNCATED]})))
    assert [event.what for event in explanation.events] == [
        "in sync 2,1,3 instead of 2,3: 1 is back",
        "broker 1 truncated 2 records, from 7 back to 5, to follow broker 2 in epoch 2",
        "broker 2 leads: epoch 2, in sync 2,3, without 1",
        "broker 1 leads: epoch 0, in sync 1,2,3",
    ]


def test_the_loss_of_what_was_safe_stands_out() -> None:
    lost = TRUNCATED | {"warning": "records from 5 on go, below the high watermark 7"}
    anew = TRUNCATED | {"to_offset": 90, "warning": "all records go"}
    explanation = explain_partition(reports(report(1, 10, history={"truncations": [lost, anew]})))
    assert [event.is_bad for event in explanation.events] == [True, True]
    assert "dropped all its records below 7 and starts at 90" in explanation.events[1].what


def test_an_unclean_election_stands_out() -> None:
    elections = [election(3, 1, 1, at_ms=NOW_MS, unclean=True)]
    (event,) = explain_partition(reports(report(1, 10, history={"elections": elections}))).events
    assert event.is_bad
    assert event.what.endswith("without 2,3; unclean: it was not in sync, and the records that it lacks are lost")


def test_a_person_reads_it_top_down() -> None:
    held = OpenTransaction(TP, producer_id=7, epoch=0, coordinator_epoch=0, start_offset=6, last_ms=NOW_MS - 1000)
    explanation = explain_partition(
        reports(LEADER, report(1, 10), silent={3: "its broker is away"}, blocked=BlockedPartition(TP, 6, 8, (held,)))
    )
    lines = lines_of(explanation, {}, NOW_MS, TextStyles(io.StringIO()))
    assert lines[:6] == [
        "orders-0",
        f"  leader           broker 2, epoch 2, since {moment_text(NOW_MS - 7000)} (7 s ago)",
        "  replicas         1,2,3",
        "  in sync          2,1, without 3",
        "  committed        up to 8, transactions only up to 6",
        "  held by          producer 7, epoch 0, with a transaction from 6 on",
    ]
    assert [line.split()[0] for line in lines if line[:1].isupper()] == ["REPLICA", "EPOCH", "WHEN"]
    assert NO_HISTORY not in lines


def test_of_a_long_history_the_newest_is_shown_and_the_rest_counted() -> None:
    elections = [election(n, 2, 2, at_ms=NOW_MS - 100 + n) for n in range(5)]
    explanation = explain_partition(reports(report(2, 10, history={"elections": elections})))
    lines = lines_of(explanation, {}, NOW_MS, TextStyles(io.StringIO()), shown=2)
    assert lines.count("and 3 older ones: --json prints all") == 2


def test_an_explanation_says_that_brokers_keep_no_history() -> None:
    copies = {2: ReplicaStatus(2, True, True, high_watermark=8, lag=0, size_bytes=10, state="leads")}
    explanation = explain_partition(
        reports(statuses=copies, epoch_starts=[(0, 0), (3, 6)], blocked=BlockedPartition(TP, 8, 8, ()))
    )
    assert [(epoch.epoch, epoch.start_offset, epoch.leader) for epoch in explanation.epochs] == [
        (3, 6, None),
        (0, 0, None),
    ]
    assert (explanation.statuses[1], explanation.statuses[0].state) == (copies[2], "unknown")
    lines = lines_of(explanation, {}, NOW_MS, TextStyles(io.StringIO()))
    assert (lines[1], lines[-1]) == ("  leader     broker 2, epoch 3", NO_HISTORY)


def test_brokers_without_a_report_are_shown_beside_those_with_one() -> None:
    other = ReplicaStatus(2, True, True, high_watermark=8, lag=0, size_bytes=10, state="leads")
    explanation = explain_partition(reports(report(1, 10), report(3, 9), statuses={2: other}))
    assert (explanation.statuses[1], explanation.has_history) == (other, True)
    assert [(status.log_end, status.lag, status.state) for status in explanation.statuses[::2]] == [
        (10, None, "follows"),
        (9, None, "follows"),
    ]
    assert [epoch.epoch for epoch in explanation.epochs] == [2, 0]


def test_a_partition_without_a_leader_is_shown_as_one() -> None:
    lines = lines_of(explain_partition(reports(leader=None)), {}, NOW_MS, TextStyles(io.StringIO()))
    assert lines[1] == "  leader    none"


def test_it_is_all_in_the_json() -> None:
    explanation: Any = as_json(explain_partition(reports(LEADER, report(1, 10, history={"truncations": [TRUNCATED]}))))
    assert (explanation["topic"], explanation["partition"], explanation["leader"], explanation["history_kept"]) == (
        "orders",
        0,
        2,
        True,
    )
    assert explanation["epochs"][0] == {"epoch": 2, "start_offset": 5, "leader": 2, "since_ms": NOW_MS - 7000}
    assert explanation["replica_states"][1]["log_end"] == 10
    assert explanation["events"][1]["at_ms"] == NOW_MS - 4000

"""What a broker remembers of a partition: enough to say why, and never too much."""

from leadline.replication.history import KEPT, History, IsrChange, Truncation
from leadline.replication.partition import LeaderAndIsr, Proposal

ALL = (1, 2, 3)


def decided(*isr: int, epoch: int = 4, leader: int = 1) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, isr)


def proposed(*isr: int) -> Proposal:
    return Proposal(decided(*isr), tuple(-1 for _ in isr))


def test_an_isr_change_keeps_the_reason_of_its_first_proposal() -> None:
    history, proposal = History(), proposed(1, 2)
    history.proposed(proposal, "replica 3 is late")
    history.proposed(proposal, "asked again after error 7")
    history.altered(proposal, ALL, decided(1, 2), now_ms=90)
    assert history.isr_changes == [IsrChange(90, 4, ALL, (1, 2), "replica 3 is late")]


def test_a_reason_is_not_taken_for_that_of_another_proposal() -> None:
    history = History()
    history.proposed(proposed(1, 2), "replica 3 is late")
    history.altered(proposed(1, 2), ALL, decided(1, 2), now_ms=90)
    assert history.isr_changes[-1].why == ""
    history.proposed(proposal := proposed(1, 2, 3), "replica 3 is back")
    history.altered(proposal, (1, 2), decided(1), now_ms=91)
    assert history.isr_changes[-1].why == "the controller has a different ISR"


def test_a_removal_by_the_controller_has_a_reason_of_its_own() -> None:
    history = History()
    history.decided(ALL, decided(1), replicas=(1, 2), now_ms=90)
    assert history.isr_changes[-1].why == (
        "the controller took out replica 3: no longer assigned; replica 2: away, shutting down, or with a failed disk"
    )
    history.decided((1,), decided(1, 2), replicas=ALL, now_ms=91)
    assert history.isr_changes[-1].why == "the controller decided so"


def test_the_same_replicas_in_another_order_are_no_change() -> None:
    history = History()
    history.decided(ALL, decided(3, 2, 1), replicas=ALL, now_ms=90)
    assert history.isr_changes == []


def test_nothing_truncated_is_nothing_to_remember() -> None:
    history = History()
    history.truncated(Truncation(90, 4, 1, log_end=7, to_offset=7, warning=None))
    assert history.truncations == []


def test_the_last_of_each_kind_are_kept() -> None:
    history = History()
    history.truncated(Truncation(1, 4, 1, log_end=7, to_offset=5, warning="gone"))
    for epoch in range(KEPT + 5):
        history.elected(decided(1, epoch=epoch), log_end=epoch, now_ms=epoch)
    assert [election.epoch for election in history.elections] == list(range(5, KEPT + 5))
    history.elected(LeaderAndIsr(2, 99, (2,), recovering=True), log_end=3, now_ms=99)
    assert [election.unclean for election in history.elections[-2:]] == [False, True]
    values = history.as_values()
    assert values["truncations"] == [
        {"at_ms": 1, "epoch": 4, "leader": 1, "log_end": 7, "to_offset": 5, "warning": "gone"}
    ]

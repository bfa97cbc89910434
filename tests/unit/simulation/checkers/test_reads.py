"""Each law about reads is broken by polls that were made for it."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from leadline.model import TopicPartition
from leadline.simulation.checkers import reads
from leadline.simulation.checkers.writes import Stored
from leadline.simulation.client_history import Attempt, ClientHistory, Poll, TransactionAttempt

TP = TopicPartition("records", 0)
STORED = {TP: {0: b"a", 1: b"b", 2: b"aborted", 4: b"c"}}
VISIBLE = {TP: {0: b"a", 1: b"b", 4: b"c"}}
ALL = STORED[TP]


def poll(start: int, end: int, values: dict[int, bytes], *, is_committed: bool = False) -> Poll:
    return Poll("r", TP, is_committed, start, end, values)


def broken(*polls: Poll, deleted_before: int = 0) -> list[str]:
    """The laws that these polls break."""
    return broken_by(ClientHistory(polls=list(polls), deleted_before={TP: deleted_before}))


def broken_by(history: ClientHistory) -> list[str]:
    checks: tuple[Callable[[ClientHistory], Iterator[str]], ...] = (
        partial(reads.changed_reads, stored=STORED),
        partial(reads.aborted_reads, stored=STORED, visible=VISIBLE),
        partial(reads.skipped_reads, stored=STORED, visible=VISIBLE),
        reads.repeated_reads,
    )
    return [line.split(":")[0] for check in checks for line in check(history)]


def test_polls_that_keep_all_laws() -> None:
    assert broken(poll(0, 2, {0: b"a", 1: b"b"}), poll(2, 5, {2: b"aborted", 4: b"c"})) == []
    assert broken(poll(0, 5, VISIBLE[TP], is_committed=True)) == []


def test_a_value_that_was_read_stays() -> None:
    assert broken(poll(0, 5, ALL | {1: b"x"})) == ["changed read"]


def test_a_record_of_an_aborted_transaction_is_not_read() -> None:
    assert broken(poll(0, 5, ALL, is_committed=True)) == ["aborted read"]


@pytest.mark.parametrize(("visible", "expected"), [(VISIBLE, []), (STORED, ["aborted read"])])
def test_a_record_that_was_never_to_be_committed_is_not_read_even_if_it_becomes_visible(
    visible: Stored, expected: list[str]
) -> None:
    aborted = TransactionAttempt("t", "p", attempts=[Attempt("p", 0, b"aborted", TP)])
    values = visible[TP]
    history = ClientHistory(transactions=[aborted], polls=[poll(0, 5, values, is_committed=True)])
    assert [line.split(":")[0] for line in reads.aborted_reads(history, STORED, STORED)] == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (VISIBLE[TP], []),
        (VISIBLE[TP] | {1: b"x"}, ["changed read"]),
        (ALL, ["aborted read"]),
        ({1: b"b"}, ["skipped read"]),
    ],
)
def test_members_of_groups_and_transactions_read_by_the_same_laws(
    values: dict[int, bytes], expected: list[str]
) -> None:
    """They need not begin at the start, nor read to the end."""
    values = {offset: value for offset, value in values.items() if offset > 0}
    read = poll(1, 5, values, is_committed=True)
    assert broken_by(ClientHistory(group_polls=[read])) == expected
    assert broken_by(ClientHistory(transaction_polls=[read])) == expected


def test_nothing_is_skipped_within_a_poll() -> None:
    assert broken(poll(0, 5, {0: b"a", 4: b"c"})) == ["skipped read", "skipped read"]


def test_nothing_is_skipped_between_polls() -> None:
    assert broken(poll(0, 1, {0: b"a"}), poll(2, 5, {2: b"aborted", 4: b"c"})) == ["skipped read"]


def test_what_was_deleted_may_be_skipped() -> None:
    assert broken(poll(2, 5, {2: b"aborted", 4: b"c"}), deleted_before=2) == []


def test_a_reader_sees_everything_in_the_end() -> None:
    assert broken(poll(0, 2, {0: b"a", 1: b"b"})) == ["unseen write"]


def test_offsets_that_are_read_only_grow() -> None:
    assert "repeated read" in broken(poll(0, 2, {0: b"a", 1: b"b"}), poll(1, 5, {1: b"b", 2: b"aborted", 4: b"c"}))

"""Each law about reads is broken by polls that were made for it."""

from collections.abc import Callable, Iterator
from functools import partial

from leadline.model import TopicPartition
from leadline.simulation.checkers import reads
from leadline.simulation.client_history import Attempt, ClientHistory, Poll, TransactionAttempt

TP = TopicPartition("records", 0)
STORED = {TP: {0: b"a", 1: b"b", 2: b"aborted", 4: b"c"}}
VISIBLE = {TP: {0: b"a", 1: b"b", 4: b"c"}}
ALL = STORED[TP]


def poll(start: int, end: int, values: dict[int, bytes], *, is_committed: bool = False) -> Poll:
    return Poll("r", TP, is_committed, start, end, values)


def broken(*polls: Poll, deleted_before: int = 0) -> list[str]:
    """The laws that these polls break."""
    aborted = TransactionAttempt("t", "p", attempts=[Attempt("p", 0, b"aborted", TP)])
    history = ClientHistory(transactions=[aborted], polls=list(polls), deleted_before={TP: deleted_before})
    checks: dict[str, Callable[[ClientHistory], Iterator[str]]] = {
        "changed": lambda history: reads.changed_reads(history, STORED),
        "aborted": reads.aborted_reads,
        "skipped": partial(reads.skipped_reads, stored=STORED, visible=VISIBLE),
        "repeated": reads.repeated_reads,
    }
    return [line.split(":")[0] for check in checks.values() for line in check(history)]


def test_polls_that_keep_all_laws() -> None:
    assert broken(poll(0, 2, {0: b"a", 1: b"b"}), poll(2, 5, {2: b"aborted", 4: b"c"})) == []
    assert broken(poll(0, 5, VISIBLE[TP], is_committed=True)) == []


def test_a_value_that_was_read_stays() -> None:
    assert broken(poll(0, 5, ALL | {1: b"x"})) == ["changed read"]


def test_a_record_of_an_aborted_transaction_is_not_read() -> None:
    assert broken(poll(0, 5, ALL, is_committed=True)) == ["aborted read"]


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

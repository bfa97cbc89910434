"""The index of aborted transactions: its format, its order, and what a reader is told."""

from pathlib import Path

import pytest

from leadline.errors import CorruptFile
from leadline.log.txn_index import AbortedTxn, TxnIndex, decode, encode
from leadline.runtime.ports import OsFiles

TXNS = [AbortedTxn(1, 10, 20, 15), AbortedTxn(2, 15, 30, 31), AbortedTxn(1, 40, 50, 51)]


@pytest.fixture
def index(tmp_path: Path) -> TxnIndex:
    made = TxnIndex(OsFiles(), str(tmp_path / "0.txnindex"), 10)
    for txn in TXNS:
        made.append(txn)
    return made


def test_entries_come_back_as_they_were_written(index: TxnIndex) -> None:
    data = Path(index.path).read_bytes()
    assert data == encode(TXNS)
    assert len(data) == 34 * len(TXNS)
    assert TxnIndex(OsFiles(), index.path, 10).entries() == TXNS


def test_there_is_no_file_before_the_first_abort(tmp_path: Path) -> None:
    index = TxnIndex(OsFiles(), str(tmp_path / "0.txnindex"), 0)
    assert index.entries() == []
    assert index.file_to_flush() is None
    index.truncate_to(0)
    index.load([])
    assert list(tmp_path.iterdir()) == []


def test_transactions_end_one_behind_the_other(index: TxnIndex) -> None:
    with pytest.raises(AssertionError):
        index.append(AbortedTxn(3, 0, 50, 50))


@pytest.mark.parametrize(
    ("start", "end", "expected", "complete"),
    [
        (0, 10, [], True),
        (0, 11, TXNS[:1], True),
        (20, 21, TXNS[:2], True),
        (21, 31, TXNS[1:2], True),
        (31, 40, [], True),
        (0, 100, TXNS, False),
    ],
)
def test_a_lookup_returns_overlapping_transactions_and_whether_it_is_complete(
    index: TxnIndex, start: int, end: int, expected: list[AbortedTxn], complete: bool
) -> None:
    assert index.between(start, end) == (expected, complete)


def test_truncating_keeps_what_ended_below(index: TxnIndex) -> None:
    index.truncate_to(30)
    assert index.entries() == TXNS[:1]
    assert TxnIndex(OsFiles(), index.path, 10).entries() == TXNS[:1]


def test_damage_is_named_with_its_place(index: TxnIndex) -> None:
    with pytest.raises(CorruptFile, match=r"0.txnindex: at byte 34: an aborted transaction of version 258"):
        decode("0.txnindex", encode(TXNS[:1]) + b"\1\2" + bytes(32))
    with pytest.raises(CorruptFile, match="at byte 0: an aborted transaction that ends at 20"):
        TxnIndex(OsFiles(), index.path, 21).check(9)
    index.check(9)

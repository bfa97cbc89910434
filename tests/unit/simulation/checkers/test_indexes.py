"""An index that points past its log is seen, in each of the three kinds."""

from collections.abc import Mapping
from struct import pack

from leadline.log import names, txn_index
from leadline.log.txn_index import AbortedTxn
from leadline.simulation.checkers.indexes import indexes_past_their_log
from tests.support.logs import at_offset, batch

BASE = 5
RECORDS = bytes(at_offset(batch(2), BASE)) + bytes(at_offset(batch(2), BASE + 2))
SECOND = len(RECORDS) // 2


def broken(indexes: Mapping[str, bytes]) -> list[str]:
    files = {names.file_name(BASE, kind): data for kind, data in {names.LOG: RECORDS, **indexes}.items()}
    return [*indexes_past_their_log(files)]


def test_entries_within_the_log_are_well() -> None:
    aborted = txn_index.encode([AbortedTxn(1, BASE, BASE + 3, BASE)])
    indexes = {names.INDEX: pack(">ii", 3, SECOND), names.TIME_INDEX: pack(">qiqi", 100, 1, 200, 3)}
    assert broken({**indexes, names.TXN_INDEX: aborted}) == []
    assert broken({}) == []


def test_an_entry_behind_the_last_byte_or_the_last_offset_is_seen() -> None:
    assert "at byte" in broken({names.INDEX: pack(">ii", 3, len(RECORDS))})[0]
    assert "offset 9" in broken({names.INDEX: pack(">ii", 4, SECOND)})[0]
    assert "offset 9 for time 200" in broken({names.TIME_INDEX: pack(">qi", 200, 4)})[0]
    assert "ends at 9" in broken({names.TXN_INDEX: txn_index.encode([AbortedTxn(1, BASE, 9, BASE)])})[0]


def test_entries_that_go_back_are_seen() -> None:
    assert "goes back" in broken({names.INDEX: pack(">iiii", 3, SECOND, 1, 0)})[0]
    assert "goes back" in broken({names.TIME_INDEX: pack(">qiqi", 200, 1, 100, 3)})[0]

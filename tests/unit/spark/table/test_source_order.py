"""Which of two changes of a row is the newer one."""

from itertools import pairwise
from typing import Any

import pytest

from leadline.spark.table.source_order import NO_ORDER, Place, is_later, order_of, source_position

LSN = "00000027:00000758:0005"


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ({"lsn": 24023128}, "24023128"),
        ({"file": "binlog.000003", "pos": 154, "row": 2}, "binlog.000003:154:2"),
        ({"file": "binlog.000003", "pos": 154}, "binlog.000003:154:0"),
        ({"change_lsn": "0:1:3", "commit_lsn": "0:2:1", "event_serial_no": 2}, "0:2:1/0:1:3/2"),
        ({"commit_lsn": LSN}, LSN),
        ({"scn": "772"}, "772"),
        ({"scn": "772", "rs_id": " 0x0000fa.00000022.0010 ", "ssn": 3}, "772@0x0000fa.00000022.0010@3"),
        ({"ts_ms": 1700000000000, "ord": 4}, "1700000000000:4"),
        ({"ts_ms": 5}, None),
        ({}, None),
    ],
)
def test_a_change_has_its_position_in_the_log_of_the_database(source: dict[str, Any], position: str | None) -> None:
    assert source_position(source) == position


@pytest.mark.parametrize(
    "positions",
    [
        ["9", "10", "24023128"],
        ["binlog.000009:900:0", "binlog.000010:4:0", "binlog.000010:4:1", "binlog.1000000:1:0"],
        [f"{LSN}/{LSN}/1", f"{LSN}/{LSN}/2", f"{LSN}/00000027:00000758:000a/0", f"00000028:00000001:0001/{LSN}/0"],
        ["00000027:00000758:0009", "00000027:00000758:000a"],
        ["771@0x0000ff.00000022.0010@9", "772", "772@0x0000fa.00000022.0010@3", "772@0x0000fa.00000022.0010@10"],
        ["1700000000000:9", "1700000000000:10", "1700000000001:1"],
    ],
)
def test_positions_are_compared_number_by_number(positions: list[str]) -> None:
    orders = [order_of(position) for position in positions]
    assert len({order.kind for order in orders}) == 1
    assert all(one < other for one, other in pairwise(orders))


def test_positions_in_binlogs_of_two_servers_cannot_be_compared() -> None:
    assert order_of("a-bin.000001:1:0").kind != order_of("b-bin.000001:1:0").kind
    for unknown in (None, "", "no position", "1:2:3:4"):
        assert order_of(unknown) == NO_ORDER


@pytest.mark.parametrize(
    ("one", "other", "later"),
    [
        (Place(5, 0, 10), Place(9, 0, 9), True),
        (Place(9, 0, 9), Place(5, 0, 10), False),
        (Place(9, 1, 3), Place(5, 0, 10), True),
        (Place(5, 1, 30), Place(9, 0, 10), False),
    ],
)
def test_offsets_decide_within_a_partition_and_times_between_two(one: Place, other: Place, later: bool) -> None:
    assert is_later(one, other) is later

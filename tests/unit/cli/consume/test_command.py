"""How a record is written out, and when reading is finished."""

import argparse

import pytest
from confluent_kafka import TopicPartition

from leadline.admin.errors import Failure
from leadline.cli.consume.command import start_offset


@pytest.mark.parametrize(
    ("options", "start"),
    [({}, 9), ({"from_beginning": True}, 2), ({"offset": 5}, 5), ({"offset": -3}, 6), ({"offset": -99}, 2)],
)
def test_reading_starts_where_the_options_say(options: dict[str, object], start: int) -> None:
    parsed = argparse.Namespace(**({"from_beginning": False, "offset": None, "from_time": None} | options))
    assert start_offset(parsed, TopicPartition("orders", 0), 2, 9) == start


def test_an_offset_out_of_range_is_refused_with_the_range() -> None:
    parsed = argparse.Namespace(from_beginning=False, offset=1, from_time=None)
    with pytest.raises(Failure, match="orders-0 holds the offsets 2 to 9: there is no 1"):
        start_offset(parsed, TopicPartition("orders", 0), 2, 9)

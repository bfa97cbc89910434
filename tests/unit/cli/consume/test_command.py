"""How a record is written out, and when reading is finished."""

import argparse

import pytest
from confluent_kafka import TopicPartition

from leadline.admin.errors import Failure
from leadline.cli import main
from leadline.cli.consume.command import start_offset
from leadline.testing import LocalCluster

AT_THE_END = "it started at the end of the log; --from-beginning reads all records"


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


@pytest.mark.parametrize(("options", "last_line"), [("", AT_THE_END), ("--from-beginning", "consumed 1 record ")])
def test_who_reads_nothing_from_the_end_to_the_end_is_told_so(
    options: str, last_line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster() as cluster:
        cluster.produce("orders", ["a"])
        assert main(f"consume orders --to-end {options} --bootstrap-server {cluster.bootstrap_servers}".split()) == 0
    assert capsys.readouterr().err.splitlines()[-1].startswith(last_line)

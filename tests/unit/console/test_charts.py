"""The pictures of the console, and the lag that one of them shows."""

import xml.etree.ElementTree as ET

from leadline.admin.explanation import LedEpoch
from leadline.console.charts import lag_chart, replication_picture, share_bar
from leadline.console.lag_history import MAX_GROUPS, LagHistory
from tests.unit.console.test_failover import explanation


def pictures(markup: str) -> list[ET.Element]:
    return list(ET.fromstring(f"<div>{markup}</div>"))


def texts(markup: str) -> list[str]:
    return [element.text or "" for element in pictures(markup)[0].iter("text")]


def test_each_replica_has_a_bar_that_ends_at_its_log_end() -> None:
    partition = explanation({1: 60, 2: 60, 3: 40}, [1, 2], 55)
    for picture in pictures(replication_picture(partition)):
        bars = {
            element.attrib["y"]: float(element.attrib["x"]) + float(element.attrib["width"])
            for element in picture.iter("rect")
            if "bar" in element.attrib["class"]
        }
        leader, in_sync, behind = bars.values()
        (mark,) = [float(line.attrib["x1"]) for line in picture.iter("line")]
        assert behind < mark < in_sync == leader
    assert {"broker 3", "not in sync", "high watermark 55", "40"} <= {*texts(replication_picture(partition))}


def test_there_is_a_picture_for_a_phone_that_says_the_same() -> None:
    wide, narrow = pictures(replication_picture(explanation({1: 60, 2: 40}, [1], 55)))
    assert (wide.attrib["class"], narrow.attrib["class"]) == ("replication wide", "replication narrow")
    assert int(narrow.attrib["viewBox"].split()[2]) <= 328  # a screen of 360 without its margins
    shown = [{element.text for element in picture.iter("text")} for picture in (wide, narrow)]
    assert shown[0] == shown[1]


def test_epochs_divide_the_bars() -> None:
    partition = explanation({1: 60}, [1], 60)._replace(epochs=[LedEpoch(5, 50), LedEpoch(4, 0)])
    assert {"epoch 4", "epoch 5"} <= {*texts(replication_picture(partition))}


def test_a_replica_without_a_report_is_named() -> None:
    partition = explanation({1: 60, 2: 60}, [1], 60)
    away = partition.statuses[1]._replace(log_end=None, lag=None, state="its broker is away")
    shown = replication_picture(partition._replace(statuses=[partition.statuses[0], away]))
    assert "its broker is away" in texts(shown)


def test_an_empty_partition_has_a_picture() -> None:
    assert "high watermark 0" in texts(replication_picture(explanation({1: 0}, [1], 0)))


def test_text_in_a_picture_is_escaped() -> None:
    assert "&lt;b&gt;" in share_bar(0.5, "<b>")


def test_lag_is_a_line_once_there_are_two_samples() -> None:
    history = LagHistory()
    assert lag_chart(history.add("billing", 1000, 10)) == ""
    history.add("billing", 1500, 11)  # too soon
    samples = history.add("billing", 3000, 4)
    assert samples == [(1000, 10), (3000, 4)]
    assert "now 4, at most 10" in lag_chart(samples)


def test_the_group_that_was_not_sampled_for_longest_is_forgotten() -> None:
    history = LagHistory()
    for n in range(MAX_GROUPS + 1):
        history.add(f"group {n}", 0, 1)
    assert len(history.add("group 1", 5000, 1)) == 2
    assert len(history.add("group 0", 5000, 1)) == 1

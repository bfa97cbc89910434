"""Arguments of `leadline pipeline mirror`, before anything is started."""

import argparse

import pytest

from leadline.cli import main
from leadline.cli.pipeline.mirror import MirrorTotals, add_to, spec_of
from leadline.spark.mirror.mirror import RoundSummary

MIRROR = ["pipeline", "mirror"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "far:9092"], "exactly one is needed: names of topics, or --pattern"),
        (["orders", "--pattern", "o.*", "--to", "far:9092"], "exactly one is needed"),
        ([",", "--to", "far:9092"], "names no topic"),
        (["orders", "--to", "localhost:9092"], "a topic cannot be copied onto itself; --prefix"),
        (["orders", "--to", "localhost:1", "--bootstrap-server", "localhost:2", "--timeout", "0.2"], "cannot reach"),
    ],
)
def test_a_mirror_that_is_impossible_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MIRROR, *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pattern", "("], "'(' is not a regular expression"),
        (["orders", "--groups", "*"], "'*' is not a regular expression"),
        (["orders", "--name", "a/b"], "'a/b': expected letters"),
    ],
)
def test_invalid_arguments_are_refused(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([*MIRROR, "--to", "far:9092", *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["orders,users", "--prefix", "near."], "near.orders-users"),
        (["--pattern", "shop-.*"], "shop-.-"),
        (["orders", "--name", "mine"], "mine"),
    ],
)
def test_mirrors_of_other_topics_are_others(arguments: list[str], name: str) -> None:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    assert spec_of(parser.parse_args(["mirror", "--to", "far:9092", *arguments])).name == name


def test_progress_shows_rate_lag_and_unchanged_groups() -> None:
    done = MirrorTotals()
    summary = RoundSummary(10, 2000, 5, 1000, -1, 1.0, 0, ("busy",))
    done.add(summary)
    assert done.line(summary, 2.0) == (
        "10 records (2.0 KB), 5/s; lag 5 offsets, 1.0 KB, 0 ms; groups with members are not changed: busy"
    )

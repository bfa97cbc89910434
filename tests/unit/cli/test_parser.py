"""Names of commands that have two words."""

import pytest

from leadline.cli import parse
from leadline.cli.pipeline import table


@pytest.mark.parametrize("name", ["compact", "vacuum", "replay-dead-letters"])
def test_a_command_may_have_a_name_of_two_words(name: str) -> None:
    options = parse(["pipeline", "table", name, "/data/orders"])
    assert options.table == "/data/orders"
    assert not hasattr(options, "topic")


@pytest.mark.parametrize("name", ["compact", "vacuum", "replay-dead-letters", "orders"])
def test_after_two_dashes_a_topic_may_have_the_name_of_a_command(name: str) -> None:
    options = parse(["pipeline", "table", "--", name, "/data/table"])
    assert (options.topic, options.table, options.run.__wrapped__) == (name, "/data/table", table.run)


def test_options_may_stand_before_such_a_topic() -> None:
    options = parse(["pipeline", "table", "--once", "--format", "json", "--", "compact", "/data/table"])
    assert (options.topic, options.table, options.once, options.format) == ("compact", "/data/table", True, "json")


def test_the_help_of_a_group_lists_names_of_two_words(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["pipeline", "--help"])
    shown = capsys.readouterr().out
    assert [name for name in ("table compact", "table vacuum", "table replay-dead-letters") if name in shown] == [
        "table compact",
        "table vacuum",
        "table replay-dead-letters",
    ]

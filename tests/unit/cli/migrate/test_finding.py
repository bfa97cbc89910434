"""Findings are merged, ordered, counted and printed."""

from leadline.cli.migrate.finding import (
    Area,
    MigrationFinding,
    Severity,
    exit_code,
    finding_json,
    finding_row,
    merged,
    order_text,
    summary,
)

BLOCKING = MigrationFinding(Severity.BLOCKS, Area.VERSION, "too old", "upgrade", ("broker 1",))
WARNING = MigrationFinding(Severity.WARNS, Area.PARTITION, "one replica", "add some", ("orders",))
NOTE = MigrationFinding(Severity.NOTES, Area.SETTING, "without effect: x", "nothing to do", ("broker 1",))


def test_one_finding_in_several_places_is_one_and_the_worst_come_first() -> None:
    again = BLOCKING._replace(where=("broker 2", "broker 1"))
    assert merged([NOTE, WARNING, BLOCKING, again]) == [
        BLOCKING._replace(where=("broker 1", "broker 2")),
        WARNING,
        NOTE,
    ]


def test_only_what_blocks_counts_for_the_exit_code() -> None:
    assert exit_code([BLOCKING, NOTE]) == 1
    assert exit_code([WARNING, NOTE]) == exit_code([]) == 0


def test_the_verdict_is_a_line() -> None:
    assert summary([BLOCKING], ["3 brokers"]) == "Checked 3 brokers. Not ready: 1 finding blocks the migration."
    assert summary([WARNING, NOTE], ["a", "b"]) == "Checked a, b. Ready, with 1 warning."
    assert summary([], ["a"]) == "Checked a. Ready."


def test_many_places_are_shortened_in_the_table_and_whole_in_json() -> None:
    everywhere = WARNING._replace(where=tuple(f"t{n}" for n in range(5)))
    assert finding_row(everywhere) == ["warns", "partition", "t0, t1, t2 and 2 more", "one replica"]
    assert finding_json(everywhere) == {
        "severity": "warns",
        "area": "partition",
        "where": ["t0", "t1", "t2", "t3", "t4"],
        "what": "one replica",
        "cure": "add some",
    }


def test_the_controller_is_replaced_last() -> None:
    assert order_text([1, 3, 2]) == "Replace the brokers in this order: 1, 3, and last 2, the controller."
    assert order_text([1]) == "There is one broker: 1."

"""`leadline --version`: the version, and which walk over records runs."""

import pytest

from leadline import __version__
from leadline.cli import parse
from leadline.records import walker


def test_the_version_says_which_walk_over_records_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        parse(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"leadline {__version__} ({walker.DESCRIPTION})\n"

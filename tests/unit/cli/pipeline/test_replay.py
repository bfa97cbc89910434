"""Options of `leadline pipeline replay` that are refused before anything starts."""

import pytest

from leadline.cli import main


@pytest.mark.parametrize("rate", ["0", "-5"])
def test_a_rate_must_be_above_0(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "replay", "/data/orders", "again", "--rate", rate]) == 1
    assert capsys.readouterr().err == f"leadline: --rate {float(rate)}: expected a number above 0\n"

"""docs/TESTING.md and README.md: each example in Python is a test, and is run. tests/spark runs the one for PySpark."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDE, README = (ROOT / "docs" / "TESTING.md").read_text(), (ROOT / "README.md").read_text()
RUN_S = 300.0
_EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLUGIN = ("-p", "leadline.testing.pytest_plugin", "-p", "no:cacheprovider")


def examples() -> list[str]:
    return [example for text in (GUIDE, README) for example in _EXAMPLE.findall(text)]


def test_each_example_of_the_guide_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark = [example for example in examples() if "pyspark" not in example]
    for number, example in enumerate(without_spark):
        pytester.makepyfile(**{f"test_example_{number}": example})
    result = pytester.runpytest_subprocess(*PLUGIN, "-q", timeout=RUN_S)
    result.assert_outcomes(passed=len(without_spark))


def test_the_guide_has_an_example_for_each_client() -> None:
    libraries = ("confluent_kafka", "aiokafka", "kafka", "faststream.kafka", "pyspark.sql")
    text = "\n".join(examples())
    assert [name for name in libraries if not re.search(rf"^from {re.escape(name)} import", text, re.MULTILINE)] == []

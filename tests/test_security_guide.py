"""docs/SECURITY.md: each command in it is run, in order, and prints what the document shows.

Numbers, times, ids and the port differ from run to run; `...` stands for lines that are left out.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient

from leadline.config.properties import parse_properties
from tests.support.guided_broker import GuidedBroker

GUIDE = (Path(__file__).parent.parent / "docs" / "SECURITY.md").read_text()
ANSWER_S = 120
PRINTED: list[list[str]] = []  # by each command of the document
_CHANGING = re.compile(r"(?<![\w-])(?:\d[\d.,]*(?: (?:ms|s|min|B)\b)?|[\w-]{22})(?![\w-])")


class ShownCommand(NamedTuple):
    text: str
    output: list[str]  # as the document shows it


def shown_commands() -> list[ShownCommand]:
    blocks = re.findall(r"^```\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    return [ShownCommand(lines[0], [*filter(None, lines[1:])]) for lines in (part.splitlines() for part in parts)]


def test_the_way_from_nothing_takes_ten_commands() -> None:
    first = GUIDE.partition("## From nothing")[2].partition("\n## ")[0]
    different = {line for line in re.findall(r"^\$ (.*)$", first, re.MULTILINE) if "--dry-run" not in line}
    assert len(different) <= 10


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuidedBroker]:
    """After all commands of the document."""
    broker = GuidedBroker(tmp_path_factory.mktemp("guide"))
    for command, _ in shown_commands():
        PRINTED.append(broker.run(command))
    yield broker
    broker.stop()


_WALKER = re.compile(r" \((compiled record walker|record walker in pure Python)\)$")


def without_changing_parts(line: str) -> str:
    return " ".join(_CHANGING.sub("#", _WALKER.sub("", line)).split())


def test_each_command_of_the_guide_prints_what_it_shows(guided: GuidedBroker) -> None:
    for (command, output), lines in zip(shown_commands(), PRINTED, strict=True):
        printed = [without_changing_parts(line) for line in lines]
        shown = [without_changing_parts(line) for line in output if line != "..."]
        assert [line for line in shown if line not in printed] == [], f"$ {command}\n" + "\n".join(printed)
        if "..." not in output:
            assert len(printed) == len(shown), f"$ {command}\n" + "\n".join(printed)


def test_commands_that_use_kafka_python_take_the_files_too(guided: GuidedBroker) -> None:
    for user in ("admin", "alice"):
        printed = guided.run(f"leadline groups list --command-config secure/{user}.properties")
        assert [line.split()[0] for line in printed] == ["GROUP", "billing"]


@pytest.mark.parametrize("user", ["admin", "alice"])
def test_librdkafka_logs_in_with_its_file(guided: GuidedBroker, user: str) -> None:
    properties = parse_properties((guided.secure / f"{user}.librdkafka.properties").read_text())
    assert "orders" in AdminClient(dict(properties)).list_topics(timeout=ANSWER_S).topics


@pytest.mark.parametrize("user", ["admin", "alice"])
def test_kafka_python_logs_in_with_its_file(guided: GuidedBroker, user: str) -> None:
    from kafka import KafkaConsumer  # type: ignore[import-untyped]

    consumer = KafkaConsumer(
        **json.loads((guided.secure / f"{user}.kafka-python.json").read_text()),
        bootstrap_timeout_ms=ANSWER_S * 1000,
        request_timeout_ms=ANSWER_S * 1000,
    )
    try:
        assert "orders" in consumer.topics()
    finally:
        consumer.close()

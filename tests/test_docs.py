"""The documents: the paths, links, commands and decisions that they mention exist.

A check is a function from a text to complaints, as in test_tidy.py. It is run over the documents, where it must find
nothing, and over an example, where it must find something.
"""

import re
from pathlib import Path

import pytest

from docs.site.settings_reference import DIFFERENCES, groups, with_settings
from leadline.cli import COMMANDS
from leadline.config.broker import DYNAMIC_ONLY, BrokerConfig
from leadline.config.topic import LogConfig

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "leadline"
DECISIONS = ROOT / "docs" / "decisions"
PARTS = ["Context", "Decision", "Consequences", "Alternatives rejected"]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_LINK = re.compile(r"\[[^\]]*\]\((?!https?:|#)([^)#\s]+)(?:#[^)]*)?\)")
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|pyi|pyx|md|toml|txt|lock)|(?:[\w.-]+/)+)`")
_TARGET = re.compile(r"`make ([a-z-]+)")
_COMMAND = re.compile(r"`leadline ([a-z][a-z-]*)")
_DECISION = re.compile(r"\[decision\s+(\d+)\]\((?:[\w/]*/)?(\d{4})-")


def broken_links(text: str, folder: Path) -> list[str]:
    return [f"link to {target}" for target in _LINK.findall(text) if not (folder / target).exists()]


def missing_paths(text: str) -> list[str]:
    """A path may be written from the root of the repository, of the package, or of the tests."""
    roots = (ROOT, SOURCE, ROOT / "src", ROOT / "tests")
    return [path for path in _PATH.findall(text) if not any((root / path).exists() for root in roots)]


def missing_commands(text: str) -> list[str]:
    makefile = (ROOT / "Makefile").read_text()
    targets = [f"make {name}" for name in _TARGET.findall(text) if not re.search(rf"^{name}:", makefile, re.MULTILINE)]
    return targets + [f"leadline {name}" for name in _COMMAND.findall(text) if name not in COMMANDS]


def wrong_decision_numbers(text: str) -> list[str]:
    return [
        f"decision {number} links to {file}" for number, file in _DECISION.findall(text) if int(number) != int(file)
    ]


def missing_classes(text: str) -> list[str]:
    """Names in CamelCase of the glossary are classes of ours, each of which exists once."""
    names = re.findall(r"`([A-Z][a-z]\w+)`", text)
    source = "\n".join(path.read_text() for path in SOURCE.rglob("*.py"))
    return [name for name in names if not re.search(rf"^\s*class {name}\b|^{name} = ", source, re.MULTILINE)]


def decisions() -> list[tuple[int, Path]]:
    return [(int(path.name[:4]), path) for path in sorted(DECISIONS.glob("[0-9]*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_everything_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text()
    complaints = [*broken_links(text, document.parent), *missing_paths(text), *missing_commands(text)]
    assert [*complaints, *wrong_decision_numbers(text)] == []


def test_the_classes_of_the_glossary_exist() -> None:
    assert missing_classes((ROOT / "docs" / "GLOSSARY.md").read_text()) == []


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [number for number, _ in decisions()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize(("number", "path"), decisions())
def test_a_decision_has_its_number_a_status_and_all_parts(number: int, path: Path) -> None:
    title, _, status = path.read_text().splitlines()[:3]
    assert title.startswith(f"# {number}. ")
    assert re.match(r"Status: (accepted|superseded by \[\d+\])", status)
    assert re.findall(r"^## (.*)$", path.read_text(), re.MULTILINE) == PARTS


def test_the_index_lists_every_decision_with_its_title_and_status() -> None:
    rows = []
    for number, path in decisions():
        title, _, status = path.read_text().splitlines()[:3]
        word = status.removeprefix("Status: ").partition(";")[0]
        rows.append(f"| [{number}]({path.name}) | {title.partition('. ')[2]} | {word} |")
    index = (DECISIONS / "README.md").read_text()
    assert [line for line in index.splitlines() if line.startswith("| [")] == rows


def test_the_reference_has_each_setting_once() -> None:
    page = (ROOT / "docs" / "CONFIGURATION.md").read_text()
    marked = re.findall(r"^<!-- settings: (\w+) -->$", page, re.MULTILINE)
    assert sorted(marked) == sorted(name for name, rows in groups().items() if rows)
    names = re.findall(r"^### (.*)$", with_settings(page), re.MULTILINE)
    assert sorted(names) == sorted([*LogConfig.table(), *BrokerConfig.table(), *DYNAMIC_ONLY])


def test_the_reference_says_what_happens_to_a_setting() -> None:
    text = with_settings((ROOT / "docs" / "CONFIGURATION.md").read_text())
    sections = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL))
    assert "default `604800000` (7 d)" in sections["retention.ms"]
    assert "broker's default: `log.retention.ms`, else `log.retention.minutes`" in sections["retention.ms"]
    assert "**without effect**: one thread serves all requests" in sections["num.io.threads"]
    assert "**refused**: Java classes cannot be loaded" in sections["metric.reporters"]
    assert "Kafka differs: the default is `/tmp/kafka-logs`" in sections["log.dir"]
    assert "dynamic, for one broker or for all" in sections["log.cleaner.threads"]
    assert "not dynamic" in sections["listeners"]
    assert set(DIFFERENCES) <= set(BrokerConfig.table())


@pytest.mark.parametrize(
    "complaints",
    [
        broken_links("[x](no/such/file.md)", ROOT),
        missing_paths("see `log/no_such_module.py`"),
        missing_paths("see `no_such_package/`"),
        missing_commands("`make nothing`"),
        missing_commands("`leadline nothing`"),
        wrong_decision_numbers("[decision 3](decisions/0004-x.md)"),
        missing_classes("`Nonexistent`"),
    ],
)
def test_the_checks_find_what_they_look_for(complaints: list[str]) -> None:
    assert len(complaints) == 1

"""Every command of the documentation is run, in order, in a fresh folder, and prints what its page shows.

tests/support/pages.py says how a page is written for that. The pages that start a cluster are run with --long.
"""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import pytest

from leadline.cli import COMMANDS, parse
from tests.support.namespaces import Namespaces, namespaces
from tests.support.page_session import HOST, PageSession
from tests.support.pages import (
    Output,
    all_commands,
    blocks,
    compare,
    is_session,
    page_marks,
    reasons_not_to_run,
    replaced,
    steps,
)

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
README = ROOT / "README.md"
SECURITY = DOCS / "SECURITY.md"  # test_security_guide.py runs it
FOLDERS = (DOCS, DOCS / "tutorials", DOCS / "operations", DOCS / "spark")
PAGES = [README, *sorted(page for folder in FOLDERS for page in folder.glob("*.md") if page != SECURITY)]
RUN = [page for page in PAGES if steps(page.read_text())]

NOT_RUN = {
    "README.md": [
        "a broker follows below; a test of the tests would not end",
        "needs the network and a minute; tests/package tries the packages",
        "needs Docker",
    ],
    "docs/METRICS.md": ["needs Apache Kafka's tools; tests/unit/api/test_broker_loggers.py sends these requests"],
    "docs/MIGRATION.md": ["needs three brokers of Apache Kafka; tests/conformance/test_migration_stories.py does it"],
    "docs/OUTPUT.md": ["needs jq"],
    "docs/JOBS.md": ["needs Spark and some minutes; tests/spark runs the demo"],
    "docs/PIPELINE.md": ["needs Spark; tests/spark runs these jobs"],
    "docs/TESTING.md": ["needs the network"],
    "docs/operations/disaster.md": ["loses records by design"],
    "docs/spark/connect.md": ["needs a server of Spark Connect"],
    "docs/spark/databricks.md": ["needs an account of such a service"],
    "docs/spark/kubernetes.md": ["needs a Kubernetes cluster"],
    "docs/spark/overview.md": ["needs a Spark cluster; tests/spark/test_standalone_cluster.py runs one"],
    "docs/spark/standalone.md": ["needs a Spark cluster; tests/spark/test_standalone_cluster.py runs one"],
    "docs/spark/yarn.md": ["needs a cluster of Hadoop"],
}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def network() -> Iterator[Namespaces]:
    with namespaces(HOST) as made:
        yield made


@pytest.mark.parametrize("page", RUN, ids=name)
def test_each_command_of_a_page_prints_what_it_shows(
    page: Path, tmp_path: Path, network: Namespaces, is_long: bool
) -> None:
    text = page.read_text()
    if "long" in page_marks(text) and not is_long:
        pytest.skip(f"only with --long: it {page_marks(text)['long']}")
    with PageSession(tmp_path, network) as session:
        for step in steps(text):
            session.do(step)


def test_the_blocks_that_are_not_run_are_these() -> None:
    reasons = {name(page): reasons_not_to_run(page.read_text()) for page in PAGES}
    assert {page: texts for page, texts in reasons.items() if texts} == NOT_RUN


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_no_command_hides_in_a_block_that_is_not_run(page: Path) -> None:
    text = page.read_text()
    if "not run" in page_marks(text):
        return
    others = [block for block in blocks(text) if not is_session(block) and "file" not in block.marks]
    assert [block.body for block in others if re.search(r"^(\$ |leadline )", block.body, re.MULTILINE)] == []


def shown_calls() -> list[str]:
    """What one types, and what an output advises. `...` stands for what is left out."""
    calls: set[str] = set()
    for page in PAGES:
        text = page.read_text()
        advised = re.findall(r"(?:try |Next: |To [^:]*: |^ +)(leadline \S.*)$", text, re.MULTILINE)
        calls.update(call for line in (*all_commands(text), *advised) for call in _calls(line))
    return sorted(calls)


def named_calls() -> list[str]:
    """What the text names, often without its arguments."""
    texts = [page.read_text() for page in PAGES]
    named = {" ".join(call.split()) for text in texts for call in re.findall(r"`(leadline [a-z][^`]*)`", text)}
    jobs = re.findall(r"^\| `([a-z]+)` \|", (DOCS / "JOBS.md").read_text(), re.MULTILINE)
    return sorted(named | {f"leadline pipeline {job}" for job in jobs})


def _calls(line: str) -> Iterator[str]:
    """The calls of leadline in a line of shell."""
    for part in re.split(r"[|;]", " ".join(line.split())):
        if match := re.search(r"leadline [a-z-].*", re.sub(r" 2?> ?\S+", "", part)):
            yield re.sub(r" &$|\.\.\.$", "", match[0]).strip()


def test_the_pages_show_commands() -> None:
    assert len(shown_calls()) > 50


@pytest.mark.parametrize("call", shown_calls())
def test_each_command_that_a_page_shows_exists_with_its_options(call: str) -> None:
    words = shlex.split(call)[1:]
    if words == ["--version"]:
        return
    parse(words)


@pytest.mark.parametrize("call", named_calls())
def test_each_command_that_a_page_names_exists_with_its_options(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(call)[1:]
    command = [*takewhile(lambda word: not word.startswith("-"), words), "--help"]
    if words[0] in COMMANDS and len(words) == 1:
        return
    with suppress(SystemExit):
        parse(words)
        return
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        parse(command)
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    assert [word for word in words if word.startswith("--") and word not in printed.out] == []


SHOWN = ["Leadline 0.1.0, ready after 30 ms", "...", "broker 3  pid 12363", "3 records"]


@pytest.mark.parametrize(
    ("printed", "matches"),
    [
        (["Leadline 0.2.0, ready after 1.5 s", "any", "lines", "broker 3 pid 77", "", "3   records"], True),
        (["Leadline 0.2.0, ready after 1.5 s", "broker 3 pid 77", "3 records"], True),
        (["Leadline 0.2.0, ready after 1.5 s", "broker 3 pid 77", "4 records"], False),
        (["Leadline 0.2.0, ready after 1.5 s", "broker 3 pid 77", "3 records", "more"], False),
        (["Leadline 0.2.0, ready after 1.5 s", "broker 3 pid 77"], False),
        (["Leadline 0.2.0, ready", "broker 3 pid 77", "3 records"], False),
    ],
)
def test_an_output_may_differ_in_times_and_ids_alone(printed: list[str], matches: bool) -> None:
    assert (compare(Output(SHOWN), printed).replacements is not None) is matches


def test_an_output_may_be_compared_in_any_order_or_without_numbers() -> None:
    assert compare(Output(["a", "b"], any_order=True), ["b", "a"]).replacements is not None
    assert compare(Output(["a", "b"], any_order=True), ["b", "b"]).replacements is None
    assert compare(Output(["leads 3,1,2"], no_numbers=True), ["leads 1,2,3"]).replacements is not None
    assert compare(Output(["leads 3,1,2"], no_numbers=True), ["follows 1,2,3"]).replacements is None


def test_a_later_command_has_the_id_of_the_real_run() -> None:
    replacements = compare(Output(SHOWN[2:3]), ["broker 3 pid 4711"]).replacements
    assert replacements is not None
    assert replaced("kill -9 12363 30", replacements.items()) == "kill -9 4711 30"

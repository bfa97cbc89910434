"""What all tests share: the law about tools that a machine may lack, their order, and the profile of Hypothesis.

A test that cannot run without a tool is skipped with a reason that starts with "needs ". Where CI=true, such a skip is
a failure: there the tools are at hand, and a test that quietly stopped running would look like one that passes.
"""

import os
import signal
from collections.abc import Generator
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import pytest
from hypothesis import settings

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)

ON_CI = os.environ.get("CI", "").lower() == "true"

if not ON_CI:  # there, Hypothesis loads a profile of its own: no deadline either, and the same examples every time
    settings.register_profile("leadline", deadline=None)
    settings.load_profile("leadline")

# The tests start hundreds of Python processes. Without bytecode each would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The background of a script ignores SIGINT, and nohup ignores SIGHUP. What the tests start would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


FOLDERS = ("spark", "fault", "clients", "conformance", "fuzz", "property")  # those that take longest come first


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="play the stories with many kills or mutants in full length")


@pytest.fixture(scope="session")
def is_long(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--long"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Processes share the files. A long one that came last would keep one of them busy while the others wait."""
    here = Path(__file__).parent
    rank = {folder: number for number, folder in enumerate(FOLDERS)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(here).parts[0], len(FOLDERS)))


def no_excuse_on_ci(report: Report) -> Report:
    if ON_CI and report.skipped and isinstance(report.longrepr, tuple):
        path, line, message = report.longrepr
        reason = message.removeprefix("Skipped: ")
        if reason.startswith("needs "):
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: {reason}, which CI must not lack"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return no_excuse_on_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return no_excuse_on_ci((yield))


@pytest.fixture(scope="session")
def compiled_walker(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """Built for the tests, whether it is there already or not. Tests that take it need a C compiler."""
    from tests.support.compiled import built_walker

    return built_walker(tmp_path_factory.mktemp("walker"))

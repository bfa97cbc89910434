"""The completion scripts, and the man page."""

import pytest

from leadline.cli import COMMANDS, main, whole_parser
from leadline.cli.completion.command_tree import CommandNode, command_nodes, next_words
from leadline.cli.completion.man_page import man_page
from leadline.cli.completion.shells import SCRIPTS, bash_script
from tests.support.completions import offered


@pytest.fixture(scope="module")
def nodes() -> list[CommandNode]:
    return list(command_nodes(whole_parser()))


def test_all_commands_have_a_node_with_their_options(nodes: list[CommandNode]) -> None:
    by_path = {node.path: node for node in nodes}
    assert by_path.keys() >= {*COMMANDS, "topics create", "pipeline table", "pipeline table compact"}
    assert "--partitions" in {name for option in by_path["topics create"].options for name in option.names}
    assert len(nodes) == len(by_path)


def test_a_command_of_two_words_follows_the_first_of_them(nodes: list[CommandNode]) -> None:
    table = next(node for node in nodes if node.path == "pipeline table")
    words = [word for word, _ in next_words(table, nodes)]
    assert "compact" in words
    assert "--once" in words
    assert len(words) == len(set(words))


@pytest.mark.parametrize(
    ("words", "candidates"),
    [
        (["comp"], ["completion"]),
        (["topics", "cr"], ["create"]),
        (["topics", "create", "orders", "--part"], ["--partitions"]),
        (["start", "--log-format", ""], ["text", "json"]),
        (["pipeline", "table", "comp"], ["compact"]),
        (["start", "--port", ""], []),
    ],
)
def test_bash_completes_commands_options_and_values(
    nodes: list[CommandNode], words: list[str], candidates: list[str]
) -> None:
    assert offered("bash", bash_script(nodes), *words) == candidates


@pytest.mark.parametrize("shell", SCRIPTS)
def test_the_command_prints_the_script_of_a_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    output = capsys.readouterr().out
    assert f"leadline completion {shell}" in output
    assert "'topics create'" in output


def test_the_man_page_has_every_command_and_no_line_that_roff_takes_for_a_macro(nodes: list[CommandNode]) -> None:
    lines = man_page(nodes).splitlines()
    sections = {line.removeprefix(".SS leadline ").replace("\\-", "-") for line in lines if line.startswith(".SS")}
    assert sections == {node.path for node in nodes if node.words}
    macros = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert macros <= {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", ".RI", ".nf", ".fi"}

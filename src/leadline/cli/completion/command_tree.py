"""All commands with their options, as their parsers have them.

Pure: parsers in, values out.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple


class OptionWord(NamedTuple):
    """An option of a command."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]  # of its value; empty: any


class CommandNode(NamedTuple):
    """A command by its words after `leadline`. The first node has none."""

    words: tuple[str, ...]
    help: str
    parser: argparse.ArgumentParser
    options: tuple[OptionWord, ...]

    @property
    def path(self) -> str:
        return " ".join(self.words)


def command_nodes(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = (), help: str = ""
) -> Iterator[CommandNode]:
    """The command of a parser, then those below it. A name of two words is a command below the first word."""
    options = tuple(
        _option(action) for action in parser._actions if action.option_strings and action.help != argparse.SUPPRESS
    )
    yield CommandNode(words, help, parser, options)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                if helps.get(name, argparse.SUPPRESS) != argparse.SUPPRESS:  # others are not listed either
                    yield from command_nodes(below, (*words, *name.split()), helps[name])


def _option(action: argparse.Action) -> OptionWord:
    choices = tuple(map(str, action.choices or ()))
    return OptionWord(tuple(action.option_strings), _plain(action.help or ""), action.nargs != 0, choices)


def _plain(help: str) -> str:
    return " ".join(help.replace("%%", "%").split())


def next_words(node: CommandNode, nodes: list[CommandNode]) -> list[tuple[str, str]]:
    """What may follow the words of a command: the next word of commands below it, then options. Each with its help."""
    depth = len(node.words)
    others = [other for other in nodes if other.words[:depth] == node.words and len(other.words) > depth]
    below = [(other.words[depth], other.help) for other in others]
    first_help: dict[str, str] = {}
    for word, help in below:
        first_help.setdefault(word, help)
    return [*first_help.items(), *((name, option.help) for option in node.options for name in option.names)]

"""All commands of `leadline` that do something: `topics list`, not `topics`."""

import argparse
from importlib import import_module

from leadline.cli import COMMANDS
from leadline.cli.parser import CommandParser


def leaf_commands() -> dict[str, argparse.ArgumentParser]:
    """The parser of each command, by its words."""
    parser = CommandParser(prog="leadline")
    commands = parser.add_subparsers()
    for command in COMMANDS.values():
        import_module(command.module).add_to(commands)
    return dict(_leaves("", parser))


def _leaves(name: str, parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            inner = {f"{name} {word}".strip(): parser for word, parser in action.choices.items()}
            return [leaf for word, parser in inner.items() for leaf in _leaves(word, parser)]
    return [(name, parser)]

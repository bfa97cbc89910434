"""The parser of all commands. An error about a mistyped word comes from the right command, with the nearest word."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from leadline.cli.output import ErrorFormat, json_line
from leadline.config.settings import nearest

LIKENESS = 0.6  # of a mistyped command or option; they are shorter than settings, so a wrong letter counts more


class CommandParser(argparse.ArgumentParser):
    """A parser that accepts no unknown arguments.

    A command may have a name of two words, such as `table compact` beside `table`. After `table --` the next word is
    always an argument.
    """

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """The options, and no unknown arguments. Without a subcommand the parser prints its help and exits, as git."""
        words = list(args or ())
        if self._subparsers is not None and not words:
            self.print_help()
            self.exit(1)
        if " ".join(words[:2]) in self._subcommands():
            words[:2] = [" ".join(words[:2])]
        options, unknown = super().parse_known_args(words, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggestion(unknown)}")
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with code 2."""
        if ErrorFormat.as_json:
            usage = " ".join(self.format_usage().removeprefix("usage: ").split())
            self.exit(2, json_line({"error": message, "usage": usage}) + "\n")
        super().error(message)

    def refuse(self, message: str) -> NoReturn:
        """Wrong usage. The message shows the right one."""
        self.exit(2, (json_line({"error": message}) if ErrorFormat.as_json else f"leadline: {message}") + "\n")

    def _subcommands(self) -> Mapping[str, object]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return action.choices
        return {}

    def _suggestion(self, words: Sequence[str]) -> str:
        names = [word.partition("=")[0] for word in words if word.startswith("--")]
        guesses = (nearest(name, self._option_string_actions, LIKENESS) for name in names)
        return next(filter(None, guesses), "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            guess = nearest(value, action.choices, LIKENESS)
            self.error(f"no command {value!r}{guess or f'; `{self.prog} --help` lists them'}")
        super()._check_value(action, value)

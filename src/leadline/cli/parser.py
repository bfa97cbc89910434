"""The parser of all commands: a mistyped word is answered by the command it was meant for, with the nearest word."""

import argparse
from collections.abc import Sequence
from typing import Any

from leadline.config.settings import nearest

LIKENESS = 0.6  # of a mistyped command or option; they are short, so a slip weighs more than in the name of a setting


class CommandParser(argparse.ArgumentParser):
    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        """The options, and nothing that is left over. A command that lacks its command shows its help, as git does."""
        if self._subparsers is not None and not args:
            self.print_help()
            self.exit(1)
        options, extra = super().parse_known_args(args, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}{self._meant(extra)}")
        return options, extra

    def _meant(self, words: Sequence[str]) -> str:
        names = [word.partition("=")[0] for word in words if word.startswith("--")]
        guesses = (nearest(name, self._option_string_actions, LIKENESS) for name in names)
        return next(filter(None, guesses), "")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            guess = nearest(value, action.choices, LIKENESS)
            self.error(f"no command {value!r}{guess or f'; `{self.prog} --help` lists them'}")
        super()._check_value(action, value)

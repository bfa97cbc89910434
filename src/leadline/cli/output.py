"""What a command prints on stdout: text for a person, or JSON for a program. The option is `--output`.

    text    lines and tables
    json    one JSON document: an object, or an array where the command lists things
    jsonl   one JSON object a line, as soon as it is there; `--json` is short for it

A command makes values and hands them to `Results` or `print_result`, with a function that prints the same as text.
Fields have Kafka's nouns in snake_case; docs/OUTPUT.md lists those of each command. Times are milliseconds since 1970,
sizes are bytes. Errors go to stderr (errors.py): with JSON, each is one object a line.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from types import TracebackType

from leadline.admin.json_values import Json

INDENT = 2


class OutputFormat(StrEnum):
    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"


def add_output_option(parser: argparse._ActionsContainer, what: str = "", *, stream: bool = False) -> None:
    """`what`: what a JSON object is about, such as a topic. Without it the command prints one object alone."""
    forms = f"text, jsonl (one line per {what})" if stream else "text, json, jsonl (on one line)"
    if what and not stream:
        forms = f"text, json (an array), jsonl (one line per {what})"
    parser.add_argument(
        "--output",
        type=_output_format(stream=stream),
        default=OutputFormat.TEXT,
        metavar="FORM",
        help=f"{forms} (default text)",
    )
    parser.add_argument(
        "--json", action="store_const", const=OutputFormat.JSONL, dest="output", help="short for --output jsonl"
    )


def _output_format(*, stream: bool) -> Callable[[str], OutputFormat]:
    def output_format(text: str) -> OutputFormat:
        if stream and text == OutputFormat.JSON:
            raise argparse.ArgumentTypeError("this is a stream, one object a line: --output jsonl")
        if text not in list(OutputFormat):
            raise argparse.ArgumentTypeError(f"expected {', '.join(OutputFormat)}, not {text!r}")
        return OutputFormat(text)

    return output_format


class ErrorFormat:
    """How errors are printed. There is one stderr: it is the same for all threads of a command."""

    as_json = False


def wants_json(words: Sequence[str]) -> bool:
    """Whether a command line asks for JSON. It need not be a valid one: its errors are JSON as well then."""
    text = " ".join(words[: words.index("--")] if "--" in words else words)
    return re.search(r"(^| )--(json|output[ =]jsonl?)( |$)", text) is not None


def json_line(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


class Results:
    """The results of a command that lists things. In text, each is printed at once by its own function."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._format: OutputFormat = options.output
        self._values: list[Json] = []

    @property
    def is_text(self) -> bool:
        return self._format is OutputFormat.TEXT

    def __enter__(self) -> "Results":
        return self

    def add(self, value: Json, text: Callable[[], None] | None = None) -> None:
        if self._format is OutputFormat.JSONL:
            print(json_line(value), flush=True)
        elif self._format is OutputFormat.JSON:
            self._values.append(value)
        elif text is not None:
            text()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Results before an error are printed too. The error goes to stderr and into the exit code."""
        if self._format is OutputFormat.JSON and (error is None or self._values):
            print(json.dumps(self._values, ensure_ascii=False, indent=INDENT))


def print_results(options: argparse.Namespace, values: Iterable[Json], text: Callable[[], None]) -> None:
    """All results of a command that lists things, or the text that shows them all."""
    with Results(options) as results:
        if results.is_text:
            text()
        else:
            for value in values:
                results.add(value)


def print_result(options: argparse.Namespace, value: Json, text: str | Callable[[], None]) -> None:
    """The only result of a command."""
    form: OutputFormat = options.output
    if form is OutputFormat.TEXT:
        print(text) if isinstance(text, str) else text()
    elif form is OutputFormat.JSONL:
        print(json_line(value))
    else:
        print(json.dumps(value, ensure_ascii=False, indent=INDENT))


def is_text(options: argparse.Namespace) -> bool:
    """Whether a person reads it: then there are questions, notes and progress beside the results."""
    form: OutputFormat = options.output
    return form is OutputFormat.TEXT

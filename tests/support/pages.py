r"""A page of the documentation as steps: the files that it has the reader write, and the commands that it shows.

    ```console                       commands after `$ `, each with the output that the page shows under it
    ```sh                            commands without output, one in each line

A comment above a block says more about it:

    <!-- terminal: broker -->        the command goes on in a terminal of its own; the next step does not wait for it.
                                     A later block of that terminal shows what it prints next. `^C` interrupts it,
                                     and `^\` kills it.
    <!-- file: server.properties --> the block is the content of a file, whatever its language
    <!-- not run: needs Docker -->   the block is shown only, for this reason
    <!-- compare: any order -->      the lines of each output may come in another order
    <!-- compare: no numbers -->     every number may differ, as the brokers that lead partitions do

A comment with a blank line under it is about the whole page: `not run`, or `long`, which is run with --long only.

In an output, `...` stands for anything: alone in a line for some lines, otherwise for a part of its line. Blank lines
do not count. Times, durations, numbers of more than three digits, ids and the version of Leadline may differ. What
stands there in a real run replaces it in later commands: a page may show `kill -9 12363` where an earlier output shows
that process id.

Pure: text in, steps out.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?P<marks>(?:^<!-- .*? -->\n)*)^```(?P<language>\w*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PAGE_MARK = re.compile(r"^<!-- (not run|long): (.*?) -->\n\n", re.MULTILINE)
_MARK = re.compile(r"<!-- (terminal|file|not run|compare): (.*?) -->")
_VARIABLE = re.compile(
    r"""
    \d{4}-\d\d-\d\dT[\d:.]+Z?                                   # a time
    | (?<![\w.])\d\d:\d\d:\d\d(?![\w.])
    | (?<![\w.-])\d[\d.,]*\ (?:ns|us|ms|s|min|h|d)\b            # a duration
    | [0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}               # a UUID
    | (?<![\w-])(?=[\w-]*\d)[\w-]{22}(?![\w-])                  # a UUID as Kafka writes it
    | (?<![\w.])\d{4,}(?![\w.])                                 # a process, a producer, a time in milliseconds
    | (?<=Leadline\ )\d+\.\d+\.\d+\w*
    | \((?:compiled\ record\ walker|record\ walker\ in\ pure\ Python)\)
    """,
    re.VERBOSE,
)


class Block(NamedTuple):
    language: str
    body: str
    marks: dict[str, str]


class Output(NamedTuple):
    """What a page shows."""

    lines: list[str]
    any_order: bool = False
    no_numbers: bool = False


class Command(NamedTuple):
    text: str
    output: Output
    terminal: str | None


class Printed(NamedTuple):
    """What a terminal shows after its command, without a new one."""

    terminal: str
    output: Output
    key: str  # that the reader presses before, as terminals show it: ^C, ^\\, or nothing


class WrittenFile(NamedTuple):
    name: str
    content: str


Step = Command | Printed | WrittenFile


def blocks(page: str) -> Iterator[Block]:
    for match in _BLOCK.finditer(page):
        yield Block(match["language"], match["body"], dict(_MARK.findall(match["marks"])))


def page_marks(page: str) -> dict[str, str]:
    return dict(_PAGE_MARK.findall(page))


def reasons_not_to_run(page: str) -> list[str]:
    marks = [page_marks(page), *(block.marks for block in blocks(page))]
    return [mark["not run"] for mark in marks if "not run" in mark]


def is_session(block: Block) -> bool:
    return block.language in ("console", "sh")


def steps(page: str) -> list[Step]:
    """All that a reader does, in order."""
    if "not run" in page_marks(page):
        return []
    return [step for block in blocks(page) if "not run" not in block.marks for step in _steps(block)]


def all_commands(page: str) -> list[str]:
    """The commands of a page, those that are not run included."""
    sessions = [block for block in blocks(page) if is_session(block)]
    return [step.text for block in sessions for step in _steps(block) if isinstance(step, Command)]


def _steps(block: Block) -> Iterator[Step]:
    terminal, how = block.marks.get("terminal"), block.marks.get("compare")

    def output(lines: Sequence[str]) -> Output:
        return Output([*filter(str.strip, lines)], how == "any order", how == "no numbers")

    if "file" in block.marks:
        yield WrittenFile(block.marks["file"], block.body)
    elif block.language == "sh":
        yield from (Command(line, output(["..."]), terminal) for line in block.body.splitlines() if line.strip())
    elif block.language == "console":
        first, *parts = re.split(r"^\$ ", block.body, flags=re.MULTILINE)
        if terminal is not None and first:
            key, *lines = first.splitlines() if first.startswith("^") else ("", *first.splitlines())
            yield Printed(terminal, output(lines), key)
        for part in parts:
            text, *lines = part.splitlines()
            while text.endswith("\\"):
                text += "\n" + lines.pop(0)
            yield Command(text, output(lines), terminal)


class Comparison(NamedTuple):
    """`replacements`: what stands in the place of what the page shows. None: the output is another one."""

    replacements: dict[str, str] | None
    end: int  # printed lines that were compared


def compare(output: Output, printed: Sequence[str], *, to_the_end: bool = True) -> Comparison:
    """`to_the_end`: the output must end where the page ends."""
    replacements: dict[str, str] = {}
    rest = [(index, text) for index, text in enumerate(printed) if text.strip()]
    end, gap = 0, False
    for line in output.lines:
        if line.strip() == "...":
            gap = True
            continue
        candidates = rest if gap or output.any_order else rest[:1]
        matches = ((index, _pairs(line, text, output.no_numbers)) for index, text in candidates)
        index, pairs = next((match for match in matches if match[1] is not None), (None, None))
        if index is None or pairs is None:
            return Comparison(None, end)
        replacements.update(pairs)
        rest = [(place, text) for place, text in rest if place > index or (output.any_order and place < index)]
        end, gap = max(end, index + 1), False
    return Comparison(None if to_the_end and rest and not gap else replacements, end)


def _pairs(shown: str, printed: str, no_numbers: bool) -> dict[str, str] | None:
    """The variable parts of a line and what they are in the other; None if the lines differ in more than that."""
    variables: list[str] = []
    pattern = ""
    for part, variable in _parts(" ".join(shown.split())):
        literal = r".*?".join(re.escape(text) for text in part.split("..."))
        pattern += re.sub(r"\d[\d,]*", r"[\\d,]+", literal) if no_numbers else literal
        if variable:
            variables.append(variable)
            pattern += f"({_like(variable)})"
    match = re.fullmatch(pattern, " ".join(printed.split()))
    return dict(zip(variables, match.groups(), strict=True)) if match else None


def _parts(line: str) -> Iterator[tuple[str, str]]:
    end = 0
    for match in _VARIABLE.finditer(line):
        yield line[end : match.start()], match[0]
        end = match.end()
    yield line[end:], ""


def _like(variable: str) -> str:
    """A pattern of what may stand there instead."""
    if re.fullmatch(r"\d[\d.,]* \w+", variable):
        return r"\d[\d.,]* \w+"
    if variable.isdecimal():
        return r"\d+"
    return r"\([\w ]+\)" if variable.startswith("(") else r"[\w:.-]+"


def replaced(command: str, replacements: Iterable[tuple[str, str]]) -> str:
    """A command with ids of a real run. Short numbers and durations stay as they are."""
    for shown, real in replacements:
        if re.fullmatch(r"\d{4,}|[\w-]{22,}", shown):
            command = re.sub(rf"(?<![\w-]){re.escape(shown)}(?![\w-])", real, command)
    return command

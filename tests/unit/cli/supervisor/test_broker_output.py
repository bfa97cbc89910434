"""The output of a broker's process: in a file, or line by line with a prefix."""

import asyncio
import os
from pathlib import Path

from leadline.cli.supervisor.broker_output import MAX_LINE_BYTES, OutputFile, PrefixedLines
from tests.support.waiting import eventually


def test_lines_are_passed_on_with_a_prefix_as_they_come_and_the_rest_at_the_end() -> None:
    async def run() -> list[str]:
        lines: list[str] = []
        output = PrefixedLines("broker 1 | ", lines.append)
        writing = output.open()
        os.write(writing, b"one\ntw")
        await eventually(lambda: lines == ["broker 1 | one"])
        os.write(writing, b"o\nleadline: it cannot start")
        os.close(writing)
        output.close()
        assert output.last_line() == "it cannot start"
        return lines

    assert asyncio.run(run()) == ["broker 1 | one", "broker 1 | two", "broker 1 | leadline: it cannot start"]


def test_a_process_that_ended_is_not_waited_for_while_its_children_hold_the_pipe() -> None:
    async def run() -> list[str]:
        lines: list[str] = []
        output = PrefixedLines("", lines.append)
        writing = output.open()
        os.write(writing, b"one\n")
        output.close()
        os.close(writing)
        return lines

    assert asyncio.run(run()) == ["one"]


def test_a_line_without_an_end_is_passed_on_in_parts() -> None:
    async def run() -> list[str]:
        lines: list[str] = []
        output = PrefixedLines("", lines.append)
        writing = output.open()
        half = MAX_LINE_BYTES // 2
        os.write(writing, b"x" * half)
        await eventually(lambda: len(output._rest) == half)
        os.write(writing, b"x" * half)
        await eventually(lambda: len(output._rest) == MAX_LINE_BYTES)
        os.write(writing, b"y")
        await eventually(lambda: lines)
        os.write(writing, b"z")
        output.close()
        os.close(writing)
        return lines

    assert asyncio.run(run()) == ["x" * MAX_LINE_BYTES + "y", "z"]


def test_each_process_has_a_last_line_of_its_own() -> None:
    async def run() -> None:
        output = PrefixedLines("", lambda _: None)
        for text in ("first", ""):
            writing = output.open()
            os.write(writing, text.encode())
            os.close(writing)
            output.close()
            assert output.last_line() == text

    asyncio.run(run())


def test_a_file_grows_with_each_process_and_has_the_reason_at_its_end(tmp_path: Path) -> None:
    output = OutputFile(tmp_path / "new" / "broker.log")
    for text in (b"one\n", b"leadline: no port\n"):
        writing = output.open()
        os.write(writing, text)
        os.close(writing)
        output.close()
    assert output.path.read_bytes() == b"one\nleadline: no port\n"
    assert output.last_line() == "no port"

"""Lines of input, parsed into headers, key and value."""

import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from leadline.admin.errors import Failure

QUEUE_WAIT_S = IDLE_S = 0.1


CHUNK_BYTES = 1 << 16


class ParsedLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, str | bytes | None]]


@dataclass(frozen=True, slots=True)
class LineLayout:
    """The parts of a line and their separators."""

    key_separator: bytes | None = None
    parse_headers: bool = False
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None

    def parse(self, line: bytes, number: int) -> ParsedLine:
        key: bytes | None = None
        headers: list[tuple[str, str | bytes | None]] = []
        rest = line
        if self.parse_headers:
            before, separator, rest = rest.partition(self.headers_delimiter)
            if not separator:
                raise Failure(f"line {number}: no {_short(self.headers_delimiter)} after the headers in {_short(line)}")
            if before and before != self.null_marker:
                headers = [self._header(part, number) for part in before.split(self.headers_separator)]
        if self.key_separator is not None:
            key, separator, rest = rest.partition(self.key_separator)
            if not separator:
                raise Failure(f"line {number}: no key separator {_short(self.key_separator)} in {_short(line)}")
        return ParsedLine(self._or_null(key), self._or_null(rest), headers)

    def _header(self, part: bytes, number: int) -> tuple[str, bytes | None]:
        name, separator, value = part.partition(self.headers_key_separator)
        if not separator:
            raise Failure(f"line {number}: no {_short(self.headers_key_separator)} in the header {_short(part)}")
        return name.decode("utf-8", "replace"), self._or_null(value)

    def _or_null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part


def _short(data: bytes) -> str:
    return repr(data[:40].decode("utf-8", "replace")) + ("..." if len(data) > 40 else "")


def lines_in(lines: Iterable[bytes], layout: LineLayout) -> Iterator[ParsedLine]:
    for number, line in enumerate(lines, start=1):
        yield layout.parse(line.removesuffix(b"\n").removesuffix(b"\r"), number)


def files_in(paths: Iterable[str]) -> Iterator[ParsedLine]:
    for path in paths:
        yield ParsedLine(None, sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes(), [])


def lines_from(fd: int, idle: Callable[[], None]) -> Iterator[bytes]:
    """The lines from a file descriptor. `idle` is called every IDLE_S while there is no input."""
    parts: list[bytes] = []  # of an incomplete line
    while True:
        if not select.select([fd], [], [], IDLE_S)[0]:
            idle()
            continue
        chunk = os.read(fd, CHUNK_BYTES)
        if not chunk:
            break
        first, *others = chunk.split(b"\n")
        parts.append(first)
        if others:
            yield b"".join(parts)
            yield from others[:-1]
            parts = [others[-1]]
    if last := b"".join(parts):
        yield last

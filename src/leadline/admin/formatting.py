"""Sizes, times, counts, ids and tables as text for a person."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime


def size_text(count: int) -> str:
    size = float(count)
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def host_text(host: str) -> str:
    if host in ("", "::", "0.0.0.0"):
        return "*"
    return f"[{host}]" if ":" in host else host


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def ids_text(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids))


def count_text(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def brokers_text(ids: Iterable[int]) -> str:
    """Which brokers there are: the only broker is 1001; the brokers are 1, 2 and 3."""
    *others, last = map(str, sorted(ids))
    return f"the brokers are {', '.join(others)} and {last}" if others else f"the only broker is {last}"


def time_text(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def age_text(ms: int) -> str:
    """A duration in its two largest units: 45 s, 3 min 20 s, 2 h 5 min, 9 d 4 h."""
    if ms < 1000:
        return f"{max(ms, 0)} ms"
    parts: list[tuple[int, str]] = []
    left = ms // 1000
    for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append((count, unit))
    return " ".join(f"{count} {unit}" for count, unit in parts[:2] if count)


def moment_text(at_ms: int) -> str:
    """A time in the local time zone, in the form that commands accept."""
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%dT%H:%M:%S")


_NUMBER = re.compile(r"-?[\d,]*")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], head: Callable[[str], str] = str) -> list[str]:
    """Lines with aligned columns, numbers to the right. `head` paints the first line."""
    columns = list(zip(heads, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(map(_NUMBER.fullmatch, column[1:])) for column in columns]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, numeric, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return [head(line(heads)), *map(line, rows)]

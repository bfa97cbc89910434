"""Quantities as text: three digits and a unit. Times are UTC.

Pure: numbers in, text out.
"""

import numpy as np

SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
COUNTS = ("", "k", "M", "G", "T")
LENGTHS = (("a", 31_557_600), ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))


def scaled(value: float, units: tuple[str, ...]) -> tuple[float, str]:
    """The quantity in the unit that gives it one to three digits before the point."""
    power = 0
    while abs(value) >= 999.5 and power < len(units) - 1:
        value, power = value / 1000, power + 1
    return value, units[power]


def _digits(value: float) -> str:
    if value == int(value) or abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) < 0.995:
        return f"{value:.3g}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}".rstrip("0").rstrip(".")


def size(count: float) -> str:
    value, unit = scaled(count, SIZES)
    return f"{value:.0f} B" if unit == "B" and value >= 9.5 else f"{_digits(value)} {unit}"


def short(count: float) -> str:
    """A short number: 1.25 M."""
    value, unit = scaled(count, COUNTS)
    return f"{_digits(value)} {unit}".rstrip()


def number(count: int) -> str:
    return f"{count:,}"


def counted(count: int, singular: str) -> str:
    """1 record, 2 records, 3 batches."""
    return f"{number(count)} {noun(count, singular)}"


def noun(count: int, singular: str) -> str:
    """The noun after a number: record, records, batches."""
    if count == 1:
        return singular
    return f"{singular}es" if singular.endswith("ch") else f"{singular}s"


def share(part: float, whole: float) -> str:
    percent = 100 * part / whole if whole else 0.0
    if 0 < percent < 0.05:
        return "< 0.1 %"
    return f"{percent:.1f} %" if percent < 9.95 or 99.5 <= percent < 100 else f"{percent:.0f} %"


def length(ms: float) -> str:
    """A length of time in its largest unit and, if that is a small number, the next unit."""
    left = round(ms / 1000)
    if left < 1:
        return f"{ms:.0f} ms"
    parts: list[str] = []
    for unit, seconds in LENGTHS:
        count, left = divmod(left, seconds)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if parts and (count >= 10 or len(parts) == 2):
            break
    return " ".join(filter(None, parts))


def moment(ms: int) -> str:
    """2026-11-15 12:00:00."""
    return str(np.datetime64(ms // 1000, "s")).replace("T", " ")


def day(ms: int) -> str:
    return str(np.datetime64(ms // 1000, "s"))[:10]


def shown(data: bytes, most: int = 40) -> str:
    """A key as text, or in hex if it is not text. A long key is shortened."""
    try:
        text = data.decode()
        is_text = text.isprintable()
    except UnicodeDecodeError:
        is_text = False
    text = text if is_text else f"0x{data.hex()}"
    return text if len(text) <= most else f"{text[: most - 1]}…"
